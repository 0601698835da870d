# The steps of host a, each with a time limit and a verdict of its own. The report, on the second serial line:
#   @begin NAME
#   what the step printed
#   @end NAME pass|fail|timeout SECONDS
. /rig/lib.sh
export NRDMA_TEST_ADDRESS=$OWN

# A step is a function here; steps run in a process of their own.
all="verbs conformance dice deaths demo host_frozen memlock stranger bench"
limit_of() {
    case $1 in
    conformance | dice | deaths | bench) echo 240 ;;
    *) echo 60 ;;
    esac
}

# ---- the wire ----

verbs() {
    ibv_devinfo -v | grep -E 'hca_id|state:|active_mtu|GID\[' || fail "no device"
    eventually 10 sh -c 'ibv_devinfo | grep -q PORT_ACTIVE' || fail "the port is not active"
    eventually 20 ping -c 1 -W 1 $B >/dev/null || fail "host b does not answer"
    write_bw 65536 60 || fail "ib_write_bw"
}

# ib_write_bw from host a to host b: the verbs between the two are those of two kernels.
write_bw() { # BYTES COUNT
    on_b "ib_write_bw -d rxe0 -x \$(gid_index) -s $1 -n $2 -F >/tmp/bw 2>&1 </dev/null &"
    sleep 1
    timeout 40 ib_write_bw -d rxe0 -x "$(gid_index)" -s "$1" -n "$2" -F $B >/tmp/bw 2>&1 || { cat /tmp/bw; return 1; }
    grep -A1 '#bytes' /tmp/bw
}

# ---- the suites, over this host's device ----

conformance() { NRDMA_LOG=warn /usr/bin/conformance --engine "$ENGINE" -d; }
dice() { NRDMA_LOG=warn /usr/bin/dice --engine "$ENGINE" -d; }
deaths() {
    export NRDMA_LOG=warn
    /usr/bin/fault_death --engine "$ENGINE" && /usr/bin/fault_kill 8 --engine "$ENGINE"
}
# Not among the steps: the same with workers on host b. Its wire loses packets, which rdma_rxe of Linux 6.1 does not
# always get over; what remains to be told apart is whose fault each failure is.
apart() { NRDMA_LOG=warn NRDMA_TEST_LAUNCHER=/rig/remote /usr/bin/conformance --engine "$ENGINE" -d; }

# ---- two hosts ----

# Twelve tiles of 16 KiB: rendering is what an emulated processor is worst at.
PICTURE="--size 256x192 --tile 64"
# Runs the demo here and on host b, whose server listens at the port.
demo_with() { # PORT OPTIONS...
    local port=$1; shift
    # On one processor, as host b: or it would be done before that has begun.
    taskset 1 nrdma demo --connect "$B:$port" --transport "$ENGINE" $PICTURE "$@"
}
# The column of host b's row in the demo's summary.
column() { # FILE NAME
    awk -v name="$2" '$1 == "host" { for (i = 1; i <= NF; i++) if ($i == name) n = i } $1 == "host-b" { print $n }' "$1"
}

demo() {
    on_b "serve 4000 --name host-b" || fail "host b does not serve"
    demo_with 4000 --out /tmp/there.png >/tmp/demo 2>/tmp/demo.log || { cat /tmp/demo /tmp/demo.log; fail "the demo"; }
    cat /tmp/demo
    grep "connected by" /tmp/demo.log || fail "nothing says which engine was taken"
    grep -q "connected by $ENGINE" /tmp/demo.log || fail "the engine is not $ENGINE"
    grep -q "verified: all 12 tiles equal a local rendering" /tmp/demo || fail "the picture is wrong"
    [ "$(column /tmp/demo fragments)" -gt 0 ] || fail "host b did nothing"
    [ "$ENGINE" != ucx ] || direct || fail "a result came another way than direct"
}
# Whether all results of host b were written to their place by its device. Those into the host's own memory
# (wrap_user_buffer), which no device may write to, are copied there.
direct() {
    local results wrapped
    results=$(($(column /tmp/demo fragments) + $(number early)))
    wrapped=$(sed -n 's/^wrapped *\([0-9]*\) results.*/\1/p' /tmp/demo)
    [ "$(number direct)" -gt 0 ] && [ "$(number direct)" -eq $((results - wrapped)) ]
}
# A column, "-" being 0.
number() { column /tmp/demo "$1" | sed 's/^-$/0/'; }

