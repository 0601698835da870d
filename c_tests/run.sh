#!/usr/bin/env bash
# Everything that must hold, on a fresh Debian 12 with Rust and gcc: installs the packages that are missing,
# then runs every check and test. The last line is "N passed, N failed, N skipped"; the exit status is 0 only
# when nothing failed and nothing was skipped that is not expected to be. Logs are in build/logs.
#
#   c_tests/run.sh            all stages
#   c_tests/run.sh ctest      the named stages only: fmt clippy cargo_debug cargo_release doc loom
#                             tsan ctest asan deb, and windows and rdma, which are not yet part of all
set -uo pipefail

PACKAGES=(
    cmake ninja-build g++ clang lld pkg-config binutils
    doctest-dev         # the C++ tests
    valgrind            # the C tests again
    abigail-tools       # abidw, abidiff
    libx11-dev          # macros that the headers must live with
    mesa-vulkan-drivers libvulkan-dev vulkan-validationlayers   # slots on Vulkan: a driver on the CPU, the checker
    iproute2            # hosts in network namespaces
    ucx-utils iperf3    # what the benches measure against
    libopenmpi-dev openmpi-bin    # the example under MPI
    debootstrap         # a clean tree to install the packages in
    libucx-dev          # the header that src/transport/ucx mirrors
    python3-pip         # a second UCX (c_tests/fetch_ucx.sh)
)
STAGES=(fmt clippy cargo_debug cargo_release doc loom tsan ctest asan deb)
# Not yet part of all: run by name only (CHANGELOG.md says what is missing).
UNFINISHED=(windows rdma)
# What those need besides.
WINDOWS_PACKAGES=(
    rustc-web cargo-web rust-web-src      # Rust's standard library for Windows, compiled from source
    g++-mingw-w64-x86-64 wine64           # Windows hosts, and what runs them
    clang-19 lld-19 llvm-19               # hosts of Microsoft's C++ ABI
)
RDMA_PACKAGES=(
    qemu-system-x86 busybox-static cpio kmod ibverbs-providers ibverbs-utils rdma-core perftest # emulated machines
)
# What ThreadSanitizer runs: reference counts, the cache, the rings.
TSAN_TESTS=(abi::com tests::cache tests::interface ring)
# What runs under loom: test names that have one of these in them.
LOOM_TESTS=(loom model)
# Tests that may be skipped everywhere (cargo's "ignored" among them).
EXPECTED_SKIPS=0

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CLICOLOR=0
logs=$PWD/build/logs
cargo_dir=$PWD/build/cargo
host=$(rustc -vV 2>/dev/null | sed -n 's/^host: //p')
mkdir -p "$logs" "$cargo_dir"
passed=0 failed=0 skipped=0 failures=()
# What the running stage counted.
stage_passed=0 stage_failed=0 stage_skipped=0

# ---- packages ----

