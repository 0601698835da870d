#!/usr/bin/env bash
# The .deb set in a clean Debian tree: it installs, and a stranger's C and C++ programs are built and run there.
#
#   deb.sh FOLDER [TREE]    FOLDER has the three packages (cmake --workflow --preset deb: build/deb). TREE is a tree of
#                           an earlier run, or where to make one; default: made and removed. Needs root, debootstrap
#                           and Debian's archive. 77: it cannot be done here.
set -uo pipefail

folder=$(realpath "${1:?the folder of the packages is missing}")
tree=${2:-}
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
packages=("$folder"/libnrdma0_*.deb "$folder"/libnrdma-dev_*.deb "$folder"/nrdma_*.deb)

skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAILED: $1"; exit 1; }
((EUID == 0)) || skip "not root"
for package in "${packages[@]}"; do [[ -f $package ]] || fail "$package is missing"; done
if [[ -z $tree ]]; then
    tree=$(mktemp -d /var/tmp/nrdma-deb-XXXXXX)/tree
    trap 'rm -rf --one-file-system "$(dirname "$tree")"' EXIT
fi
if [[ ! -x $tree/usr/bin/g++ ]]; then
    command -v debootstrap >/dev/null || skip "no debootstrap"
    debootstrap --variant=minbase --include=g++,cmake,make,pkg-config bookworm "$tree" >"${tree%/}.log" 2>&1 ||
        { tail -n 20 "${tree%/}.log"; fail "debootstrap"; }
fi

# A mount namespace of its own: nothing stays behind.
unshare --mount bash -s "$tree" "$source" "${packages[@]}" <<'END'
set -euo pipefail
tree=$1 source=$2
shift 2
fail() { echo "FAILED: $1"; exit 1; }
mount -t proc proc "$tree/proc"
mount -t tmpfs tmpfs "$tree/tmp"
mkdir -p "$tree/dev/shm" "$tree/tmp/consumer"
mount -t tmpfs tmpfs "$tree/dev/shm"
inside() { chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C "$@"; }
cp "$@" "$tree/tmp"
cp -r "$source/c_tests/consumer/c" "$source/c_tests/consumer/cxx" "$source/examples" "$tree/tmp/consumer"
inside dpkg -P nrdma libnrdma-dev libnrdma0 >/dev/null 2>&1 || true
inside sh -c 'dpkg -i /tmp/*.deb' || fail "the packages do not install"
known=$(inside ldconfig -p)
[[ $known == *'libnrdma.so.0 '* ]] || fail "ldconfig does not know the library"
for language in c cxx; do
    inside cmake -S /tmp/consumer/$language -B /tmp/build/$language -DNRDMA_KIND=nrdma >/dev/null || fail "find_package ($language)"
    inside cmake --build /tmp/build/$language >/dev/null || fail "building ($language)"
    inside /tmp/build/$language/consumer || fail "running ($language)"
done
inside sh -c 'cc /tmp/consumer/c/main.c -o /tmp/by-pc $(pkg-config --cflags --libs nrdma)' || fail "pkg-config"
inside /tmp/by-pc || fail "running what pkg-config built"
inside sh -c 'c++ -O2 -std=c++17 /tmp/consumer/examples/tiles.cpp -o /tmp/tiles -lnrdma -pthread && /tmp/tiles /tmp/tiles.ppm' ||
    fail "the example of a DiCE job"
summary=$(inside nrdma demo --hosts 2 --size 320x180 --tile 32 --out /tmp/frame.png) || fail "nrdma demo"
[[ $summary == *verified* ]] || fail "nrdma demo did not verify its picture"
inside nrdma doctor --no-selftest >/dev/null || fail "nrdma doctor"
inside test -s /usr/share/man/man1/nrdma.1 || fail "no man page"
inside bash -n /usr/share/bash-completion/completions/nrdma || fail "bash completion"
inside dpkg -P nrdma libnrdma-dev libnrdma0 >/dev/null || fail "the packages do not go"
[[ -z $(inside find /usr -name '*nrdma*') ]] || fail "something is left behind"
echo "ok: installed, compiled against, run, removed"
END
