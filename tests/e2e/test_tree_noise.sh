#!/usr/bin/env bash
# Rounds with noise that is correlated over their steps: a device that is killed in the middle goes on
# with the same tree, and log, account and audit agree on what it costs.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
for name in cart van; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
done
expect 2 'separation' verb round start --separation 3
expect 3 'one clip norm' verb round start --mechanism tree --quantile 0.5
start_device van
start_device cart client.mid_training
verb round start --mechanism tree --steps 6 --separation 3 --rounds 2 --noise-multiplier 30 \
    --optimizer sgd --cohort 2 --quorum 2 --pad-seconds 0 --deadline-seconds 120 >/dev/null
await_kill "${device_pid[cart]}"
start_device cart
until_true 90 rounds_ended 2 || fail "the rounds do not end"
[ "$(last_round state) $(last_round accepted)" = "published 2" ] ||
    fail "the round ended as $(last_round state) with $(last_round accepted) updates"
for name in cart van; do
    same_epsilon "$name"
    # Six subjects, each in two of the six steps, three apart, in each of two rounds.
    drawn=$(sed -n 's/.*step [0-9]*: \([0-9]*\) units drawn.*/\1/p' "$work/$name/local.log" | tail -6 |
        awk "{ n += \$1 } END { print n }")
    [ "$drawn" = 12 ] || fail "$name: units entered $drawn times"
done

# Alone, under the same account.
stop_device cart
expect 0 '"epsilon_cap":8' "$bin/tacit-client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/own.gguf" --mechanism tree --steps 16 --epsilon 2 --optimizer sgd --json
"$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/own.gguf" --data "$work/gate.jsonl" --json >/dev/null
expect 2 'separation: only with' "$bin/tacit-client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/own.gguf" --separation 4
expect 2 'samples nothing' "$bin/tacit-client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/own.gguf" --mechanism tree --q 0.5
expect 3 'one clip norm' "$bin/tacit-client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/own.gguf" --mechanism tree --steps 4 --quantile 0.5
expect 2 'canaries: tree noise' "$bin/tacit-client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/own.gguf" --mechanism tree --steps 4 --canaries 4 --scores "$work/scores"
expect 3 'protects records' "$bin/tacit-client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/own.gguf" --mechanism tree --unit device --steps 4

receipts=()
for file in "$work"/{cart,van}/receipts/*.receipt; do receipts+=(--receipt "$file"); done
verb ledger export "$work/export" >/dev/null
expect 0 'violations: 0' "$bin/tacit-audit" verify "$work/export" "${receipts[@]}"
expect 0 '"minimum_separation": *3' "$bin/tacit-audit" verify "$work/export" --json
expect 0 'a unit enters one step in 3, and steps share noise' "$bin/tacit-audit" verify "$work/export"
stop_device van
stop_server
echo "tree noise holds"