install_packages() {
    command -v apt-get >/dev/null || {
        echo "no apt-get here: make sure to have $*"
        return
    }
    local missing=() package sudo=()
    for package in "$@"; do
        [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == *"ok installed" ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    echo "installing ${missing[*]}"
    ((EUID == 0)) || sudo=(sudo -n)
    "${sudo[@]}" apt-get update -qq >"$logs/apt.log" 2>&1
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >>"$logs/apt.log" 2>&1 || {
        tail -n 20 "$logs/apt.log"
        echo "installing failed; the stages that need these packages will say so"
    }
}

# ---- counting ----

# Adds up cargo's "test result:" lines of a log.
count_cargo() {
    local line
    while read -r line; do
        [[ $line =~ ([0-9]+)\ passed\;\ ([0-9]+)\ failed\;\ ([0-9]+)\ ignored ]] || continue
        ((stage_passed += BASH_REMATCH[1], stage_failed += BASH_REMATCH[2], stage_skipped += BASH_REMATCH[3]))
    done < <(grep -a 'test result:' "$1")
}

# Adds up one of ctest's JUnit files.
count_ctest() {
    [[ -f $1 ]] || return
    local total bad disabled skip
    total=$(junit_number "$1" tests) bad=$(junit_number "$1" failures)
    disabled=$(junit_number "$1" disabled) skip=$(junit_number "$1" skipped)
    ((stage_passed += total - bad - disabled - skip, stage_failed += bad, stage_skipped += disabled + skip))
}

junit_number() {
    tr '\n\t' '  ' <"$1" | sed -n "s/.*<testsuite [^>]* $2=\"\([0-9]*\)\".*/\1/p" | grep . || echo 0
}

# ---- stages: each writes to its log and returns non-zero when something is wrong ----

fmt() { cargo fmt --all --check; }

# The second as CMake builds the library, the third with nothing that can be left out.
clippy() {
    cargo clippy --locked --workspace --all-targets --target-dir "$cargo_dir/tool" -- -D warnings &&
        cargo clippy --locked --lib --no-default-features --features cuda,vulkan --target-dir "$cargo_dir/tool" \
            -- -D warnings &&
        cargo clippy --locked --lib --no-default-features --target-dir "$cargo_dir/tool" -- -D warnings
}

cargo_tests() { # arguments for cargo test
    cargo test --locked --no-fail-fast "$@" >"$logs/$stage.tests" 2>&1
    local rc=$?
    cat "$logs/$stage.tests"
    count_cargo "$logs/$stage.tests"
    if ((stage_passed == 0)); then
        echo "no test ran"
        return 1
    fi
    return $rc
}

cargo_debug() { cargo_tests --target-dir "$cargo_dir/tool"; }

# The header generator is most of what there is to compile, and nothing is measured of it; nor is it of the test
# programs, which would each be linked as thoroughly as the library that ships (and that the C tests use).
cargo_release() {
    local package quick=(--config 'profile.release.lto="off"' --config profile.release.codegen-units=16)
    for package in cbindgen syn serde_core serde_json toml toml_parser winnow indexmap; do
        quick+=(--config "profile.release.package.$package.opt-level=0")
    done
    cargo_tests --release "${quick[@]}" --target-dir "$cargo_dir/tool"
}

doc() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --target-dir "$cargo_dir/tool"; }

# The models, with loom's types under the code. What explores them is optimised, or it takes for ever.
loom() {
    local package quick=()
    for package in nrdma loom generator; do
        quick+=(--config "profile.dev.package.$package.opt-level=2")
    done
    RUSTFLAGS="--cfg loom" \
        cargo_tests "${quick[@]}" --lib --target-dir "$cargo_dir/loom" -- "${LOOM_TESTS[@]}"
}

tsan() {
    local runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER
    # ThreadSanitizer wants the address layout that it knows; some containers do not allow to ask for it.
    setarch -R true 2>/dev/null && local -x "$runner=setarch -R"
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan" \
        TSAN_OPTIONS="suppressions=$PWD/c_tests/tsan.supp exitcode=66" \
        cargo_tests --lib --target "$host" --target-dir "$cargo_dir/tsan" -- "${TSAN_TESTS[@]}"
}

cmake_preset() { # preset
    cmake --preset "$1" && cmake --build --preset "$1" || return 1
    rm -f "build/$1/junit.xml"
    ctest --preset "$1" --output-junit "$PWD/build/$1/junit.xml"
    local rc=$?
    count_ctest "build/$1/junit.xml"
    return $rc
}

ctest_release() { cmake_preset release; }

asan() { cmake_preset asan; }

# The packages, and a clean Debian tree that they are installed in. What cargo built is that of ctest.
deb() { cmake --workflow --preset deb && c_tests/rigs/deb.sh build/deb; }

windows() {
    cmake_preset windows || return
    # What clippy could not see on Linux.
    ! grep -a '^warning: `nrdma`' "$logs/$stage.log"
}

