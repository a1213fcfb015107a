#!/usr/bin/env bash
# A policy key: made by an officer away from the server, pinned by devices as they enrol, and the way
# in which a cap is raised without anybody at the device. What it signed travels through the server
# or by hand, counts for one device and once, and is in the log before what was reserved under it.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

client=$bin/tacit-client
audit=$bin/tacit-audit
status() { "$client" status --dir "$work/$1" --json | json "$2"; }
told() { [ "$(status cart "$1")" = "$2" ]; }
policy() { # policy FILE SED...: the default policy of client.yaml, changed
    sed -n '/^policy:/,$p' "$work/cart/client.yaml" | sed '/^server:/d; /^enrol:/d' >"$1"
    shift
    sed -i "$@" "$work/policy.yaml"
}
sign() { # sign OUT CAP SERIAL [OPTIONS...]: for the cart, by the officer
    policy "$work/policy.yaml" -e "s/^  epsilon: .*/  epsilon: $2/"
    "$client" policy sign --key "$work/officer.key" --policy "$work/policy.yaml" \
        --device "$(status cart device_key)" --who 'Dr. Ada' --reason 'a longer study' \
        --out "$work/$1" --serial "$3" "${@:4}" >/dev/null
}
alter() { # alter FILE TEXT TEXT: a copy in altered.signed, of the same length
    sed "s/$2/$3/" "$work/$1" >"$work/altered.signed"
    ! cmp -s "$work/$1" "$work/altered.signed" || fail "nothing was altered"
}
take() { "$client" budget --dir "$work/$1" --signed "$work/$2"; }

# The officer makes a key; it is for nobody else to read, and is not made twice.
officer=$("$client" policy key "$work/officer.key")
[ "$(stat -c %a "$work/officer.key")" = 600 ] || fail "others may read the officer's key"
expect 1 'officer.key' "$client" policy key "$work/officer.key"
[ "$("$client" policy key --public "$work/officer.key")" = "$officer" ] || fail "it has another public half"
"$client" policy key "$work/stranger.key" >"$work/stranger.pub"

# Two devices pin it, by its text and by a file. What is no key costs no token.
make_federation
start_server
for name in cart van bus; do make_data "$work/$name.jsonl" 1; done
pin() { # pin NAME TOKEN KEY
    "$client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$2" --dir "$work/$1" --name "$1" \
        --model "$work/text.gguf" --data "$work/$1.jsonl" --policy-key "$3" || return
    sed -i 's/^  minimum_pad_seconds:.*/  minimum_pad_seconds: 0/' "$work/$1/client.yaml"
}
ticket=$(token)
expect 3 'check value' pin cart "$ticket" "${officer%?}$(tr 0-9a-f 1-9a-f0 <<<"${officer: -1}")"
expect 3 'no public policy key' pin cart "$ticket" "$work/officer.key"
pin cart "$ticket" "$officer" >/dev/null
echo "$officer" >"$work/officer.pub"
pin van "$(token)" "$work/officer.pub" >/dev/null
told policy_key "$officer" || fail "status does not show the pinned key"
expect 0 "policy key +$officer" "$client" status --dir "$work/van"
[ "$(verb device show cart --json | json device_key)" = "$(status cart device_key)" ] || fail "two device keys"

# A signed policy is not written over the key that signs it.
cp "$work/officer.key" "$work/kept.key"
expect 2 'officer.key, which is read; name another file' "$client" policy sign --key "$work/officer.key" \
    --policy "$work/cart/client.yaml" --device "$(status cart device_key)" --who 'Dr. Ada' --reason 'a slip' \
    --out "$work/officer.key"
cmp "$work/officer.key" "$work/kept.key" || fail "the officer's key was written over"

# The operator lowers the cart's cap to nothing: a lineage that needs it waits.
verb budget set cart --epsilon 0.001 --reason 'by mistake' >/dev/null
start_device cart
start_device van
until_true 20 told epsilon_cap 0.001 || fail "the cart does not hear of its cap"
lineage --cohort 2 --target 2
until_true 20 grep -q 'the budget of 1 does not hold it' "$work/server.log" || fail "the lineage does not wait"

# The officer raises it. The operator takes the file to the log; what he can make of it himself is
# nothing: another key, another word, another delta.
sign raise.signed 9 5
expect 0 'who +Dr. Ada' "$client" policy show "$work/raise.signed" --policy-key "$officer"
expect 6 'not signed by this policy key' "$client" policy show "$work/raise.signed" --policy-key "$(cat "$work/stranger.pub")"
cp "$work/officer.key" "$work/kept.key"
cp "$work/stranger.key" "$work/officer.key"
sign stranger.signed 9 6
sign lower.signed 0.0001 6
cp "$work/kept.key" "$work/officer.key"
expect 4 'must be signed by the device or, for this device, by its policy key' verb budget apply "$work/stranger.signed"
expect 4 'not signed by the policy key that cart pinned' verb budget apply "$work/lower.signed"
alter raise.signed 'a longer study' 'a greater need'
expect 4 'must be signed' verb budget apply "$work/altered.signed"
policy "$work/policy.yaml" -e 's/^  delta: .*/  delta: 1e-6/'
"$client" policy sign --key "$work/officer.key" --policy "$work/policy.yaml" --device "$(status cart device_key)" \
    --who 'Dr. Ada' --reason 'a test' --out "$work/delta.signed" >/dev/null
expect 4 'delta cannot change' verb budget apply "$work/delta.signed"
expect 3 'expected|malformed' verb budget apply "$work/officer.pub"
told epsilon_cap 0.001 || fail "a refused policy is in force"
(cd "$work" && expect 0 'serial +5' verb budget apply raise.signed)
until_true 20 told epsilon_cap 9.0 || fail "the cart does not take the policy"
until_true 60 rounds_ended 1 || fail "the lineage goes on waiting"
[ "$(last_round state) $(last_round accepted)" = "published 2" ] || fail "the round is $(last_round state)"
same_epsilon cart

