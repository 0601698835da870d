#!/bin/sh
# Two processes whose hosts look different: by what they meet, and that both say why.
#   ucx_ends.sh TOOL ROOT_OF_ONE ROOT_OF_OTHER ENGINE [WORDS]
# ROOT: what NRDMA_SYSROOT names. WORDS must be in the line in which each end says by what they met; left out: nothing must.
set -eu
tool=$1 one=$2 other=$3 engine=$4 words=${5-}
dir=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
export NRDMA_LOG=info XDG_RUNTIME_DIR="$dir"
NRDMA_SYSROOT=$one "$tool" serve 127.0.0.1:0 --transport ucx,tcp >"$dir/serve.out" 2>"$dir/serve.err" &
server=$!
address=
for _ in $(seq 200); do
    address=$(grep -oE '127\.0\.0\.1:[0-9]+' "$dir/serve.out" | sed -n 1p)
    [ -z "$address" ] || break
    sleep 0.05
done
[ -n "$address" ] || { cat "$dir/serve.err" >&2; echo "nobody serves" >&2; exit 1; }
status=0
NRDMA_SYSROOT=$other "$tool" demo --connect "$address" --transport ucx,tcp --size 320x180 --out "$dir/frame.png" \
    >"$dir/demo.out" 2>"$dir/demo.err" || status=$?
cat "$dir/demo.out" "$dir/serve.err" "$dir/demo.err"
[ "$status" -eq 0 ] || { echo "the demo ended with $status" >&2; exit 1; }
for end in serve demo; do
    grep "connected by $engine" "$dir/$end.err" >"$dir/line" || { echo "$end did not meet by $engine" >&2; exit 1; }
    [ -z "$words" ] || grep -qF -e "$words" "$dir/line" || { echo "$end does not say: $words" >&2; exit 1; }
done
