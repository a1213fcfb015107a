#!/usr/bin/env bash
# The main job, end to end: one server and a fleet of devices, half vehicles and half carts, each
# with pictures of its own, fine-tune one multimodal model under differential privacy; then the same
# federation without noise beside it; then held-out accuracy and the audit of the log.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export TACIT_BIN=${TACIT_BIN:-$root/build/bin}
# shellcheck source=tests/e2e/federation_lib.sh
source "$here/federation_lib.sh"

dir=$root/build/demo json=no seed=1 devices=8 split=F only=both shuffle=()
rounds=5 steps=20 q=0.12 noise=1.11 clip=4 divisor=72 rate=0.05 rank=8 alpha=8
targets=ffn_down pad=20 optimizer=adam nano=$root/tests/nano print=no margin=
usage() {
    cat <<'TEXT'
usage: ./run demo [options]

  --dir DIR      keeps everything there (default build/demo; made anew)
  --seed S       of the fleet's pictures (1)
  --json         one JSON object as the last line of standard output

for measurements:
  --split H|F --devices N --rounds N --steps N --q Q --noise-multiplier Z --clip C --divisor D
  --learning-rate R --rank R --alpha A --targets A,B --optimizer adam|sgd --only dp|plain
  --shuffle-pictures --nano DIR --pad-seconds S
  --print-local-options   the same training as options of 'tacit-client train', one a line
TEXT
}
while [ $# -gt 0 ]; do
    case $1 in
    --dir) dir=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --json) json=yes ;;
    --split) split=$2 && shift ;;
    --devices) devices=$2 && shift ;;
    --rounds) rounds=$2 && shift ;;
    --steps) steps=$2 && shift ;;
    --q) q=$2 && shift ;;
    --noise-multiplier) noise=$2 && shift ;;
    --clip) clip=$2 && shift ;;
    --divisor) divisor=$2 && shift ;;
    --learning-rate) rate=$2 && shift ;;
    --rank) rank=$2 && shift ;;
    --alpha) alpha=$2 && shift ;;
    --targets) targets=$2 && shift ;;
    --optimizer) optimizer=$2 && shift ;;
    --pad-seconds) pad=$2 && shift ;;
    --only) only=$2 && shift ;;
    --nano) nano=$2 && shift ;;
    # The control asks what the adapter learned; the gate would publish none of it.
    --shuffle-pictures) shuffle=(--shuffle-pictures) margin=1 ;;
    --print-local-options) print=yes ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

if [ "$print" = yes ]; then
    printf '%s\n' --steps $((rounds * steps)) --q "$q" --noise-multiplier "$noise" --clip "$clip" \
        --divisor "$divisor" --unit record --unit-examples 1 --learning-rate "$rate" \
        --optimizer "$optimizer" --rank "$rank" --alpha "$alpha" --targets "$targets" \
        --delta 1e-5 --max-tokens 128
    exit 0
fi

