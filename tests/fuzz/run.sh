#!/usr/bin/env bash
# Fuzzes every target for SECONDS of processor time each, beginning with the corpus (on a busy machine
# that takes longer; build/fuzz/spent sums it up over runs). What it finds is left in
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

# fuzz NAME SECONDS SEEDS...: one run of the engine, which stops by the clock; its processor time is
# left in `used` (rounded up, so that it grows).
fuzz() {
    local name=$1 limit=$2 log=$build/fuzz_$1.log code=0 TIMEFORMAT='%U %S'
    shift 2
    { time "$build/bin/fuzz_$name" -max_total_time="$limit" -timeout=60 -report_slow_units=60 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix=$build/found/"$name"- "$build/corpus/$name" "$@" >"$log" 2>&1; } \
        2>"$build/times_$name" || code=$?
    used=$(awk '{ print int($1 + $2) + 1 }' "$build/times_$name")
    return $code
}

failed=0
for name in "${names[@]}"; do
    seeds=() left=$seconds
    for folder in tests/fuzz/corpus/"$name"/*/; do [ -d "$folder" ] && seeds+=("$folder"); done
    mkdir -p "$build/corpus/$name"
    echo "== fuzz_$name, $seconds s of processor time"
    while [ "$left" -gt 0 ]; do
        if ! fuzz "$name" "$left" "${seeds[@]}"; then
            failed=1
            tail -n 40 "$build/fuzz_$name.log"
            echo "fuzz_$name found something: see $build/fuzz_$name.log and $build/found" >&2
            break
        fi
        grep -E 'number_of_executed_units|new_units_added|peak_rss_mb' "$build/fuzz_$name.log" || true
        echo "$name $used" >>$build/spent
        left=$((left - used))
    done
done
echo "processor seconds so far, all runs of $build:"
awk '{ sum[$1] += $2 } END { for (name in sum) print "  " name, sum[name] }' $build/spent | sort
exit $failed
