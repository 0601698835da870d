#!/bin/sh
# Runs a host and looks into what it and nrdma say.
#   ucx.sh HOST TRANSPORTS ENGINE LIBRARY|- [later] -- WORDS...
# Each of WORDS must be in a line of stderr. The line in which nrdma says by what the nodes met must be one line.
set -eu
host=$1 transports=$2 engine=$3 library=$4
shift 4
later=
[ "$1" = later ] && { later=later && shift; }
shift
[ "$library" = - ] && library=
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
NRDMA_LOG=info "$host" "$transports" "$engine" ${library:+"$library"} $later >"$out/out" 2>"$out/err" || status=$?
cat "$out/err"
fail() {
    echo "$*" >&2
    exit 1
}
[ $status -eq 0 ] || fail "the host ended with $status"
# No descriptor of the host's is written to.
[ ! -s "$out/out" ] || fail "on the host's standard output: $(cat "$out/out")"
for words in "$@"; do
    grep -qF -e "$words" "$out/err" || fail "nothing says: $words"
done
[ "$engine" = none ] && exit 0
# A line for each end.
[ "$(grep -c "connected by $engine" "$out/err")" -eq 2 ] || fail "not one line for each end"
