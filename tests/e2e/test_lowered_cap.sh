#!/usr/bin/env bash
# An operator lowers a device's cap after the device signed a reserve and before the log has it. The
# log takes the entry and charges it, the round goes on without the device, and the device takes part
# in the next lineage that fits; for what does not fit it is not asked.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

status() { "$bin/tacit-client" status --dir "$work/$1" --json | json "$2"; }
told() { [ "$(status cart "$1")" = "$2" ]; } # told KEY VALUE: what the cart's status says
van_knows() { [ "$(status van epsilon_cap)" = "$1" ]; }
audit() {
    rm -rf "$work/export"
    verb ledger export "$work/export" >/dev/null
    "$bin/tacit-audit" verify "$work/export" --json || fail "the audit finds violations"
}
expect_round() { # expect_round STATE ACCEPTED
    [ "$(last_round state) $(last_round accepted)" = "$1 $2" ] ||
        fail "the round ended as $(last_round state) with $(last_round accepted) updates"
}

make_federation
start_server
for name in cart van bus; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
done
start_device van
start_device bus

# The cart signs its reserve and is cut off before anybody hears of it.
start_device cart client.reserved_locally
lineage --cohort 3
await_kill "${device_pid[cart]}"
[ "$(status cart reserves)" = 1 ] || fail "the cart has not reserved"
expect 0 'epsilon_cap' verb budget set cart --epsilon 5 --reason 'a test' --json
expect 4 'can only lower' verb budget set cart --epsilon 8

# The server is killed with the entry in the log and the answer unsent; the cart asks again.
stop_server
serve_until server.reserve_logged
start_device cart
await_kill "$server_pid"
start_server
until_true 60 rounds_ended 1 || fail "the round waits for the cart"
expect_round published 2
until_true 30 told abandons 1 || fail "the cart holds on to its round"
until_true 30 told epsilon_cap 5.0 || fail "the cart does not hear of its cap"
[ "$(status cart epsilon_cap_own)" = 8.0 ] || fail "the owner's cap is $(status cart epsilon_cap_own)"
same_epsilon cart
expect 0 'cap +lowered to 5 by the operator; the owner.s in client.yaml is 8' \
    "$bin/tacit-client" status --dir "$work/cart"

# The next lineage fits: it needs all three.
lineage --cohort 3 --quorum 3
until_true 60 rounds_ended 2 || fail "the second round does not end"
expect_round published 3
same_epsilon cart

# Nothing was accepted under the first reserve; the log says what happened and nobody is to blame.
report=$(audit)
grep -q '"notes":\[{"kind":"outdated_reserve"' <<<"$report" || fail "no note in the report: $report"
[ "$(grep -o '"kind":' <<<"$report" | wc -l)" = 1 ] || fail "more than one finding: $report"
[ "$(grep -o '"reserves":2,"spends":1,"accepted":1' <<<"$report" | wc -l)" = 1 ] ||
    fail "expected one device with two reserves and one update: $report"

# Lowered below what is spent, over a restart of the device: it is left alone, the others go on.
verb budget set cart --epsilon 0.001 >/dev/null
until_true 30 told epsilon_cap 0.001 || fail "the cart does not hear of its cap"
stop_device cart
start_device cart
[ "$(verb device show cart --json | json state)" = exhausted ] || fail "the cart is not shown as exhausted"
lineage
until_true 60 rounds_ended 3 || fail "the third round does not end"
expect_round published 2
[ "$(last_round asked)" = 2 ] || fail "$(last_round asked) devices were asked"
[ "$(status cart reserves)" = 2 ] || fail "the cart reserved beyond its cap"
same_epsilon cart
audit >/dev/null
for name in cart van bus; do stop_device "$name"; done

# Training alone tells the cap that is in force, and spends nothing on a result that has no place.
verb budget set van --epsilon 7 >/dev/null
start_device van
until_true 30 van_knows 7.0 || fail "the van does not hear of its cap"
stop_device van
before=$(status van epsilon)
alone() { "$bin/tacit-client" train --dir "$work/van" --data "$work/van.jsonl" --steps 2 --q 0.25 --rank 2 --noise-multiplier 20 "$@"; }
expect 1 'none/a.gguf: cannot create' alone --out "$work/none/a.gguf"
expect 2 'van.jsonl, which is read; name another file' alone --out "$work/van.jsonl"
[ "$(status van epsilon)" = "$before" ] || fail "epsilon was spent on a result that has no place"
expect 0 'epsilon of the account now [0-9.]+ of 7$' alone --out "$work/a.gguf"
stop_server
echo "a lowered cap holds up nobody"
