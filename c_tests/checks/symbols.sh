#!/bin/sh
# The library exports exactly the names of the list. symbols.sh LIBRARY LIST
set -eu
found=$(nm -D --defined-only "$1" | awk '{ print $NF }' | LC_ALL=C sort)
if [ "${NRDMA_SYMBOLS:-}" = write ]; then
    printf '%s\n' "$found" >"$2"
fi
printf '%s\n' "$found" | diff -u "$2" - && exit 0
echo "the exports changed; if that is meant, run: NRDMA_SYMBOLS=write ctest -R elf.symbols" >&2
exit 1
