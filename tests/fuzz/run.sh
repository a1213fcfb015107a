#!/usr/bin/env bash
# Fuzzes every target for SECONDS each, beginning with the corpus. What it finds is left in
# build/fuzz/found; to keep it as a test, copy it to tests/fuzz/corpus/NAME/found.
# usage: tests/fuzz/run.sh [SECONDS [NAME...]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-60}
[ $# -gt 0 ] && shift

build=build/fuzz
CC=clang cmake -S . -B $build -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DTACIT_FUZZ=ON -DTACIT_ASAN=ON >/dev/null
if ! cmake --build $build --target fuzzers >$build/build.log 2>&1; then
    grep -E 'error:|FAILED|undefined' $build/build.log >&2
    exit 1
fi
mkdir -p $build/found

names=("$@")
if [ ${#names[@]} = 0 ]; then
    for program in "$build"/bin/fuzz_*; do names+=("${program##*/fuzz_}"); done
fi
failed=0
for name in "${names[@]}"; do
    work=$build/corpus/$name
    seeds=()
    for folder in tests/fuzz/corpus/"$name"/*/; do [ -d "$folder" ] && seeds+=("$folder"); done
    mkdir -p "$work"
    echo "== fuzz_$name, $seconds s"
    log=$build/fuzz_$name.log
    if $build/bin/fuzz_"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix=$build/found/"$name"- "$work" "${seeds[@]}" >"$log" 2>&1; then
        grep -E 'number_of_executed_units|new_units_added|peak_rss_mb' "$log" || true
    else
        failed=1
        tail -n 40 "$log"
        echo "fuzz_$name found something: see $log and $build/found" >&2
    fi
done
exit $failed
