#!/usr/bin/env bash
# What the READMEs state about the demo's fleet, measured anew: every seed, accuracy against epsilon,
# and the controls. About 20 minutes on two cores; called by `./run measure`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export TACIT_BIN=${TACIT_BIN:-$root/build/bin}
# shellcheck source=tests/e2e/federation_lib.sh
source "$here/federation_lib.sh"

nano=$root/tests/nano dir=$root/build/measure seeds="1 2 3" split=F words=()
usage() {
    cat <<'TEXT'
usage: ./run measure [options] [seeds|curve|shuffled|alone ...]

  seeds      the whole demo once per seed: means and spread
  curve      held-out accuracy of every published version against the epsilon spent until then
  shuffled   control: pictures permuted among a device's training records
  alone      control: each device trains by itself, with the demo's steps, noise and epsilon

  --seeds "1 2 3"   of the fleets
  --split H|F       styles (F)
  --dir DIR         keeps everything there (default build/measure)

The last three use the first seed; without a word all four are measured. A federation whose result is
in DIR already is not run again.
TEXT
}
while [ $# -gt 0 ]; do
    case $1 in
    --seeds) seeds=$2 && shift ;;
    --split) split=$2 && shift ;;
    --dir) dir=$2 && shift ;;
    --help) usage && exit 0 ;;
    seeds | curve | shuffled | alone) words+=("$1") ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done
