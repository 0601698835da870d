# What both machines know, and what steps are made of.
word() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
HOST=$(word rig.host)
STEPS=$(word rig.steps | tr , ' ')
ENGINE=$(word rig.engine)
A=10.9.0.1
B=10.9.0.2
[ "$HOST" = a ] && OWN=$A || OWN=$B
REPORT=/dev/ttyS1
export NRDMA_AUTH_TOKEN_FILE=/rig/token NRDMA_LOG=info XDG_RUNTIME_DIR=/run/nrdma
# What an emulated processor makes of time limits that are meant for a real one.
export NRDMA_TEST_SLOW=5

fail() { echo "FAILED: $*"; exit 1; }
# Seconds since the machine started.
uptime_s() { cut -d' ' -f1 /proc/uptime; }
# Where the device's table has the address of this host.
gid_index() {
    local gids=/sys/class/infiniband/rxe0/ports/1/gids n
    for n in 0 1 2 3 4 5; do
        # ::ffff:10.9.0.x
        grep -q "ffff:0a09:000" $gids/$n && echo $n && return
    done
}
# Runs `limit` seconds at most until the command succeeds.
eventually() { # LIMIT COMMAND...
    local limit=$(($1 * 10)); shift
    while ! "$@"; do
        [ $limit -gt 0 ] || return 1
        limit=$((limit - 1))
        usleep 100000
    done
}
# Has host b run a line of shell; returns what that returned.
on_b() { timeout "${LIMIT_B:-60}" /rig/remote sh -c ". /rig/lib.sh; $1"; } # LINE
# One of host b's files.
from_b() { on_b "cat $1"; } # FILE
listening() { grep -qE "^[0-9.]+:[0-9]+\$" "$1"; }
# Starts a server in the background and waits until it says where it is.
serve() { # PORT OPTIONS...
    local port=$1; shift
    nrdma serve "eth0:$port" --threads 1 --transport "$ENGINE" "$@" >"/tmp/serve-$port" 2>"/tmp/serve-$port.log" </dev/null &
    echo $! >"/tmp/serve-$port.pid"
    eventually 10 listening "/tmp/serve-$port" || { cat "/tmp/serve-$port"*; fail "nrdma serve does not listen"; }
}
