#!/bin/sh
# Gets a second UCX, newer than Debian's and with CUDA modules, into build/ucx-1.22.0: the tests of the UCX loader
# run on both. Does nothing when it is there.
set -eu
cd "$(dirname "$0")/.."
version=1.22.0
to=build/ucx-$version
[ -e "$to/libucx/lib/libucp.so.0" ] && exit 0
rm -rf "$to" "$to.part"
mkdir -p "$to.part"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$to.part" "libucx-cu12==$version"
# A wheel has no links, so that each library is in it three times: one is enough.
python3 - "$to.part" <<'PY'
import glob, re, sys, zipfile
folder = sys.argv[1]
wanted = re.compile(r"libucx/(include/|lib/([^/]+|ucx/[^/]+)\.so\.0$)|[^/]+\.libs/")
for wheel in glob.glob(folder + "/*.whl"):
    archive = zipfile.ZipFile(wheel)
    archive.extractall(folder, [name for name in archive.namelist() if wanted.match(name)])
PY
rm "$to.part"/*.whl
mv "$to.part" "$to"
