#!/usr/bin/env bash
# A real fleet on a real model: one server and two devices fine-tune SmolLM2-135M-Instruct for two rounds
# under differential privacy on the NAME lines of manual pages, each device with packages of its own,
# one package being one subject. The loss on packages that neither has must fall; the exported log must
# verify with the devices' receipts.
#
# usage: check_fleet.sh MODEL.gguf DATA DIR      DATA as manual_pages.py writes it; DIR is made anew
#        TACIT_BIN names the folder of the programs
set -euo pipefail
model=$(realpath "$1") data=$(realpath "$2") dir=$3
# shellcheck source=tests/e2e/federation_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/federation_lib.sh"
trap fed_stop EXIT
rm -rf "$dir"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

rounds=2 steps=6 q=0.12 noise=0.7244 clip=1 divisor=8 rate=0.02 rank=1 targets=attn_v
passed=0 failed=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $what"; fi
}
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

# loss_of NAME [ADAPTER]: the held-out loss. One token of each answer is decoded: only the loss counts.
loss_of() {
    local name=$1 options=()
    [ $# -gt 1 ] && options=(--adapter "$2")
    "$TACIT_BIN/tacit" eval -m "$model" "${options[@]}" --data "$data/heldout.jsonl" -n 1 --json \
        >"$dir/eval-$name.json" 2>"$dir/eval-$name.log" || fed_fail "evaluation failed: $(tail -1 "$dir/eval-$name.log")"
    fed_json "$dir/eval-$name.json" loss
}

# status_kib PID KEY: a value of /proc/PID/status, 0 where the process is gone.
status_kib() {
    local key value
    while read -r key value _; do
        [ "$key" = "$2:" ] && echo "$value" && return
    done 2>/dev/null <"/proc/$1/status" || true
    echo 0
}

# watch_memory PID...: keeps the largest RssAnon seen of each in DIR/anonymous-PID. The kernel knows the
# peak of the whole resident set alone, most of which are pages of the model file.
watch_memory() {
    local pid kib
    local -A largest=()
    while sleep 0.3; do
        for pid in "$@"; do
            kib=$(status_kib "$pid" RssAnon)
            [ "$kib" -le "${largest[$pid]:-0}" ] && continue
            largest[$pid]=$kib
            echo "$kib" >"$dir/anonymous-$pid"
        done
    done
}

print_memory() {
    local i pid
    for i in 0 1 2; do
        pid=${fed_pids[$i]}
        echo "peak resident set of $([ "$i" = 0 ] && echo "the server" || echo "client $i"):" \
            "$(($(status_kib "$pid" VmHWM) / 1024)) MiB, of it anonymous (sampled)" \
            "$(($(cat "$dir/anonymous-$pid" 2>/dev/null || echo 0) / 1024)) MiB"
    done
}

policy="  epsilon: 8
  delta: 1e-5
  unit: subject
  minimum_noise_multiplier: 0.5
  minimum_cohort: 2
  minimum_quorum: 2
  minimum_pad_seconds: 0
  allow_non_private: false"
started=$(date +%s)
before=$(loss_of base)
fed_say "held-out loss of the base: $before"
fed_server "$dir/server" "$model" "" "$data/gate.jsonl"
for k in 1 2; do
    fed_enrol "$dir/server" "$dir/device-$k" "device-$k" "$model" "" "$data/device-$k.jsonl" "$policy"
    fed_client "$dir/device-$k"
done
watch_memory "${fed_pids[@]}" &
fed_pids+=($!)
"$TACIT_BIN/tacit-server" round start --dir "$dir/server" --rounds "$rounds" --steps "$steps" --q "$q" \
    --noise-multiplier "$noise" --clip "$clip" --divisor "$divisor" --unit subject --unit-examples 1 \
    --learning-rate "$rate" --optimizer adam --rank "$rank" --alpha "$((2 * rank))" \
    --targets "$targets" --delta 1e-5 --cohort 2 --quorum 2 --deadline-seconds 7200 --pad-seconds 0 \
    --max-tokens 96 --json >"$dir/lineage.json"
"$TACIT_BIN/tacit-server" watch --dir "$dir/server" --until-done >&2
for k in 1 2; do
    fed_wait_for 60 fed_active "$dir/device-$k" "$rounds" ||
        fed_fail "device-$k did not activate version $rounds: $(tail -1 "$dir/device-$k/client.log")"
done
print_memory
"$TACIT_BIN/tacit-server" budget show --dir "$dir/server" --json >"$dir/budget.json"
"$TACIT_BIN/tacit-server" ledger export "$dir/export" --dir "$dir/server" --json >/dev/null
fed_stop

adapter=$dir/device-1/adapters/$(fed_json "$dir/device-1/adapters/active.json" file)
after=$(loss_of federated "$adapter")
receipts=()
for file in "$dir"/device-*/receipts/*.receipt; do receipts+=(--receipt "$file"); done
epsilon=$(grep -o '"epsilon":[0-9.e+-]*' "$dir/budget.json" | cut -d: -f2 | sort -g | tail -1)
echo "held-out loss: base $before, after $rounds rounds $after; epsilon $epsilon at delta 1e-5, unit subject; $(($(date +%s) - started)) s"
check "the held-out loss did not fall" less "$after" "$before"
check "epsilon $epsilon is above the cap" less "$epsilon" 8.0000001
check "the devices activated different adapters" cmp -s "$adapter" \
    "$dir/device-2/adapters/$(fed_json "$dir/device-2/adapters/active.json" file)"
check "there are no receipts" test ${#receipts[@]} -gt 0
check "the audit found violations, see $dir/audit.txt" \
    "$TACIT_BIN/tacit-audit" verify "$dir/export" "${receipts[@]}" >"$dir/audit.txt"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
