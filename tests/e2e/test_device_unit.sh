#!/usr/bin/env bash
# Rounds of the device unit: every device trains by itself and releases the whole once. One device
# has no data at all: what it sends has the form, the size and the time of the others.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
for name in cart van empty; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
    sed -i 's/^  unit:.*/  unit: device/' "$work/$name/client.yaml"
    "$bin/tacit-client" budget --dir "$work/$name" --declare >/dev/null
done
: >"$work/empty.jsonl"

# What a round cannot be, and what is said of it.
expect 2 'local-steps: only with unit device' verb round start --local-steps 5
expect 3 'released once and whole' verb round start --unit device --steps 2

# A device that is killed within its local steps goes on with them; noise comes once, at the end.
start_device van
start_device empty
start_device cart client.mid_training
verb round start --unit device --local-steps 4 --rounds 2 --noise-multiplier 20 --clip 0.5 \
    --cohort 3 --quorum 3 --pad-seconds 3 --deadline-seconds 120 >/dev/null
await_kill "${device_pid[cart]}"
start_device cart
until_true 90 rounds_ended 2 || fail "the rounds do not end"
[ "$(last_round state) $(last_round accepted)" = "published 3" ] ||
    fail "the round ended as $(last_round state) with $(last_round accepted) updates"
for name in cart van empty; do
    [ "$(grep -c 'training step 4 of 4' "$work/$name.log")" = 2 ] || fail "$name took other steps"
    same_epsilon "$name"
done
for name in cart van; do
    grep -q 'step 4: 1 units drawn, 1 with a gradient' "$work/$name/local.log" || fail "$name: no gradient"
done
grep -q 'step 4: 0 units drawn, 0 with a gradient' "$work/empty/local.log" || fail "the empty store has a gradient"

# Sealed sizes tell noise from noise, not data from none: all within one part in a hundred.
sizes=$(sed -n 's/.*update sealed: \([0-9]*\) bytes.*/\1/p' "$work"/{cart,van,empty}.log | sort -n)
[ "$(wc -l <<<"$sizes")" = 6 ] || fail "expected six updates: $sizes"
awk 'NR == 1 { least = $1 } END { exit !($1 <= least * 1.01) }' <<<"$sizes" || fail "sizes differ: $sizes"

# Recipients see the noise of three devices but one's own: less epsilon than against the server.
views=$(verb adapter show 2 --json)
[ "$(json epsilon_rule <<<"$views")" = summed-noise ] || fail "the rule is $(json epsilon_rule <<<"$views")"
awk -v s="$(json epsilon_server <<<"$views")" -v p="$(json epsilon_published <<<"$views")" \
    'BEGIN { exit !(p > 0.5 * s && p < 0.8 * s) }' || fail "the two epsilons: $views"
[ "$(verb device show cart --json | json epsilon)" = "$(json epsilon_server <<<"$views")" ] ||
    fail "the cart's account is not the server's view"
receipts=()
for file in "$work"/{cart,van,empty}/receipts/*.receipt; do receipts+=(--receipt "$file"); done
verb ledger export "$work/export" >/dev/null
expect 0 'published [0-9.]+ at delta 1e-05 .summed-noise' "$bin/tacit-audit" verify "$work/export" "${receipts[@]}"
expect 0 'violations: 0' "$bin/tacit-audit" verify "$work/export" "${receipts[@]}"

# Alone, without the server: the same release, charged to the same account.
stop_device cart
expect 0 '3 steps, noise multiplier 30' "$bin/tacit-client" train --dir "$work/cart" \
    --data "$work/cart.jsonl" --out "$work/own.gguf" --unit device --steps 3 --noise-multiplier 30
"$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/own.gguf" --data "$work/gate.jsonl" --json >/dev/null
expect 3 'released once and whole' "$bin/tacit-client" train --dir "$work/cart" \
    --data "$work/cart.jsonl" --out "$work/own.gguf" --unit device --q 0.5

# A device takes plans of its own unit alone, and keeps its unit for life.
lineage --cohort 2 --target 2 --deadline-seconds 8
until_true 60 grep -q 'the next round asks for 2 devices; 0 are active and take its plan, 3 refuse it' "$work/server.log" ||
    fail "a plan of subjects is not refused by three devices of the device unit"
verb round cancel >/dev/null
for name in van empty; do stop_device "$name"; done
sed -i 's/^  unit:.*/  unit: subject/' "$work/van/client.yaml"
expect 4 "the account's unit is device for life, the policy says subject" "$bin/tacit-client" budget --dir "$work/van" --declare
stop_server
echo "whole devices hold"
