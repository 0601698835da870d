#!/bin/sh
# Builds and runs a program with what pkg-config says. pkg_config.sh LIBDIR shared|static COMPILER SOURCE PROGRAM
set -eu
libdir=$1 kind=$2 compiler=$3 source=$4 program=$5
mkdir -p "$(dirname "$program")"
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
if [ "$kind" = static ]; then
    # Both libraries are there: name the archive.
    libs=$(pkg-config --static --libs nrdma | sed 's/-lnrdma/-l:libnrdma.a/')
else
    libs="$(pkg-config --libs nrdma) -Wl,-rpath,$libdir"
fi
# shellcheck disable=SC2046,SC2086
"$compiler" $(pkg-config --cflags nrdma) "$source" $libs -o "$program"
"$program"
if [ "$kind" = static ]; then
    ! readelf -d "$program" | grep -q libnrdma || exit 1
fi
