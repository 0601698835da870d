#!/bin/sh
# None of the programs loads a C++ runtime, directly or through a library.
set -eu
for program in "$@"; do
    [ -x "$program" ] || { echo "$program is missing" >&2; exit 1; }
    ! readelf -d "$program" | grep -E 'NEEDED.*(libstdc\+\+|libc\+\+)' || exit 1
    ldd "$program" >/dev/null
    ! ldd "$program" | grep -E 'libstdc\+\+|libc\+\+' || exit 1
done
