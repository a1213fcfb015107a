#!/usr/bin/env bash
# A clip norm that adapts, from the operator's command line over devices' training to the auditor's
# report; and in training without a server, killed and resumed.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
start_pair
client=$bin/tacit-client

# What is asked for by halves, or of no clip norm, is refused before anything is logged.
expect 2 'give quantile with them' lineage --clip-max 2
expect 2 'give quantile with them' lineage --quantile-noise 50
expect 2 'quantile: .*0.999' lineage --quantile 1
expect 2 'mechanism none does not clip' lineage --quantile 0.5 --mechanism none
expect 3 'expected more than the step.s 20, found 1' lineage --quantile 0.5 --quantile-noise 1
expect 3 'clip_max: expected a number from 1 ' lineage --quantile 0.5 --clip-max 0.5

# Two rounds whose clip norm starts far above what gradients measure.
lineage --rounds 2 --quantile 0.5 --clip 100 --clip-min 0.01 --clip-rate 2 --divisor 2
until_true 60 rounds_ended 2 || fail "the rounds do not end"
[ "$(last_round state)" = published ] || fail "the last round is $(last_round state): $(last_round reason)"
stop_device cart
stop_device van
same_epsilon cart
grep -q 'clip 100 that adapts' "$work/cart.log" || fail "the device does not say that its clip adapts"
grep -q 'clip 100$' "$work/cart/local.log" || fail "the first step was not clipped to 100"
grep -E 'step 2: ' "$work/cart/local.log" | grep -qv 'clip 100$' || fail "the clip did not move"

# The auditor reads both Gaussians, and recomputes the account from their sum.
verb ledger export "$work/export" >/dev/null
expect 0 'violations: 0' "$bin/tacit-audit" verify "$work/export"
expect 0 'adapts to the 0.5 quantile of gradient norms, within 0.01 and 1000; sigma is of gradients \(20.10' \
    "$bin/tacit-audit" verify "$work/export"
expect 0 '"sigma":20.000[0-9]*,.*"quantile_target":0.5,"sigma_gradients":20.10[0-9]*,"sigma_count":200.0' \
    "$bin/tacit-audit" verify "$work/export" --json
stop_server

# Alone: the noise asked for is that of a step as a whole, so the epsilon is what a fixed clip costs.
make_data "$work/own.jsonl" 1
train() {
    "$client" train --dir "$work/alone" --model "$work/text.gguf" --data "$work/own.jsonl" --out "$work/a.gguf" \
        --steps 4 --q 0.25 --rank 2 --json "$@"
}
adapt=(--quantile 0.5 --clip 50 --clip-min 0.01 --clip-rate 1 --divisor 20)
expect 2 'give quantile with them' train --clip-rate 0.1
expect 2 'mechanism none does not clip' train --quantile 0.5 --mechanism none
expect 3 'expected more than the step.s' train --epsilon 1 --quantile 0.5 --quantile-noise 0.5
TACIT_KILL_AT=client.mid_training:2 train --epsilon 2 "${adapt[@]}" >/dev/null 2>&1 && fail "it was not killed"
expect 0 'continuing' train --epsilon 2
mapfile -t clips < <(sed -n 's/.*step [0-9]*: .*clip //p' "$work/alone/local.log" | tail -4)
[ "${clips[0]}" = 50 ] || fail "the first step was clipped to ${clips[0]}"
[ "$(printf '%s\n' "${clips[@]}" | sort -u | wc -l)" = 4 ] || fail "the clip does not move: ${clips[*]}"
epsilon=$("$client" status --dir "$work/alone" --json | json epsilon)
awk "BEGIN { exit !($epsilon > 1.99 && $epsilon <= 2) }" || fail "the epsilon of 2 became $epsilon"
"$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/a.gguf" --data "$work/own.jsonl" --json >/dev/null ||
    fail "the adapter does not load"
echo "the clip adapts and is paid for"
