#!/usr/bin/env bash
# Two machines with Soft-RoCE devices on one wire, emulated (no KVM, no root, no hardware needed): the distribution's
# kernel with rdma_rxe, and our programs inside. Two kernels rather than two network namespaces of one: rxe of the
# distribution's kernel sends and receives in the first namespace only, and two kernels can lose each other.
#
#   run.sh --report FILE --program FILE [--program FILE ...] [--library FILE] [--cache DIR] [--engine E]
#          [--steps A,B] [--judge no]
#
# Programs and the library are ours; guest/steps.sh tells which steps need which. Prints one line for each step; the
# report and, beside it, both machines' consoles have the rest. Exit status: 0 all passed (--judge no: all came to an
# end; verdict.sh reads how), 1 not, 77 machines cannot be emulated here.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/kernel.sh"
. "$here/image.sh"
LIMIT_S=${NRDMA_RIG_LIMIT:-900}     # for both machines, from power on; steps have limits of their own
programs=() library='' report='' engine=ucx steps='' cache='' judge=yes
while (($#)); do
    case $1 in
    --program) programs+=("$2") ;;
    --library) library=$2 ;;
    --report) report=$2 ;;
    --cache) cache=$2 ;;
    --engine) engine=$2 ;;
    --steps) steps=$2 ;;
    --judge) judge=$2 ;;
    *) echo "run.sh: $1 is no option" >&2; exit 2 ;;
    esac
    shift 2
done
[[ -n $report ]] && ((${#programs[@]})) || { echo "run.sh: --report and --program are needed" >&2; exit 2; }
for program in "${programs[@]}" ${library:+"$library"}; do
    [[ -f $program ]] || { echo "run.sh: there is no $program" >&2; exit 1; }
done
cache=${cache:-$(dirname "$report")/cache}
mkdir -p "$(dirname "$report")" "$cache" || exit 1
report=$(realpath "$report")
rm -f "$report" "$report".{a,b}

skip() { echo "@skip $1" >"$report"; echo "skipped: $1"; exit 77; }
why=''
for program in qemu-system-x86_64 busybox cpio modprobe depmod strip; do
    PATH=$PATH:/sbin:/usr/sbin command -v "$program" >/dev/null || skip "$program is not installed"
done
export PATH=$PATH:/sbin:/usr/sbin
kernel_ready "$cache/kernel" || skip "$why"

scratch=$(mktemp -d /tmp/nrdma-rdma-XXXXXX)
declare -A machines=()
clean() {
    ((${#machines[@]})) && kill -KILL "${machines[@]}" 2>/dev/null
    rm -rf "$scratch"
}
trap clean EXIT
image_make "$scratch/image" "$cache/kernel" || skip "$why"

# ---- power on ----

machine() { # HOST PROCESSORS MEMORY
    local host=$1 other=b
    [[ $host == a ]] || other=a
    qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp "$2" -m "$3" -machine q35 -nodefaults \
        -display none -no-reboot -kernel "$cache/kernel/vmlinuz" -initrd "$scratch/image" \
        -append "console=ttyS0 quiet panic=-1 rig.host=$host rig.engine=$engine rig.steps=$steps" \
        -serial file:"$report.$host" -serial file:"$scratch/report-$host" \
        -netdev dgram,id=wire,local.type=unix,local.path="$scratch/$host",remote.type=unix,remote.path="$scratch/$other" \
        -device virtio-net-pci,netdev=wire,host_mtu=9000,mac=52:54:00:10:09:0$((16#$host - 9)),romfile= \
        </dev/null >"$scratch/qemu-$host" 2>&1 &
    machines[$host]=$!
}
began=$SECONDS
# Host b is of no use without what it obeys with.
[[ " ${programs[*]} " != */elsewhere\ * ]] || machine b 1 1024
machine a 2 2048

# ---- what happens ----

show() { # the verdicts from line $shown on
    local line
    while read -r line; do
        shown=$((shown + 1))
        # Host b loses its power, as far as anybody can see.
        [[ $line != "@freeze b" ]] || kill -STOP "${machines[b]}"
        [[ $line != "@thaw b" ]] || kill -CONT "${machines[b]}"
        [[ $line =~ ^@end\ ([a-z_]+)\ ([a-z]+)\ ([0-9.]+) ]] || continue
        printf '%-16s %-8s %6s s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
    done < <(tr -d '\r' <"$scratch/report-a" 2>/dev/null | tail -n +$((shown + 1)))
}
shown=0
while kill -0 "${machines[a]}" 2>/dev/null; do
    show
    sleep 0.1
    ((SECONDS - began < LIMIT_S)) || kill "${machines[a]}" 2>/dev/null
done
show
tr -d '\r' <"$scratch/report-a" >"$report"
printf '%-16s %-8s %6s s\n' all "" $((SECONDS - began))
if ! grep -q '^@all' "$report"; then
    echo "the machine ended before its last step; its console ($report.a) ends with:"
    tail -n 20 "$report.a" "$scratch"/qemu-*
    [[ $judge == no ]]
    exit
fi
[[ $judge == no ]] || ! grep -qE '^@end [a-z_]+ (fail|timeout)' "$report"
