#!/bin/sh
# The demo's picture is complete and right, and with whole tiles every result that can be is made in place.
# demo.sh TOOL OUT [ARGUMENTS]; NRDMA_RUNNER is what starts the tool, if it cannot be started by itself
set -eu
tool=$1 out=$2
shift 2
rm -f "$out"
summary=$(${NRDMA_RUNNER:-} "$tool" demo --out "$out" "$@")
echo "$summary"

fail() {
    echo "$*" >&2
    exit 1
}

[ -s "$out" ] || fail "no picture"
echo "$summary" | grep -q 'verified: all [0-9]* tiles equal' || fail "the picture was not verified"
case " $* " in
*" --tile "*) ;; # small ones share their pages
*) echo "$summary" | grep -qE '^in place +([1-9][0-9]*) of \1 results' || fail "results were copied that need not be" ;;
esac
case " $* " in
*" --kill-one "*) echo "$summary" | grep -qE '^killed .*(SIGKILL|TerminateProcess)' || fail "no worker was killed" ;;
esac