# Two emulated machines with Soft-RoCE devices on one wire.
rdma() {
    cmake --preset release -B build/rdma-rig -DNRDMA_RDMA_RIG=ON && cmake --build build/rdma-rig || return 1
    rm -f build/rdma-rig/junit.xml
    ctest --test-dir build/rdma-rig -L rdma --output-on-failure --output-junit "$PWD/build/rdma-rig/junit.xml"
    local rc=$?
    count_ctest build/rdma-rig/junit.xml
    return $rc
}

# ---- the run ----

run_stage() {
    stage=$1
    local action=$stage begin=$SECONDS rc
    [[ $stage == ctest ]] && action=ctest_release
    stage_passed=0 stage_failed=0 stage_skipped=0
    printf '%-14s ' "$stage"
    "$action" >"$logs/$stage.log" 2>&1
    rc=$?
    # A stage that failed without a failed test counts as one.
    ((rc == 0 || stage_failed > 0)) || stage_failed=1
    ((passed += stage_passed, failed += stage_failed, skipped += stage_skipped))
    printf '%4d s  %d passed, %d failed, %d skipped\n' $((SECONDS - begin)) $stage_passed $stage_failed $stage_skipped
    ((rc == 0)) || failures+=("$(tell_failure)")
}

# What somebody who sees no more than the end of the output needs to know of the stage that failed.
tell_failure() {
    echo "---- $stage failed (build/logs/$stage.log):"
    if grep -aq '^The following tests FAILED:' "$logs/$stage.log"; then
        tell_failed_tests
        sed -n '/^The following tests FAILED:/,$p' "$logs/$stage.log"
        return
    fi
    grep -anE -m 20 '^error|FAILED|panicked|warning: unused|Timeout|SUMMARY: |: error' "$logs/$stage.log"
    tail -n 40 "$logs/$stage.log"
}

# Of each test that ctest calls failed, what it printed: the lines that speak of errors, and the last ones.
tell_failed_tests() {
    awk '
        function tell(  i) {
            if (!count) return
            print title
            for (i = 1; i <= count; i++) if (i > count - 15 || (lines[i] ~ /ERROR|FAILED|panicked|SUMMARY|[^a-z]error|is NOT correct|values:/ && shown++ < 15)) print "    " lines[i]
            count = 0; shown = 0
        }
        /^ *[0-9]+\/[0-9]+ Test +#|^ +Start +[0-9]+:|^[0-9]+% tests passed/ {
            tell()
            inside = /\*\*\*/ && !/\*\*\*(Skipped|Not Run)/
            title = $0
            next
        }
        inside && NF { lines[++count] = substr($0, 1, 300) }
        END { tell() }' "$logs/$stage.log"
}

stages=("${STAGES[@]}")
(($# == 0)) || stages=("$@")
for stage in "${stages[@]}"; do
    [[ " ${STAGES[*]} ${UNFINISHED[*]} " == *" $stage "* ]] || {
        echo "no stage $stage; there are: ${STAGES[*]} ${UNFINISHED[*]}" >&2
        exit 2
    }
done
[[ " ${stages[*]} " != *" windows "* ]] || PACKAGES+=("${WINDOWS_PACKAGES[@]}")
[[ " ${stages[*]} " != *" rdma "* ]] || PACKAGES+=("${RDMA_PACKAGES[@]}")
install_packages "${PACKAGES[@]}"
c_tests/fetch_ucx.sh >"$logs/fetch_ucx.log" 2>&1 || {
    tail -n 20 "$logs/fetch_ucx.log"
    echo "getting a second UCX failed; the tests that need it will say so"
}
for name in "${stages[@]}"; do
    run_stage "$name"
done
printf '%-14s %4d s\n' all $SECONDS
# At the end, where they are looked for.
((${#failures[@]} == 0)) || printf '%s\n' "${failures[@]}" "----"
if ((skipped > EXPECTED_SKIPS)); then
    echo "$skipped tests were skipped, $EXPECTED_SKIPS were expected"
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0 && skipped <= EXPECTED_SKIPS))
