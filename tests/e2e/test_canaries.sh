#!/usr/bin/env bash
# tacit-client train --canaries and tacit-audit canary as a person types them, and the test of the
# test: the same programs with a fault between them must be refuted.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
client=$TACIT_BIN/tacit-client
audit=$TACIT_BIN/tacit-audit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$TACIT_BIN/write_tiny_model" "$work"
for i in 1 2 3 4 5 6; do
    printf '{"id":"r%d","subject":"s%d","messages":[{"role":"user","content":"say %d"},{"role":"assistant","content":"abc"}]}\n' \
        "$i" "$i" "$i"
done >"$work/data.jsonl"

# words DEVICE: what every training below has in common. 1,024 values are trained.
words() {
    echo train --dir "$work/$1" --model "$work/text.gguf" --data "$work/data.jsonl" --out "$work/$1.gguf" \
        --epsilon 2 --steps 30 --q 0.05
}
# key NAME: its value in the JSON on stdin, where it stands first.
key() { grep -oE "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }

# With the noise that was accounted nothing is found, and it costs what it costs without canaries.
# shellcheck disable=SC2046
"$client" $(words plain) --json >"$work/plain.json" 2>"$work/log"
for device in cart van; do
    # shellcheck disable=SC2046
    "$client" $(words $device) --canaries 1000 --scores "$work/$device.scores" --json >"$work/$device.json" 2>>"$work/log"
    expect 0 'nothing against it' "$audit" canary "$work/$device.scores"
    for same in sigma epsilon values steps; do
        [ "$(key $same <"$work/plain.json")" = "$(key $same <"$work/$device.json")" ] ||
            fail "canaries change $same: $(cat "$work/plain.json" "$work/$device.json")"
    done
done
"$audit" canary "$work/cart.scores" --json >"$work/audit.json"
"$TACIT_BIN/json_lines" canary epsilon epsilon_at_least delta confidence canaries included rules reserve <"$work/audit.json"
claimed=$(key epsilon_claimed <"$work/cart.json")
[ "$(key epsilon <"$work/audit.json")" = "$claimed" ] || fail "another claim is judged than was made"
awk -v e="$claimed" 'BEGIN { exit !(e > 1.9 && e <= 2) }' || fail "the claim is $claimed"
cut -d, -f1 "$work/cart.scores" | cmp -s - <(cut -d, -f1 "$work/van.scores") && fail "two runs toss the same coins"
[ "$(stat -c %a "$work/cart.scores")" = 600 ] || fail "others can read the scores"

# A new folder takes the unit that is typed; later the file decides.
# shellcheck disable=SC2046
"$client" $(words record) --unit record --steps 1 >/dev/null 2>>"$work/log"
grep -qE '^  unit: record +#' "$work/record/client.yaml" || fail "client.yaml has another unit than was typed"
# shellcheck disable=SC2046
expect 4 'unit' "$client" $(words record) --unit subject
expect 2 'expected record, subject or device' "$client" train --dir "$work/nobody" --data "$work/data.jsonl" \
    --out "$work/nobody.gguf" --epsilon 1 --unit person
[ -e "$work/nobody" ] && fail "a wrong word leaves a folder"

# Faults of the private step, claimed as before.
faulty() {
    # shellcheck disable=SC2046
    TACIT_STEP_FAULT=$1 "$TACIT_BIN/faulty_client" $(words "$1") --canaries 1000 --scores "$work/$1.scores" >/dev/null 2>>"$work/log"
}
faulty none
expect 0 'nothing against it' "$audit" canary "$work/none.scores"
for fault in noise_off clip_off always_drawn; do
    faulty $fault
    expect 6 'REFUTED' "$audit" canary "$work/$fault.scores"
    expect 6 '"canary":"refuted"' "$audit" canary "$work/$fault.scores" --json
done
expect 0 'confidence 99.9 %' "$audit" canary "$work/none.scores" --confidence 0.999

# The adapter says what it is.
expect 0 'tacit.canaries .* 1000' "$TACIT_BIN/tacit" inspect "$work/cart.gguf"
expect 0 'trained with 1000 canaries' "$TACIT_BIN/tacit" eval -m "$work/text.gguf" --adapter "$work/cart.gguf" \
    --data "$work/data.jsonl"
"$TACIT_BIN/tacit" inspect "$work/plain.gguf" >"$work/inspected"
grep -q canaries "$work/inspected" && fail "an adapter without canaries is marked"

# Killed, it goes on with the same coins, for nothing, and not as anything else.
again() {
    # shellcheck disable=SC2046
    "$client" $(words killed) --json "$@"
}
# shellcheck disable=SC2046
TACIT_KILL_AT=client.mid_training:3 "$client" $(words killed) --canaries 1000 --scores "$work/killed.scores" >/dev/null 2>&1 &&
    fail "it was not killed"
expect 2 'has 1000 canaries, this one 0' again
expect 2 'has 1000 canaries, this one 999' again --canaries 999 --scores "$work/killed.scores"
[ ! -e "$work/killed.gguf" ] || fail "a refused continuation wrote an adapter"
expect 0 'continuing' again --canaries 1000 --scores "$work/killed.scores"
expect 0 'nothing against it' "$audit" canary "$work/killed.scores"
expect 0 "\"epsilon\":$(key epsilon <"$work/plain.json")[,}]" "$client" status --dir "$work/killed" --json

# What cannot be asked for, before anything is spent.
expect 2 'belong together' again --canaries 10
expect 2 'belong together' again --scores "$work/x"
expect 2 '1 to 100000' again --canaries 0 --scores "$work/x"
expect 2 'expected unit record or subject, found device' "$client" train --dir "$work/killed" \
    --data "$work/data.jsonl" --out "$work/killed.gguf" --epsilon 1 --unit device --canaries 10 --scores "$work/x"
expect 2 'expected at most 1024, found 1025' again --canaries 1025 --scores "$work/x"
expect 0 '"reserves":1[,}]' "$client" status --dir "$work/killed" --json

# Files that are not what they should be.
expect 3 'absent' "$audit" canary "$work/absent"
expect 2 'SCORES' "$audit" canary
expect 2 'confidence' "$audit" canary "$work/cart.scores" --confidence 1
head -n 500 "$work/cart.scores" >"$work/cut"
expect 3 'cut: line 501' "$audit" canary "$work/cut"
sed '1s/"epsilon":1/"epsilon":0/' "$work/cart.scores" >"$work/claim"
expect 6 'claims epsilon 0' "$audit" canary "$work/claim"
echo "canaries: ok"
