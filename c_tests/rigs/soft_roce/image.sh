# The machines' file system: an uncompressed cpio archive (unpacking a compressed one takes an emulated processor
# longer than reading a larger one). Sourced by run.sh.
#
#   image_make FILE KERNEL-DIR    reads $programs, $library, $here

# Programs of the distribution that the steps use; perftest's are the yardstick.
GUEST_PROGRAMS=(ip rdma ibv_devinfo ib_write_bw ib_write_lat)

image_make() { # FILE KERNEL-DIR
    local file=$1 kernel=$2 root program path ucx
    root=$(mktemp -d "$file.XXXXXX")
    mkdir -p "$root"/{proc,sys,dev,etc/libibverbs.d,tmp,run,modules,rig,busybox,usr/{bin,sbin,lib,lib64}}
    for path in bin sbin lib lib64; do ln -s "usr/$path" "$root/$path"; done
    cp "$kernel"/modules/*.ko "$root/modules"
    cp "$(command -v busybox)" "$root/busybox/busybox"
    cp "$here"/guest/* "$root/rig"
    ln -s rig/init "$root/init"
    chmod +x "$root"/rig/*
    for program in "${GUEST_PROGRAMS[@]}"; do
        path=$(PATH=$PATH:/sbin:/usr/sbin command -v "$program") || { why="$program is not installed"; return 1; }
        image_add "$path"
    done
    # libibverbs reads which drivers there are, and loads them by name.
    cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d" || { why="ibverbs-providers is not installed"; return 1; }
    for path in "$(image_library libibverbs.so.1)"/libibverbs/librxe*; do image_add "$path"; done
    ucx=$(image_library libucp.so.0)
    [[ -n $ucx ]] || { why="libucx0 is not installed"; return 1; }
    for path in "$ucx"/ucx/*.so* "$ucx"/lib{ucp,ucs,uct,ucm}.so.0; do image_add "$path"; done
    for path in "${programs[@]}"; do image_add "$path" /usr/bin; done
    [[ -z $library ]] || cp -L "$library" "$root/usr/lib/libnrdma.so.0"
    find "$root/usr/bin" "$root/usr/lib" -maxdepth 1 -type f -exec strip --strip-debug {} + 2>/dev/null
    # nobody, for what is tried without privileges; no group file is needed.
    printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$root/rig/token"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$file"
    rm -rf "$root"
}

# Where the dynamic linker finds a library.
image_library() { # SONAME
    local path
    path=$(PATH=$PATH:/sbin ldconfig -p | sed -n "s/^\t$1 .* => //p" | sed -n 1p)
    [[ -z $path ]] || dirname "$path"
}

# Copies a file, to its own place or a folder, and the libraries that it needs, to theirs.
image_add() { # FILE [FOLDER]
    local folder=${2:-$(dirname "$1")} needed
    [[ -e $1 ]] || return 0
    mkdir -p "$root/$folder"
    cp -Lf "$1" "$root/$folder/"
    ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | while read -r needed; do
        [[ $needed != */libnrdma.so* ]] || continue
        mkdir -p "$root/$(dirname "$needed")"
        cp -Ln "$needed" "$root/$needed"
    done
}