[ ${#words[@]} -gt 0 ] || words=(seeds curve shuffled alone)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
first=${seeds%% *}

# evaluate DATA [ADAPTER]: the JSON object of `tacit eval`.
evaluate() {
    local data=$1 options=()
    [ $# -gt 1 ] && options=(--adapter "$2")
    "$TACIT_BIN/tacit" eval -m "$nano/nano.gguf" --mmproj "$nano/mmproj-nano.gguf" \
        "${options[@]}" --data "$data" --json 2>/dev/null
}

accuracy() { evaluate "$@" | sed 's/^{"accuracy": *\([0-9.e-]*\).*/\1/'; }

# kind_accuracy KIND, of the object on standard input
kind_accuracy() { sed "s/.*\"$1\":{\"accuracy\":\([0-9.e-]*\).*/\1/"; }

percent() { awk -v x="$1" 'BEGIN { printf "%5.1f %%", 100 * x }'; }

# ensure NAME SEED OPTIONS...: the demo's result in DIR/NAME, run unless it is there.
ensure() {
    local name=$1 seed=$2
    shift 2
    [ -s "$dir/$name/result.json" ] && return
    bash "$here/demo.sh" --dir "$dir/$name" --seed "$seed" --split "$split" --json "$@" \
        2>"$dir/$name.log" | tail -1 >"$dir/$name.json" || {
        tail -3 "$dir/$name.log" >&2
        exit 1
    }
    mv "$dir/$name.json" "$dir/$name/result.json"
}

# value FILE SECTION KEY: of the demo's last line.
value() { sed "s/.*\"$2\":{[^}]*\"$3\":\([^,}]*\).*/\1/" "$1"; }

# adapter_of FEDERATION: the file that its devices activated last.
adapter_of() { echo "$1/device-1/adapters/$(fed_json "$1/device-1/adapters/active.json" file)"; }

measure_seeds() {
    local seed file result
    printf '%-6s %9s %9s %9s %18s %9s %7s\n' seed base DP gain "labels, numbers" plain epsilon
    for seed in $seeds; do
        ensure "seed-$seed" "$seed"
        file=$dir/seed-$seed/result.json
        result=$(evaluate "$dir/seed-$seed/fleet/heldout.jsonl" "$(adapter_of "$dir/seed-$seed/dp")")
        printf '%-6s %9s %9s %9s %18s %9s %7.3f\n' "$seed" "$(percent "$(value "$file" base accuracy)")" \
            "$(percent "$(value "$file" federated_dp accuracy)")" \
            "$(percent "$(awk -v a="$(value "$file" federated_dp accuracy)" -v b="$(value "$file" base accuracy)" 'BEGIN { print a - b }')")" \
            "$(percent "$(kind_accuracy label <<<"$result")"), $(percent "$(kind_accuracy number <<<"$result")")" \
            "$(percent "$(value "$file" federated_plain accuracy)")" "$(value "$file" federated_dp epsilon_max)"
    done
    for seed in $seeds; do
        file=$dir/seed-$seed/result.json
        echo "$(value "$file" base accuracy) $(value "$file" federated_dp accuracy) $(value "$file" federated_plain accuracy)"
    done | awk '{ g = $2 - $1; p = $3 - $1; s += g; q += g * g; t += p; n++ }
        END { m = s / n; v = n > 1 ? (q - n * m * m) / (n - 1) : 0
              printf "gain over the base: DP %.1f points (standard deviation %.1f, %d seeds), without noise %.1f\n",
                     100 * m, 100 * sqrt(v > 0 ? v : 0), n, 100 * t / n }'
}

# versions FEDERATION: "version epsilon file" of each published version, in order.
versions() {
    local object
    grep -o '{[^}]*}' "$1/adapters.json" | while read -r object; do
        echo "$object" >"$dir/version.json"
        echo "$(fed_json "$dir/version.json" version) $(fed_json "$dir/version.json" epsilon_server)" \
            "$1/server/adapters/$(fed_json "$dir/version.json" file_digest).gguf"
    done | sort -n
    rm "$dir/version.json"
}

measure_curve() {
    local at version file spent
    ensure "seed-$first" "$first"
    at=$dir/seed-$first
    printf '%-8s %9s %9s\n' version epsilon accuracy
    printf '%-8s %9s %9s\n' base 0 "$(percent "$(value "$at/result.json" base accuracy)")"
    while read -r version spent file; do
        printf '%-8s %9.3f %9s\n' "$version" "$spent" "$(percent "$(accuracy "$at/fleet/heldout.jsonl" "$file")")"
    done < <(versions "$at/dp")
}

measure_shuffled() {
    local file
    ensure "shuffled-$first" "$first" --shuffle-pictures --only dp
    file=$dir/shuffled-$first/result.json
    echo "pictures shuffled: base $(percent "$(value "$file" base accuracy)"), DP $(percent "$(value "$file" federated_dp accuracy)")"
    echo "a constant answer per question: $(percent "$(fed_json "$dir/shuffled-$first/fleet/fleet.json" constant_answer_accuracy)")"
}

# Training of every device by itself, with what the demo's rounds add up to, then its own held-out
# records and those of all devices.
measure_alone() {
    local fleet device k own all options=()
    ensure "seed-$first" "$first"
    fleet=$dir/seed-$first/fleet
    rm -rf "$dir/alone-$first"
    mapfile -t options < <(bash "$here/demo.sh" --print-local-options)
    printf '%-10s %9s %12s %12s\n' device epsilon "own held-out" "all held-out"
    for k in 1 2 3 4 5 6 7 8; do
        device=$dir/alone-$first/device-$k
        mkdir -p "$device"
        cat >"$device/client.yaml" <<TEXT
model:
  text: "$nano/nano.gguf"
  mmproj:
    - "$nano/mmproj-nano.gguf"
data: "$fleet/device-$k/data.jsonl"
policy:
  epsilon: 8
  delta: 1e-5
  unit: record
  minimum_noise_multiplier: 0.5
  minimum_cohort: 2
  minimum_quorum: 2
TEXT
        "$TACIT_BIN/tacit-client" train --dir "$device" --data "$fleet/device-$k/data.jsonl" \
            --out "$device/alone.gguf" "${options[@]}" --json >"$device/train.json" 2>"$device/train.log" || {
            tail -2 "$device/train.log" >&2
            exit 1
        }
        own=$(accuracy "$fleet/device-$k/heldout.jsonl" "$device/alone.gguf")
        all=$(accuracy "$fleet/heldout.jsonl" "$device/alone.gguf")
        printf '%-10s %9.3f %12s %12s\n' "$k" \
            "$(sed 's/.*"epsilon": *\([0-9.e+-]*\).*/\1/' "$device/train.json")" "$(percent "$own")" "$(percent "$all")"
        echo "$own $all" >>"$dir/alone-$first/means"
    done
    awk '{ a += $1; b += $2 } END { printf "%-10s %9s %10.1f %% %10.1f %%\n", "mean", "", 100 * a / NR, 100 * b / NR }' \
        "$dir/alone-$first/means"
    rm "$dir/alone-$first/means"
}

for word in "${words[@]}"; do
    printf '\n== %s (split %s)\n' "$word" "$split"
    "measure_$word"
done
