#!/bin/sh
# The installed tree is complete and names no place of this machine. tree.sh STAGE BUILD_DIR SOURCE_DIR VERSION
set -eu
stage=$1 build=$2 source=$3 version=$4
cd "$stage"

fail() {
    echo "$*" >&2
    exit 1
}

for file in bin/nrdma include/nrdma/nrdma.h include/nrdma/nrdma.hpp include/nrdma/gpu_buffer.hpp include/nrdma/neuray.hpp; do
    [ -f "$file" ] || fail "$file is missing"
done
[ -x bin/nrdma ] || fail "bin/nrdma cannot be run"
plugin=$(find . -name libnrdma_neuray.so)
[ -n "$plugin" ] || fail "libnrdma_neuray.so is missing"
[ "$(find "$(dirname "$plugin")" -type f | wc -l)" -eq 1 ] || fail "$plugin is not alone in its folder"
library=$(find . -name "libnrdma.so.$version")
[ -n "$library" ] || fail "libnrdma.so.$version is missing"
for link in libnrdma.so "libnrdma.so.${version%%.*}"; do
    [ -L "$(dirname "$library")/$link" ] || fail "$link is no link"
    [ -f "$(dirname "$library")/$link" ] || fail "$link leads nowhere"
done
for file in $(find . -name '*.cmake' -o -name '*.pc' -o -name '*.h' -o -name '*.hpp'); do
    ! grep -nF -e "$stage" -e "$build" -e "$source" "$file" || fail "$file names a place of this machine"
done
