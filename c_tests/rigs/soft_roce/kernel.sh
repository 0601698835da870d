# The distribution's kernel and the modules that Soft-RoCE needs. Sourced by run.sh.
#
#   kernel_ready DIR    fills DIR with vmlinuz, modules/NNN-NAME.ko in the order to load them in, VERSION and
#                       SHA256SUMS over all of it, unless it holds them and the sums are right. Returns 1, with the
#                       reason in $why, when that cannot be had here.

MODULES=(crc32_generic rdma_rxe ib_uverbs rdma_ucm virtio_pci virtio_net)

kernel_ready() {
    local dir=$1
    if [[ -f $dir/SHA256SUMS ]]; then
        (cd "$dir" && sha256sum --quiet --status -c SHA256SUMS) && return 0
        echo "the cached kernel in $dir is damaged: fetching it again"
    fi
    rm -rf "$dir" "$dir.part"
    mkdir -p "$dir.part/modules"
    kernel_fetch "$dir.part" || return 1
    kernel_unpack "$dir.part" || return 1
    rm -rf "$dir.part/unpacked" "$dir.part"/*.deb
    (cd "$dir.part" && find . -type f ! -name SHA256SUMS -exec sha256sum {} + >SHA256SUMS)
    # Only what is whole gets the name that is looked for.
    mv "$dir.part" "$dir"
}

# The package that linux-image-amd64 stands for now.
kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | sed -n 1p
}

kernel_fetch() { # DIR
    local package options=()
    command -v apt-get >/dev/null || { why="no apt-get to fetch a kernel with"; return 1; }
    [[ $(dpkg --print-architecture) == amd64 ]] || { why="the kernel is taken from amd64's packages"; return 1; }
    package=$(kernel_package)
    if [[ -z $package ]] && ((EUID == 0)); then
        apt-get update -qq
        package=$(kernel_package)
    fi
    [[ -n $package ]] || { why="no package linux-image-amd64 is known"; return 1; }
    # Otherwise apt warns that its own user may not write there.
    ((EUID == 0)) && options=(-o APT::Sandbox::User=root)
    (cd "$1" && apt-get download -qq "${options[@]}" "$package") || { why="$package cannot be downloaded"; return 1; }
    echo "$package" >"$1/VERSION"
}

kernel_unpack() { # DIR
    local dir=$1 root=$1/unpacked version module path number=0
    dpkg-deb -x "$dir"/*.deb "$root" || { why="the kernel's package cannot be unpacked"; return 1; }
    version=$(basename "$root"/lib/modules/* "$root"/usr/lib/modules/* 2>/dev/null | grep '^[0-9]' | sed -n 1p)
    [[ -d $root/lib ]] || ln -s usr/lib "$root/lib"
    cp "$root"/boot/vmlinuz-* "$dir/vmlinuz" && depmod -b "$root" "$version" || { why="the package holds no kernel"; return 1; }
    # rdma_rxe asks the crypto API for crc32 by name, so no list of dependencies has it.
    for module in "${MODULES[@]}"; do
        modprobe -d "$root" -S "$version" --show-depends "$module" 2>/dev/null
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$dir/modules/order"
    grep -q rdma_rxe "$dir/modules/order" || { why="the kernel $version has no rdma_rxe"; return 1; }
    while read -r path; do
        number=$((number + 1))
        module=$dir/modules/$(printf %03d $number)-$(basename "$path")
        cp "$path" "$module"
        # busybox's insmod takes no compressed ones.
        [[ $module != *.xz ]] || xz -d "$module"
    done <"$dir/modules/order"
}
