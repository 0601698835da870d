#!/bin/sh
# The doctor, from the outside: what it says here, its exit codes, its JSON, a host that serves.
# doctor.sh TOOL CMAKE
set -eu
tool=$1 cmake=$2
scratch=$(mktemp -d /tmp/nrdma-doctor-XXXXXX)
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
unset NRDMA_TRANSPORTS NRDMA_INTERFACE NRDMA_AUTH_TOKEN_FILE UCX_TLS UCX_NET_DEVICES || true

fail() {
    echo "FAILED: $*" >&2
    for file in "$scratch"/*.txt; do echo "--- $file" && cat "$file"; done
    exit 1
}
# expect CODE NAME ARGUMENTS...: runs the doctor into NAME.txt
expect() {
    code=$1 name=$2
    shift 2
    rc=0
    "$@" >"$scratch/$name.txt" 2>&1 || rc=$?
    [ "$rc" = "$code" ] || fail "$name: exit code $rc, not $code"
}
has() { grep -qE -- "$2" "$scratch/$1.txt" || fail "$1: nothing says $2"; }

# ---- this machine ----
expect 0 here "$tool" doctor
for engine in inproc shm tcp; do has here "^ok +selftest +$engine: results up to"; done
has here ', 0 FAIL: '
grep -q "$(printf '\033')" "$scratch/here.txt" && fail "colours in a pipe"
grep -vE '^ {17}(do|or)  ' "$scratch/here.txt" | grep -qE '^.{81}' && fail "a line is longer than 80 columns"

# Without the right to pin memory, and with everything else as it was.
if command -v setpriv >/dev/null && command -v prlimit >/dev/null && [ "$(id -u)" = 0 ]; then
    expect 2 memlock setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=65536 "$tool" doctor
    has memlock '^FAIL +memlock +cannot pin 64 MiB'
    has memlock '64 KiB$'
    has memlock 'ulimit -l unlimited'
    for engine in inproc shm tcp; do has memlock "^ok +selftest +$engine: "; done
fi

# ---- a machine of files ----
port=$scratch/root/sys/class/infiniband/mlx5_0/ports/1
mkdir -p "$port" "$scratch/root/sys/class/infiniband_verbs/uverbs0" "$scratch/root/dev/infiniband"
echo '1: DOWN' >"$port/state"
echo mlx5_0 >"$scratch/root/sys/class/infiniband_verbs/uverbs0/ibdev"
: >"$scratch/root/dev/infiniband/uverbs0"
: >"$scratch/root/dev/infiniband/rdma_cm"
export NRDMA_SYSROOT="$scratch/root"
expect 0 warn "$tool" doctor
has warn '^WARN +port +mlx5_0 port 1 is DOWN'
expect 1 strict "$tool" doctor --strict
rm "$scratch/root/dev/infiniband/uverbs0"
expect 2 bad "$tool" doctor
has bad '--device /dev/infiniband/uverbs0'
expect 2 json "$tool" doctor --json
cat >"$scratch/read.cmake" <<'END'
file(READ ${FILE} text)
string(JSON schema GET "${text}" schema)
string(JSON exit GET "${text}" exit)
string(JSON bad GET "${text}" summary fail)
string(JSON count LENGTH "${text}" findings)
if(NOT schema EQUAL 1 OR NOT exit EQUAL 2 OR bad LESS 1 OR count LESS 20)
  message(FATAL_ERROR "schema ${schema}, exit ${exit}, ${bad} failures, ${count} findings")
endif()
END
"$cmake" -DFILE="$scratch/json.txt" -P "$scratch/read.cmake" || fail "the JSON is not as documented"
# A reader that goes away is no failure of its own, and no panic.
{ sleep 0.3; rc=0; "$tool" doctor 2>"$scratch/closed.txt" || rc=$?; echo $rc >"$scratch/closed"; } | true
[ "$(cat "$scratch/closed")" = 2 ] && [ ! -s "$scratch/closed.txt" ] || fail "a closed pipe: $(cat "$scratch/closed")"
unset NRDMA_SYSROOT

# ---- another host, here another process ----
"$tool" serve 127.0.0.1:0 --name other --threads 2 >"$scratch/address" 2>"$scratch/serve.txt" &
server=$!
n=0
until [ -s "$scratch/address" ]; do
    n=$((n + 1))
    [ $n -lt 200 ] || fail "serve does not listen"
    sleep 0.05
done
expect 0 peer "$tool" doctor --no-selftest --peer "$(cat "$scratch/address")"
for what in '"other" answers at' 'a result of 64.0 KiB arrives as sent' 'a result of 64.0 MiB arrives as sent' \
    'latency of a fragment' 'MiB/s' 'a result (of 4.0 GiB arrives as sent|beyond 4 GiB was not tried)'; do
    has peer "^(ok|info) +peer +.*$what"
done
kill "$server"
wait "$server" 2>/dev/null || true
server=
expect 2 nobody "$tool" doctor --no-selftest --peer "$(cat "$scratch/address")"
has nobody '^FAIL +peer '
has nobody 'nrdma serve'
expect 64 usage "$tool" doctor --frobnicate
has usage 'frobnicate'
cat "$scratch/here.txt" "$scratch/peer.txt"
