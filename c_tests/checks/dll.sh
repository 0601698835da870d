#!/bin/sh
# What a DLL exports is exactly what a list says; what it imports comes with every Windows.
# dll.sh exports OBJDUMP DLL LIST | imports OBJDUMP DLL
set -eu
what=$1 objdump=$2 dll=$3
case $what in
exports)
    "$objdump" -p "$dll" | sed -n '/Ordinal\/Name Pointer\] Table/,/^$/p' | sed -n 's/.* \([A-Za-z_][A-Za-z0-9_]*\)$/\1/p' |
        grep -v '^Table$' | sort >"$dll.exports"
    sort "$4" | diff - "$dll.exports"
    ;;
imports)
    "$objdump" -p "$dll" | sed -n 's/.*DLL Name: //p' | tr 'A-Z' 'a-z' | sort -u >"$dll.imports"
    cat "$dll.imports"
    [ -s "$dll.imports" ]
    ! grep -vxE '(kernel32|ntdll|msvcrt|userenv|ws2_32|iphlpapi|advapi32|bcryptprimitives|api-ms-win-core-synch-l1-2-0)\.dll' \
        "$dll.imports"
    ;;
*) exit 2 ;;
esac
