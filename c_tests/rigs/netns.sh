#!/usr/bin/env bash
# Three hosts in network namespaces, joined by veth and a bridge: the demo over tcp between them; one host's link
# taken down half way; the host back again; who is refused.
#
#   netns.sh NRDMA      the tool. 77: namespaces cannot be made here (root and iproute2 are needed).
set -uo pipefail

nrdma=${1:?the nrdma tool is missing}
TIMEOUT_MS=1000     # silence after which a host counts as lost
SLACK_MS=700        # time-out + 10 %, and what a busy machine adds to when the link really went down
tag=nrdma$$
scratch=$(mktemp -d /tmp/nrdma-netns-XXXXXX)
servers=()

skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAILED: $1"; for f in "$scratch"/*.txt; do echo "--- $f"; cat "$f"; done; exit 1; }
clean() {
    ((${#servers[@]})) && kill "${servers[@]}" 2>/dev/null
    for n in 0 1 2 3; do ip netns del "$tag-$n" 2>/dev/null; done
    rm -rf "$scratch"
}
trap clean EXIT
((EUID == 0)) || skip "not root"
command -v ip >/dev/null || skip "no iproute2"
ip netns add "$tag-0" 2>/dev/null || skip "no network namespaces"

# ---- the wires ----

on() { local n=$1; shift; ip netns exec "$tag-$n" "$@"; }
on 0 ip link add wire type bridge || skip "no bridges"
on 0 ip link set wire up
for n in 1 2 3; do
    ip netns add "$tag-$n" || skip "no more namespaces"
    ip -n "$tag-$n" link add eth0 type veth peer name "port$n" netns "$tag-0" || skip "no veth"
    on 0 ip link set "port$n" master wire up
    on "$n" ip addr add "10.77.0.$n/24" dev eth0
    on "$n" ip link set eth0 up
    on "$n" ip link set lo up
done

# ---- the hosts ----

export XDG_RUNTIME_DIR=$scratch
"$nrdma" token >"$scratch/token" || fail "no token"
chmod 600 "$scratch/token"
export NRDMA_AUTH_TOKEN_FILE=$scratch/token NRDMA_LOG=info

serve() {   # serve N: starts a server on host N and waits until it listens
    local out=$scratch/server$1.txt
    ip netns exec "$tag-$1" "$nrdma" serve eth0:4000 --name "host-$1" --threads 1 --timeout $TIMEOUT_MS >"$out" 2>&1 &
    servers+=($!)
    for _ in $(seq 100); do grep -q "^10.77.0.$1:4000\$" "$out" && return; sleep 0.05; done
    fail "host $1 does not listen"
}
demo() {    # demo NAME SIZE: runs on host 1
    on 1 "$nrdma" demo --connect 10.77.0.2:4000 --connect 10.77.0.3:4000 --timeout $TIMEOUT_MS --size "$2" \
        --out "$scratch/$1.png" >"$scratch/$1.txt" 2>"$scratch/$1-log.txt"
}
fragments() { awk -v host="$2" '$1 == host { print $3 }' "$scratch/$1.txt"; }

serve 2
serve 3
demo whole 1280x720 || fail "the demo over three hosts"
grep -q "verified" "$scratch/whole.txt" || fail "the picture is wrong"
for host in host-2 host-3; do
    (($(fragments whole $host) > 0)) || fail "$host did nothing"
done
grep -q "connected by tcp;.* shm not: .*network namespaces" "$scratch/whole-log.txt" ||
    fail "nothing says which engine was taken, and why not shared memory"
echo "ok: three hosts, $(fragments whole host-2) and $(fragments whole host-3) fragments away"

# ---- a link goes down half way ----

now_ms() { local t=${EPOCHREALTIME/./}; echo $((t / 1000)); }
demo cut 2560x1440 &
running=$!
sleep 1.5
on 0 ip link set port3 down
down=$(now_ms)
lost=
while kill -0 $running 2>/dev/null; do
    if grep -q "host-3.*is lost" "$scratch/cut-log.txt"; then lost=$(now_ms); break; fi
    sleep 0.02
done
wait $running || fail "the demo with a link down"
[[ -n $lost ]] || fail "the demo ended before the link went down, or the loss was never told"
after=$((lost - down))
((after <= TIMEOUT_MS + TIMEOUT_MS / 10 + SLACK_MS)) || fail "the dead host was noticed after $after ms"
grep -q "verified" "$scratch/cut.txt" || fail "the picture is not complete"
echo "ok: the link went down, noticed after $after ms (time-out $TIMEOUT_MS ms), the picture is complete"

# ---- the host comes back, restarted ----

on 0 ip link set port3 up
kill "${servers[1]}"
wait "${servers[1]}" 2>/dev/null
serve 3
demo again 1280x720 || fail "the demo after the restart"
grep -q "verified" "$scratch/again.txt" || fail "the picture after the restart is wrong"
(($(fragments again host-3) > 0)) || fail "the restarted host did nothing"
echo "ok: the restarted host took $(fragments again host-3) fragments"

# ---- who is refused ----

env -u NRDMA_AUTH_TOKEN_FILE ip netns exec "$tag-3" "$nrdma" serve eth0:4001 >"$scratch/bare.txt" 2>&1 &&
    fail "a node without a token listens to other hosts"
grep -q "auth_token" "$scratch/bare.txt" || fail "the refusal does not say what to do"
"$nrdma" token >"$scratch/other"
chmod 600 "$scratch/other"
NRDMA_AUTH_TOKEN_FILE=$scratch/other on 1 "$nrdma" demo --connect 10.77.0.2:4000 --out "$scratch/x.png" \
    >"$scratch/wrong.txt" 2>&1 && fail "a wrong token was accepted"
grep -q "token" "$scratch/wrong.txt" || fail "the refusal does not name the token"
grep -q "came to nothing" "$scratch/server2.txt" || fail "the listener does not tell of the wrong token"
echo "ok: no token and a wrong token are refused"
