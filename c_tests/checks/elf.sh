#!/bin/sh
# One property of the shared library. elf.sh soname|nodelete|needed|glibc LIBRARY SONAME
set -eu
what=$1 library=$2 soname=$3
# Debian 12 and RHEL 9 and later: glibc moved its threads into libc.so in 2.34.
floor=2.34

fail() {
    echo "$*" >&2
    exit 1
}

case $what in
soname)
    readelf -d "$library" | grep -q "(SONAME).*\[$soname\]" || fail "the soname is not $soname"
    ;;
nodelete)
    readelf -d "$library" | grep -q '(FLAGS_1).*NODELETE' || fail "dlclose would unload the library"
    ;;
needed)
    extra=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -Ev '^(libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|ld-linux-[a-z0-9-]+\.so\.[0-9])$' || true)
    [ -z "$extra" ] || fail "needs more than libc and libgcc: $extra"
    ;;
glibc)
    highest=$(objdump -T "$library" | grep -o 'GLIBC_[0-9][0-9.]*' | sed s/GLIBC_// | sort -uV | tail -n 1)
    [ -n "$highest" ] || fail "no versioned symbol of glibc found"
    [ "$(printf '%s\n%s\n' "$highest" "$floor" | sort -V | tail -n 1)" = "$floor" ] ||
        fail "needs glibc $highest; the promise is $floor"
    echo "highest glibc symbol version: $highest"
    ;;
*) fail "unknown check $what" ;;
esac
