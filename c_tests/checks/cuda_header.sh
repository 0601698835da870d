#!/bin/sh
# The fake CUDA driver has the types and signatures of NVIDIA's cuda.h, of CUDA 12 and 13. The header comes from PyPI, under
# NVIDIA's licence, and is thrown away again: not a part of every run. cuda_header.sh [CC]
set -eu
cc=${1:-cc}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for package in nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-runtime==13.0.96; do
    dir=$work/$package
    mkdir "$dir"
    python3 -m pip download -q --no-deps -d "$dir" "$package"
    (cd "$dir" && python3 -m zipfile -e ./*.whl .)
    include=$(dirname "$(find "$dir" -name cuda.h | head -n 1)")
    "$cc" -fsyntax-only -Wall -Wextra -Wno-unused-parameter -Werror -DFAKE_USE_REAL_CUDA_H -I"$include" \
        "$here"/fakes/cuda/*.c
    version=$(sed -n 's/^#define CUDA_VERSION //p' "$include/cuda.h")
    echo "the fake agrees with cuda.h $version"
done
