#!/bin/sh
# Bench and info from the outside: a table, a document and a picture; other tools beside it; a host that serves.
# bench.sh TOOL CMAKE
set -eu
tool=$1 cmake=$2
scratch=$(mktemp -d /tmp/nrdma-bench-XXXXXX)
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED: $*" >&2
    for file in "$scratch"/*.txt; do echo "--- $file" && cat "$file"; done
    exit 1
}
bench() { "$tool" bench --time 0.02 "$@" >"$scratch/bench.txt" 2>&1; }

# ---- both engines between processes ----
for engine in shm tcp; do
    bench --transport $engine --max 1M --json "$scratch/$engine.json" --svg "$scratch/$engine.svg" || fail "bench over $engine"
    grep -q "over $engine, results filled" "$scratch/bench.txt" || fail "another engine was measured"
    grep -qE '^1 MiB +[a-z]+ +[0-9.]+ [mu]s +[0-9.]+ [mu]?s' "$scratch/bench.txt" || fail "no row for 1 MiB"
    grep -q '</svg>' "$scratch/$engine.svg" || fail "no picture"
    cat "$scratch/bench.txt"
done
cat >"$scratch/read.cmake" <<'END'
file(READ ${FILE} text)
string(JSON schema GET "${text}" schema)
string(JSON count LENGTH "${text}" rows)
string(JSON bytes GET "${text}" rows 0 bytes)
string(JSON rate GET "${text}" rows 0 bytes_per_second)
if(NOT schema EQUAL 1 OR NOT count EQUAL 8 OR NOT bytes EQUAL 8 OR NOT rate GREATER 0)
  message(FATAL_ERROR "schema ${schema}, ${count} rows, ${bytes} bytes, ${rate}")
endif()
END
"$cmake" -DFILE="$scratch/tcp.json" -P "$scratch/read.cmake" || fail "the JSON is not as documented"
bench --max 4K --wrapped --untouched || fail "bench into memory of the host's own"

# ---- beside other tools ----
bench --transport tcp --min 64K --max 64K --against ucx || fail "beside ucx_perftest"
grep -qE '^64 KiB( +[^ ]+)+ +[0-9]+\.[0-9]{2}( +[^ ]+) +[0-9]+\.[0-9]{2}$' "$scratch/bench.txt" || fail "no ratios"
bench --transport tcp --min 64K --max 64K --against iperf3 || fail "beside iperf3"
rc=0
PATH=/nonexistent "$tool" bench --time 0.02 --max 8 --against ucx >"$scratch/none.txt" 2>&1 || rc=$?
[ $rc = 1 ] && grep -q 'apt-get install ucx-utils' "$scratch/none.txt" || fail "a tool that is not there"

# ---- a host that serves ----
"$tool" serve 127.0.0.1:0 --name other >"$scratch/address" 2>"$scratch/serve.txt" &
server=$!
n=0
until [ -s "$scratch/address" ]; do
    n=$((n + 1))
    [ $n -lt 200 ] || fail "serve does not listen"
    sleep 0.05
done
bench --max 4K "$(cat "$scratch/address")" || fail "bench to a host that serves"
grep -q 'peer "other"' "$scratch/bench.txt" || fail "another peer was measured"

# ---- what there is ----
"$tool" info >"$scratch/info.txt" || fail "info"
NRDMA_TRANSPORTS=shm "$tool" info --json >"$scratch/info.json.txt" || fail "info --json"
for engine in inproc shm ucx tcp; do grep -q "^  $engine " "$scratch/info.txt" || fail "info: no $engine"; done
grep -A1 '"value": "shm"' "$scratch/info.json.txt" | grep -q '"source": "environment"' || fail "info: where a setting is from"
for command in demo serve doctor info bench token; do
    "$tool" $command --help >"$scratch/help.txt" || fail "$command --help"
    grep -q "Usage: nrdma $command" "$scratch/help.txt" || fail "$command --help says something else"
    rc=0
    "$tool" $command --frobnicate >"$scratch/usage.txt" 2>&1 || rc=$?
    [ $rc = 64 ] || fail "$command --frobnicate ends with $rc"
    { sleep 0.1; rc=0; "$tool" $command --help 2>"$scratch/closed.txt" || rc=$?; echo $rc >"$scratch/closed"; } | true
    [ "$(cat "$scratch/closed")" = 0 ] && [ ! -s "$scratch/closed.txt" ] || fail "$command --help into a closed pipe"
done
cat "$scratch/info.txt"