model=$nano/nano.gguf mmproj=$nano/mmproj-nano.gguf
started=$(date +%s)
trap fed_stop EXIT
rm -rf "$dir"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# evaluate NAME [ADAPTER]: exact match on the held-out records of all devices.
evaluate() {
    local name=$1 options=()
    [ $# -gt 1 ] && options=(--adapter "$2")
    "$TACIT_BIN/tacit" eval -m "$model" --mmproj "$mmproj" "${options[@]}" \
        --data "$dir/fleet/heldout.jsonl" --json >"$dir/eval-$name.json" 2>"$dir/eval-$name.log" ||
        fed_fail "evaluation of $name failed: $(tail -1 "$dir/eval-$name.log")"
}

# federate NAME ALLOW_NON_PRIVATE PAD_SECONDS MECHANISM OPTIONS...: a whole federation in DIR/NAME,
# from tokens to the adapter that every device has activated.
federate() {
    local name=$1 allow=$2 pad=$3 k kind policy version
    shift 3
    fed_server "$dir/$name/server" "$model" "$mmproj" "$dir/fleet/gate.jsonl" $margin
    policy="  epsilon: 8
  delta: 1e-5
  unit: record
  minimum_noise_multiplier: $([ "$allow" = true ] && echo 0 || echo 0.5)
  minimum_cohort: $devices
  minimum_quorum: 2
  minimum_pad_seconds: $pad
  allow_non_private: $allow"
    for k in $(seq 1 "$devices"); do
        kind=$([ "$k" -le $((devices / 2)) ] && echo vehicle || echo cart)
        fed_enrol "$dir/$name/server" "$dir/$name/device-$k" "$kind-$k" "$model" "$mmproj" \
            "$dir/fleet/device-$k/data.jsonl" "$policy"
        fed_client "$dir/$name/device-$k"
    done
    fed_say "$name: $devices devices are enrolled; $rounds rounds of $steps steps, uploads $pad s after the reserve or later"
    "$TACIT_BIN/tacit-server" round start --dir "$dir/$name/server" --rounds "$rounds" \
        --steps "$steps" --q "$q" --divisor "$divisor" --unit record --unit-examples 1 \
        --learning-rate "$rate" --optimizer "$optimizer" --rank "$rank" --alpha "$alpha" \
        --targets "$targets" --delta 1e-5 --cohort "$devices" --quorum $(((devices * 6 + 9) / 10)) \
        --deadline-seconds 600 --pad-seconds "$pad" --max-tokens 128 "$@" --json \
        >"$dir/$name/lineage.json"
    "$TACIT_BIN/tacit-server" watch --dir "$dir/$name/server" --until-done >&2
    "$TACIT_BIN/tacit-server" adapter list --dir "$dir/$name/server" --json >"$dir/$name/adapters.json"
    # A round that fails the server's gate publishes nothing, so versions may be fewer than rounds.
    version=$(grep -o '"version":[0-9]*' "$dir/$name/adapters.json" | cut -d: -f2 | sort -n | tail -1 || true)
    [ -n "$version" ] || fed_fail "$name: no round was published"
    for k in $(seq 1 "$devices"); do
        fed_wait_for 60 fed_active "$dir/$name/device-$k" "$version" ||
            fed_fail "$name: device-$k did not activate version $version: $(tail -1 "$dir/$name/device-$k/client.log")"
    done
    "$TACIT_BIN/tacit-server" budget show --dir "$dir/$name/server" --json >"$dir/$name/budget.json"
    "$TACIT_BIN/tacit-server" ledger export "$dir/$name/export" --dir "$dir/$name/server" --json >/dev/null
    fed_stop
}

# adapter_of NAME: the file that the devices activated last.
adapter_of() {
    local file
    file=$(fed_json "$dir/$1/device-1/adapters/active.json" file)
    echo "$dir/$1/device-1/adapters/$file"
}

# largest epsilon of the devices in a list of objects
epsilon_max() { grep -o '"epsilon":[0-9.e+-]*' "$1" | cut -d: -f2 | sort -g | tail -1; }

percent() { awk -v x="$1" 'BEGIN { printf "%.1f %%", 100 * x }'; }

# outcome NAME ACCURACY TEXT: one line about what was evaluated.
outcome() { fed_say "$1: $(percent "$2") of held-out answers are exact$3"; }

fed_say "drawing the pictures of $devices devices (split $split, seed $seed)"
"$TACIT_BIN/tacit-scenes" fleet --split "$split" --seed "$seed" --devices "$devices" \
    --heldout 96 "${shuffle[@]}" --out "$dir/fleet" >/dev/null
evaluate base
base=$(fed_json "$dir/eval-base.json" accuracy)
outcome "base model" "$base" ""

dp="" dp_epsilon=null plain="" audit=skipped
if [ "$only" != plain ]; then
    fed_say "dp: a federation under differential privacy; a device that reserved has spent the round's epsilon, an accepted update is in the sum"
    federate dp false "$pad" --noise-multiplier "$noise" --clip "$clip"
    evaluate dp "$(adapter_of dp)"
    dp=$(fed_json "$dir/eval-dp.json" accuracy)
    dp_epsilon=$(epsilon_max "$dir/dp/budget.json")
    rm -rf "$dir/export"
    cp -r "$dir/dp/export" "$dir/export"
    receipts=()
    for file in "$dir"/dp/device-*/receipts/*.receipt; do receipts+=(--receipt "$file"); done
    "$TACIT_BIN/tacit-audit" verify "$dir/export" "${receipts[@]}" >"$dir/audit.txt" ||
        fed_fail "the audit found violations; see $dir/audit.txt"
    audit=ok
    outcome dp "$dp" ", largest epsilon $(printf %.3f "$dp_epsilon"); audit of the log with $((${#receipts[@]} / 2)) receipts: ok"
fi
if [ "$only" != dp ]; then
    fed_say "plain: the same federation without clipping and noise, epsilon infinite"
    federate plain true 0 --mechanism none
    evaluate plain "$(adapter_of plain)"
    plain=$(fed_json "$dir/eval-plain.json" accuracy)
    outcome plain "$plain" ""
fi
seconds=$(($(date +%s) - started))

table() {
    echo
    printf '%-34s %14s %12s\n' "held-out answers, all devices" "exact match" "epsilon"
    printf '%-34s %14s %12s\n' "base model" "$(percent "$base")" "0"
    [ -n "$dp" ] && printf '%-34s %14s %12.3f\n' "federated, differentially private" "$(percent "$dp")" "$dp_epsilon"
    [ -n "$plain" ] && printf '%-34s %14s %12s\n' "federated, no noise" "$(percent "$plain")" "infinite"
    echo
    echo "delta 1e-5, one scene is one record; $devices devices, $rounds rounds of $steps steps; audit: $audit; $seconds s"
    echo "everything is in $dir"
}
if [ "$json" = yes ]; then table >&2; else table; fi
[ "$json" = yes ] && printf '{"clients":%d,"rounds":%d,"base":{"accuracy":%s},"federated_dp":{"accuracy":%s,"epsilon_max":%s,"delta":1e-5},"federated_plain":{"accuracy":%s},"audit":"%s","seconds":%d}\n' \
    "$devices" "$rounds" "$base" "${dp:-null}" "$dp_epsilon" "${plain:-null}" "$audit" "$seconds"
exit 0
