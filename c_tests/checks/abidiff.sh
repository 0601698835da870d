#!/bin/sh
# The binary interface that the header describes, against its committed description.
# abidiff.sh CC INCLUDE_DIR SYMBOLS BASELINE WORK_DIR
set -eu
cc=$1 include=$2 symbols=$3 baseline=$4 work=$5
mkdir -p "$work"
cd "$work"

# A library of nothing but references: every function of the export list, every structure of the header and
# every integer constant, so that each change shows, whichever rustc and linker made the real library.
{
    echo '#include <nrdma/nrdma.h>'
    while read -r name; do
        echo "__typeof__($name) *keep_$name;"
    done <"$symbols"
    grep -o '^\(typedef \)\{0,1\}struct nrdma_[a-z0-9_]* {' "$include/nrdma/nrdma.h" | sed 's/ {//; s/typedef //' |
        while read -r struct name; do
            echo "$struct $name *keep_$name;"
        done
    echo 'enum keep_constants {'
    sed -n 's/^#define \(NRDMA_[A-Z0-9_]*\) (\{0,1\}\(-\{0,1\}[0-9][0-9]*\)[uUlL]*)\{0,1\}$/    keep_\1 = \1,/p' \
        "$include/nrdma/nrdma.h" | grep -v 'keep_NRDMA_VERSION_'
    echo '};'
    echo 'enum keep_constants keep_constants;'
} >stub.c
"$cc" -std=gnu11 -g -O0 -fPIC -shared -nostdlib -I"$include" stub.c -o libstub.so
abidw --no-show-locs --no-corpus-path --no-comp-dir-path --no-architecture --out-file new.abi libstub.so
if [ "${NRDMA_ABI:-}" = write ]; then
    cp new.abi "$baseline"
fi
abidiff --no-architecture "$baseline" new.abi && exit 0
echo "the interface changed; if that is meant, run: NRDMA_ABI=write ctest -R abi.diff, and say so in CHANGELOG.md" >&2
exit 1