# Host b stops dead: no kernel says goodbye, and no device answers.
host_frozen() {
    local begin lost
    on_b "serve 4003 --name host-b --timeout 2000" || fail "host b does not serve"
    demo_with 4003 --no-verify --timeout 2000 --out /tmp/l.png >/tmp/l 2>/tmp/l.log &
    eventually 20 grep -q "connected by $ENGINE" /tmp/l.log || { cat /tmp/l.log; fail "the two do not connect"; }
    sleep 1
    echo "@freeze b" >$REPORT
    begin=$(uptime_s)
    eventually 30 grep -q "host-b.*is lost" /tmp/l.log || { cat /tmp/l.log; fail "the loss is not told"; }
    lost=$(uptime_s)
    wait
    cat /tmp/l /tmp/l.log
    grep -q "frame\|l.png" /tmp/l || fail "the picture is not complete"
    echo "told $(since_ms "$begin" "$lost") ms after host b was stopped (time-out 2000 ms, and what the rig needs to stop it)"
    [ "$(since_ms "$begin" "$lost")" -lt 5000 ] || fail "told too late"
    echo "@thaw b" >$REPORT
    eventually 20 ping -c 1 -W 1 $B >/dev/null || fail "host b does not come back"
    on_b 'kill -0 $(cat /tmp/serve-4003.pid)' || { from_b /tmp/serve-4003.log; fail "host b's server did not survive"; }
    demo_with 4003 --out /tmp/m.png >/tmp/m 2>/tmp/m.log || { cat /tmp/m /tmp/m.log; fail "host b serves nobody any more"; }
    grep verified /tmp/m
}
since_ms() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.0f\n", (b - a) * 1000 }'; }

# ---- what is refused ----

# Somebody who may lock 64 KiB only and is nobody special: he is told, and served another way.
memlock() {
    on_b "serve 4004 --name host-b" || fail "host b does not serve"
    chmod a+rw /dev/infiniband/*
    mkdir -p /run/nobody
    cp /rig/token /run/nobody/token
    chown -R nobody /run/nobody
    chmod 700 /run/nobody
    su -s /bin/sh nobody -c ". /rig/lib.sh; ulimit -l 64; ulimit -l; cd /run/nobody
        export XDG_RUNTIME_DIR=/run/nobody NRDMA_AUTH_TOKEN_FILE=/run/nobody/token
        nrdma demo --connect $B:4004 --out /run/nobody/n.png $PICTURE" >/tmp/n 2>&1
    local rc=$?
    cat /tmp/n
    [ $rc = 0 ] || fail "the demo"
    grep -q "^64$" /tmp/n || fail "the limit was not set"
    grep -q "verified" /tmp/n || fail "the picture is wrong"
    [ "$(column /tmp/n fragments)" -gt 0 ] || fail "host b did nothing"
    [ "$ENGINE" != ucx ] || grep -q "RLIMIT_MEMLOCK" /tmp/n || fail "nothing names the limit"
}

# Connects to this host's UCX listener and to its port without a session, while another session is alive.
stranger() {
    [ "$ENGINE" = ucx ] || { echo "nothing of UCX listens"; return; }
    local port
    serve 4005 --name host-a
    on_b "nrdma demo --connect $A:4005 --transport ucx --size 512x256 --tile 64 --out /tmp/s.png >/tmp/s 2>&1 </dev/null &"
    eventually 20 grep -q "connected by ucx" /tmp/serve-4005.log || { cat /tmp/serve-4005.log; from_b /tmp/s; fail "the two do not connect"; }
    rdma resource show cm_id
    port=$(rdma resource show cm_id | sed -n 's/.*state LISTEN.*src-addr [^ ]*:\([0-9]*\).*/\1/p' | head -n 1)
    [ -n "$port" ] || fail "there is no listener"
    for i in 1 2 3; do
        UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=$(gid_index) timeout 15 /usr/bin/stranger $A "$port" ||
            fail "a stranger was let in"
    done
    eventually 40 on_b "grep -q picture /tmp/s" || { from_b /tmp/s; fail "the demo does not end"; }
    from_b /tmp/s
    from_b /tmp/s | grep -q verified || fail "the picture is wrong"
}

# Rates by size against ib_write_bw; both ends here, where one wire is not what is measured.
bench() { NRDMA_LOG=warn NRDMA_TRANSPORTS="$ENGINE" ratios rates --at "$OWN"; }

# What the device counted that should not have happened.
counters() {
    grep -E '[1-9]' /sys/class/infiniband/rxe0/ports/1/hw_counters/* /dev/null | sed 's/.*hw_counters.//'
    ip -s link show eth0
}

# ---- the run ----

if [ "$1" = run ]; then
    "$2"
    exit
fi
OURS="nrdma conformance dice fault_death fault_kill ib_write_bw ratios"
[ -n "$STEPS" ] || STEPS=$all
for step in $STEPS; do
    echo "@begin $step" >$REPORT
    begin=$(uptime_s)
    timeout -s KILL "$(limit_of "$step")" sh /rig/steps.sh run "$step" >/tmp/step 2>&1 </dev/null
    rc=$?
    case $rc in
    0) verdict=pass ;;
    137) verdict=timeout ;;
    *) verdict=fail ;;
    esac
    [ $verdict = pass ] || counters >>/tmp/step
    # A serial line is slow; what fails has a right to be seen.
    [ $verdict = pass ] && lines=60 || lines=300
    { tail -n $lines /tmp/step; echo "@end $step $verdict $(awk -v a="$begin" -v b="$(uptime_s)" 'BEGIN { printf "%.1f", b - a }')"; } >$REPORT
    # What a step that failed left running.
    killall -q -9 $OURS
    LIMIT_B=10 on_b "killall -q -9 $OURS"
done
echo "@all" >$REPORT
