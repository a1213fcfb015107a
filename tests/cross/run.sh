#!/usr/bin/env bash
# The engine's tests on processors that this machine does not have, under qemu's emulation:
#
#   aarch64   everything cross-built for 64-bit ARM, on a processor with dotprod and i8mm, and on one
#             (Cortex-A53) without
#   x86-64    the programs as they were built for this machine, on a processor without AVX (Nehalem) and
#             on one with AVX2 alone (Haswell): an instruction that was not asked for ends a test
#
# usage: run.sh [aarch64|x86-64]...      both when none is named. Called by `./run cross`, which installs
# what it needs. Ends with "N passed, M failed".
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
passed=0 failed=0

# run_tests BUILD EMULATOR...: every test of the rooms whose code is cut by instruction sets.
run_tests() {
    local build=$1 name log
    shift
    log=$(mktemp)
    for name in "$root"/tests/engine/test_*.c "$root"/tests/common/test_pool.c; do
        name=$(basename "$name" .c)
        if "$@" "$build/bin/$name" >"$log" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAILED: $* $name" && tail -5 "$log"
        fi
    done
    rm -f "$log"
}

aarch64() {
    local names=()
    for name in "$root"/tests/engine/test_*.c "$root"/tests/common/test_pool.c; do
        names+=("$(basename "$name" .c)")
    done
    cmake -S "$root" -B "$root/build/aarch64" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_TOOLCHAIN_FILE="$root/tests/cross/aarch64.cmake" >"$root/build/aarch64-configure.log"
    echo "== building for aarch64"
    cmake --build "$root/build/aarch64" --target tacit tacit-client "${names[@]}" >/dev/null
    echo "== every instruction that the emulator has"
    run_tests "$root/build/aarch64" qemu-aarch64 -cpu max
    echo "== a Cortex-A53"
    run_tests "$root/build/aarch64" qemu-aarch64 -cpu cortex-a53
}

x86-64() {
    echo "== a processor without AVX"
    run_tests "$root/build/release" qemu-x86_64 -cpu Nehalem
    echo "== a processor with AVX2 alone"
    run_tests "$root/build/release" qemu-x86_64 -cpu "Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm"
}

for what in "${@:-aarch64 x86-64}"; do
    for word in $what; do
        case $word in
        aarch64 | x86-64) "$word" ;;
        *) echo "run.sh: unknown word '$word': expected aarch64 or x86-64" >&2 && exit 2 ;;
        esac
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
