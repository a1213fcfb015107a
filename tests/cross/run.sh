#!/usr/bin/env bash
# The engine's tests on processors that this machine does not have, under qemu's emulation:
#
#   aarch64   everything cross-built for 64-bit ARM, on a processor with dotprod and i8mm, and on one
#             (Cortex-A53) without
#   x86-64    the programs as they were built for this machine, on a processor without AVX (Nehalem) and
#             on one with AVX2 alone (Haswell): an instruction that was not asked for ends a test
#
#   avx512    the same programs on processors that Bochs emulates whole (guest.sh): AVX-512 with VNNI, and
#             what is chosen without VNNI and without AVX-512; about 15 minutes
#   amx       the same, with AMX: needs a newer Bochs than Debian's, named in BOCHS (guest.sh)
#
# usage: run.sh [aarch64|x86-64|avx512|amx]...      the first two when none is named. Called by
# `./run cross`, which installs what it needs. Ends with "N passed, M failed".
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
        if TACIT_EMULATOR="$*" "$@" "$build/bin/$name" >"$log" 2>&1; then
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

# Those that compute through the kernel table in what whole-machine emulation can do in minutes. Left
# out: training, towers and encoders, whose inner loops are the same ones.
emulated=(test_kernels test_dequant test_fast test_fast_model test_matrix test_ops test_tower_attention
    test_kv_cache test_text_arch test_context)

# run_guest MODEL LINE...: the lines' verdicts are counted; a guest that failed to end is one more.
run_guest() {
    local log
    log=$(mktemp)
    bash "$root/tests/cross/guest.sh" "$1" "$root/build/release" "${@:2}" | tee "$log" || true
    passed=$((passed + $(grep -c '^passed' "$log" || true)))
    failed=$((failed + $(grep -c '^FAILED' "$log" || true)))
    grep -q '^passed\|^FAILED' "$log" || failed=$((failed + 1))
    rm -f "$log"
}

# refuses WISH BEST: a line that holds where TACIT_CPU=WISH is refused and BEST is what would be taken.
refuses() {
    echo "TACIT_CPU=$1 tacit logits -m tests/nano/nano.gguf -p x 2>&1 |" \
        "grep -q \"TACIT_CPU=$1: .* does not support it; the best here is '$2'\""
}

# The test programs take the best there is where a wish cannot be met; `tacit` refuses: it goes first.
takes="tacit logits -m tests/nano/nano.gguf -p x"

avx512() {
    local lines=("TACIT_CPU=avx512 $takes" "${emulated[@]/#/TACIT_CPU=avx512 }")
    for variant in avx2 generic; do
        lines+=("TACIT_CPU=$variant $takes" "TACIT_CPU=$variant test_"{ops,fast_model})
    done
    echo "== a processor with AVX-512 VNNI (Ice Lake)"
    run_guest corei7_icelake_u "${lines[@]}"
    echo "== one without VNNI (Skylake-X): AVX2 is taken"
    run_guest corei7_skylake_x "$(refuses avx512 avx2)" test_ops
    echo "== one without AVX-512 (Haswell)"
    run_guest corei7_haswell_4770 "$(refuses avx512 avx2)" test_ops
}

amx() {
    echo "== a processor with AMX (Sapphire Rapids)"
    run_guest sapphire_rapids "TACIT_CPU=amx $takes" "${emulated[@]/#/TACIT_CPU=amx }"
}

for what in "${@:-aarch64 x86-64}"; do
    for word in $what; do
        case $word in
        aarch64 | x86-64 | avx512 | amx) "$word" ;;
        *) echo "run.sh: unknown word '$word': expected aarch64, x86-64, avx512 or amx" >&2 && exit 2 ;;
        esac
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
