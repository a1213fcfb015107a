#!/usr/bin/env bash
# One lifetime cap over lineages and local training: sub-caps and windows of client.yaml, a cap that
# was lowered by mistake and is raised by the device through the log, exhausted devices that are told,
# shown and left alone, a second lineage while a round of the first is open.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

client=$bin/tacit-client
spent() { # spent NAME: epsilon of the device's own account
    "$client" status --dir "$work/$1" --json | grep -o '"account":{"epsilon":[0-9.e-]*' | cut -d: -f3
}
status() { "$client" status --dir "$work/$1" --json | json "$2"; }
once() { "$client" run --dir "$work/$1" --once --patience 10; }
edit() { sed -i "s/^  $2: .*/  $2: $3/" "$work/$1/client.yaml"; } # edit DEVICE KEY VALUE
holds_lock() { readlink "/proc/$1/fd/"* 2>/dev/null | grep -q 'cart/lock$'; }
told() { [ "$(status cart "$1")" = "$2" ]; }

make_federation
start_server
for name in cart van bus; do
    make_data "$work/$name.jsonl" 1
done
enrol cart "$(token)" >/dev/null
enrol van "$(token)" >/dev/null

# Sub-caps: of every lineage by client.yaml, of one by its id. What does not fit is refused whole.
edit cart lineage_epsilon 0.01
lineage --cohort 2
expect 4 'the sub-cap of its lineage is 0.01' once cart
[ "$(status cart reserves)" = 0 ] || fail "a refused plan was reserved"
[ -n "$(status cart reason)" ] || fail "status does not say why"
expect 0 'refused .*sub-cap of its lineage' "$client" status --dir "$work/cart"
id=$(verb round list --json | json lineage)
expect 2 '32 hexadecimal digits' "$client" budget --dir "$work/cart" --lineage "${id:0:8}" --cap 1
expect 0 "lineage +$id holds 1, nothing reserved yet" \
    "$client" budget --dir "$work/cart" --lineage "$id" --cap 1
expect 4 'others hold 1 of this device.s cap 8' \
    "$client" budget --dir "$work/cart" --lineage 00000000000000000000000000000001 --cap 7.5
edit cart lineage_epsilon 0

# A window: of client.yaml, tighter than what was declared, so it needs no signature.
edit cart window_epsilon 0.02
expect 3 'client.yaml: policy: window_epsilon: expected 0 without window_reserves .*, found 0.02' once cart
edit cart window_reserves 1
expect 4 'brings 1 reserves in a row to epsilon .* window allows 0.02' once cart
edit cart window_reserves 0
edit cart window_epsilon 0

# Now it fits. While the cart waits with its round, that one is cancelled and another lineage asks:
# both are charged, the account is the log's.
start_device cart client.sealed
await_kill "${device_pid[cart]}"
unset 'device_pid[cart]'
first=$(spent cart)
[ "$(status cart refused)" = null ] || fail "the refusal is still shown"
verb round cancel >/dev/null
lineage --cohort 2
start_device cart
start_device van
until_true 60 rounds_ended 2 || fail "the second lineage does not end"
[ "$(last_round state)" = published ] || fail "the second lineage is $(last_round state)"
until_true 20 told reserves 2 || fail "the cart has not reserved twice"
same_epsilon cart
below "$first" "$(spent cart)" || fail "two lineages cost as one"
stop_device cart

# Local training draws on the same account, never beside the agent.
start_device cart
until_true 20 holds_lock "${device_pid[cart]}" || fail "the cart does not start"
expect 1 'another tacit-client' "$client" train --dir "$work/cart" --data "$work/cart.jsonl" \
    --out "$work/a.gguf" --steps 2 --q 0.25 --rank 2 --noise-multiplier 20
stop_device cart
before=$(spent cart)
"$client" train --dir "$work/cart" --data "$work/cart.jsonl" --out "$work/a.gguf" --steps 2 --q 0.25 \
    --rank 2 --noise-multiplier 20 >/dev/null 2>&1 || fail "no local training"
below "$before" "$(spent cart)" || fail "local training was free"

# Lowered by mistake to less than is spent: the device is exhausted. It is shown, not asked; a lineage
# that needs it waits.
verb budget set cart --epsilon 0.001 --reason 'a mistake' >/dev/null
start_device cart
until_true 20 told epsilon_cap 0.001 || fail "the cart does not hear of its cap"
expect 0 'fits +1 of 2 active devices; after it at most epsilon 3\.[0-9]+ in its account' \
    verb round start --steps 2 --q 0.25 --noise-multiplier 20 --pad-seconds 0 --deadline-seconds 120
until_true 20 grep -q 'the budget of 1 does not hold it' "$work/server.log" || fail "nobody says why the round waits"
for list in 'device list' 'budget show'; do
    # shellcheck disable=SC2086
    verb $list --json | grep -q '"name":"cart","state":"exhausted"' || fail "$list does not show it"
done
expect 0 'cap +lowered to 0.001 by the operator' "$client" status --dir "$work/cart"
[ "$(status cart reserves)" = 3 ] || fail "an exhausted device reserved"
stop_device cart

# The operator cannot raise it, the device can: what it signs is new, and the log has it.
expect 4 'can only lower' verb budget set cart --epsilon 8
expect 0 'epsilon .* of 8 ' "$client" budget --declare --dir "$work/cart"
[ "$(verb budget show --json | tr '{' '\n' | grep '"cart"' | json epsilon_cap)" = 8.0 ] || fail "the log has another cap"
start_device cart
until_true 60 rounds_ended 3 || fail "the round does not go on"
[ "$(last_round state) $(last_round accepted)" = "published 2" ] || fail "the round is $(last_round state)"
same_epsilon cart
stop_device cart

# Above what was declared at enrolment: refused by 'run' until it is declared.
edit cart epsilon 9
expect 4 'allows more than this device declared.*budget --declare' once cart
expect 0 'cap +8 is in force; the 9 of client.yaml is not declared yet' "$client" status --dir "$work/cart"
"$client" budget --declare --dir "$work/cart" --json >/dev/null
expect 0 'no round for this device' once cart
told epsilon_cap 9.0 || fail "the declared cap is not in force"
edit cart delta 1e-6
expect 4 'delta is 1e-05 for life' "$client" budget --declare --dir "$work/cart"
edit cart delta 1e-5

# A sub-cap is the device's own: it says that it declines, the round ends without it before its
# deadline, and it is shown and asked no more until its owner changes that.
enrol bus "$(token)" >/dev/null
edit cart lineage_epsilon 0.0001
start_device bus
start_device cart
lineage --rounds 2 --cohort 3 --quorum 2
until_true 60 rounds_ended 4 || fail "the round waits for a device that declined"
[ "$(last_round state) $(last_round accepted)" = "published 2" ] || fail "the round is $(last_round state)"
until_true 20 grep -q 'take its plan, 1 refuse it' "$work/server.log" ||
    fail "nobody says why the second round waits"
verb budget show --json | grep -q '"name":"cart","state":"declined"' || fail "budget show does not show it"
stop_device cart
edit cart lineage_epsilon 0
start_device cart
until_true 60 rounds_ended 5 || fail "the second round does not open"
[ "$(last_round state) $(last_round accepted)" = "published 3" ] || fail "the round is $(last_round state)"
for name in cart van bus; do stop_device "$name"; done
verb ledger export "$work/export" >/dev/null
"$bin/tacit-audit" verify "$work/export" --json >/dev/null || fail "the audit finds violations"
stop_server
echo "one account holds them all"
