#!/usr/bin/env bash
# What the report of run.sh says of one step: prints that part. Exit status: 0 passed, 1 not, 77 no machine ran.
#   verdict.sh REPORT STEP
report=$1 step=$2
[[ -f $report ]] || { echo "there is no report: the machines did not run"; exit 1; }
if grep '^@skip' "$report"; then exit 77; fi
sed -n "/^@begin $step\$/,/^@end $step /p" "$report"
grep -q "^@end $step " "$report" || { echo "the machine ended before or in this step; its console ends with:"; tail -n 30 "$report.a"; exit 1; }
grep -q "^@end $step pass " "$report"