# Once: the same file changes nothing, an older one is refused, whatever it allows.
verb budget set cart --epsilon 2 >/dev/null
until_true 20 told epsilon_cap 2.0 || fail "the cart does not hear of its cap"
expect 0 'entry' verb budget apply "$work/raise.signed"
[ "$(verb device show cart --json | json epsilon_cap)" = 2.0 ] || fail "an old policy was taken again"
sign older.signed 20 4
expect 4 'signed serial 4, the log has its serial 5' verb budget apply "$work/older.signed"
stop_device cart
stop_device van

# A device that pinned none takes nothing of the kind, from nobody.
enrol bus "$(token)" >/dev/null
expect 0 'policy key +none was pinned' "$client" status --dir "$work/bus"
policy "$work/policy.yaml" -e 's/^  epsilon: .*/  epsilon: 9/'
"$client" policy sign --key "$work/officer.key" --policy "$work/policy.yaml" --device "$(status bus device_key)" \
    --who 'Dr. Ada' --reason 'a test' --out "$work/bus.signed" >/dev/null
expect 4 'must be signed by the device' verb budget apply "$work/bus.signed"

# By hand, with no server at hand: in force at once, in the log at the next contact.
stop_server
expect 4 'serial is 4, this device has taken serial 5' take cart older.signed
sign hand.signed 12 6
expect 4 'for another device' take van hand.signed
expect 4 'pinned no policy key' take bus bus.signed
expect 4 'not signed by the policy key' take cart stranger.signed
alter hand.signed 'Dr. Ada' 'Dr. Bob'
expect 4 'was altered' take cart altered.signed
policy "$work/policy.yaml" -e 's/^  unit: .*/  unit: device/'
"$client" policy sign --key "$work/officer.key" --policy "$work/policy.yaml" --device "$(status cart device_key)" \
    --who 'Dr. Ada' --reason 'a test' --out "$work/unit.signed" >/dev/null
expect 4 'unit is subject for life' take cart unit.signed
expect 4 'delta is 1e-05 for life' take cart delta.signed
told epsilon_cap 2.0 || fail "a refused policy is in force"
expect 0 'epsilon .* of 12 ' take cart hand.signed
expect 0 'serial 6: .*not in the log yet' "$client" status --dir "$work/cart"
"$client" train --dir "$work/cart" --data "$work/cart.jsonl" --out "$work/a.gguf" --steps 2 --q 0.25 \
    --rank 2 --noise-multiplier 20 >/dev/null 2>&1 || fail "no local training"
start_server
expect 0 '' "$client" run --dir "$work/cart" --once --patience 10
told logged true || fail "the policy is not in the log"
told epsilon_cap 12.0 || fail "the cart lost its policy"
[ "$(verb device show cart --json | json epsilon_cap)" = 12.0 ] || fail "the log has another cap"
same_epsilon cart

# The owner's client.yaml, edited since, has its place again.
sed -i 's/^  epsilon: .*/  epsilon: 3/' "$work/cart/client.yaml"
expect 0 '' "$client" run --dir "$work/cart" --once --patience 10
told epsilon_cap 3.0 || fail "client.yaml counts for nothing"
expect 0 'client.yaml, changed or declared since' "$client" status --dir "$work/cart"

# What the operator brought to the log before the owner's newest declaration does not undo that one,
# whenever the device hears of it; what he brings after it does.
sign held.signed 30 7
expect 0 'serial +7' verb budget apply "$work/held.signed"
sed -i -e 's/^  minimum_noise_multiplier:.*/  minimum_noise_multiplier: 7.5/' "$work/cart/client.yaml"
expect 0 'epsilon .* of 3 ' "$client" budget --declare --dir "$work/cart"
expect 0 'serial 7 was logged before this device declared its own' "$client" run --dir "$work/cart" --once --patience 10
expect 0 'serial 7: .*client.yaml, changed or declared since' "$client" status --dir "$work/cart"
told epsilon_cap 3.0 || fail "a policy of before the declaration is in force"
sign last.signed 11 8
expect 0 'serial +8' verb budget apply "$work/last.signed"
expect 0 '' "$client" run --dir "$work/cart" --once --patience 10
told epsilon_cap 11.0 || fail "a policy of after the declaration is not in force"

# The auditor, with the log's key from a device, finds all of it in order, and a word that is not.
verb ledger export "$work/export" >/dev/null
"$audit" verify "$work/export" --log-key "$(status cart log_key)" --json >"$work/verified" || fail "the audit finds violations: $(cat "$work/verified")"
grep -q '"name":"policy_changes","outcome":"pass"' "$work/verified" || fail "the changes were not looked at"
expect 0 "log key +$(status cart log_key | sed 's/[+.]/\\&/g')" "$client" status --dir "$work/cart"
expect 2 'log-key' "$audit" verify "$work/export" --log-key "$(status cart log_key | tr A-Y B-Z)"
grep -qxF "log $(status cart log_key)" "$work/export/keys.txt" || fail "the device pinned another log"
grep -qr 'Dr. Ada' "$work/export/tile/entries" || fail "the log does not say who"
"$audit" report "$work/export" --html "$work/report.html" >/dev/null
grep -q 'a longer study' "$work/report.html" || fail "the report does not say why"
find "$work/export/tile/entries" -type f -exec sed -i 's/a longer study/a greater need/' {} +
expect 6 'bad_signature' "$audit" verify "$work/export"
stop_server
echo "caps are raised by the policy key, for one device, once"
