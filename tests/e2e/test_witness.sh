#!/usr/bin/env bash
# A device whose policy names a witness: it takes a plan once a checkpoint that covers the plan was
# cosigned, from an export, by somebody who is not the server; the auditor sees that it did.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"
audit=$bin/tacit-audit

status() { "$bin/tacit-client" status --dir "$work/$1" --json | json "$2"; }
says() { grep -q -- "$2" "$work/$1.log"; } # says NAME PATTERN: the device's log
export_log() {
    rm -rf "$work/export"
    verb ledger export "$work/export" >/dev/null
}

# The witness; making it prints its key.
key=$("$audit" witness "$work/witness" --name w.example/1)
[[ $key = w.example/1+* ]] || fail "the witness's key is '$key'"
expect 1 'exists' "$audit" witness "$work/witness" --name w.example/1
[ "$("$audit" witness "$work/witness")" = "$key" ] || fail "another key when it is asked for again"
expect 3 'nobody' "$audit" witness "$work/nobody"
[ ! -e "$work/nobody" ] || fail "a witness that is not there was made"
expect 2 'expected DIR' "$audit" witness "$work/witness" --out "$work/cosigned"
expect 2 '--log-key' "$audit" witness "$work/witness" "$work/export" --out "$work/cosigned" --log-key x

make_federation
echo "witness_key: nonsense" >>"$work/server/server.yaml"
expect 3 'expected NAME' "$bin/tacit-server" run --dir "$work/server"
sed -i "s|^witness_key: .*|witness_key: \"$key\"|" "$work/server/server.yaml"
start_server
for name in cart van; do make_data "$work/$name.jsonl" 1; done
mkdir "$work/cart"
cat >"$work/cart/client.yaml" <<YAML
model:
  text: "$work/text.gguf"
data: "$work/cart.jsonl"
policy:
  epsilon: 8
  delta: 1e-5
  unit: subject
  minimum_noise_multiplier: 0.5
  minimum_cohort: 2
  minimum_quorum: 2
  minimum_pad_seconds: 0
  witness_key: "$key"
YAML
"$bin/tacit-client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$(token)" --dir "$work/cart" \
    --name cart >/dev/null
enrol van "$(token)" >/dev/null
start_device cart
start_device van
lineage

# The van trains; the cart waits for the witness and has spent nothing.
until_true 60 says cart 'plan waits: plan: it is entry [0-9]* of the log and this device.s witness w.example/1 has cosigned the first 0' ||
    fail "the cart does not say what it waits for"
until_true 60 eval '[ "$(status van reserves)" = 1 ]' || fail "the van does not train"
[ "$(status cart reserves)" = 0 ] || fail "the cart took a plan that nobody cosigned"

# The witness must be told whose log it is, once; what it cosigns goes to the server.
export_log
cp -r "$work/export" "$work/early"
witness() { "$audit" witness "$work/witness" "$work/export" --out "$work/cosigned" "$@"; }
expect 2 'is new to this witness' witness
[ ! -e "$work/cosigned" ] || fail "the witness wrote something"
expect 0 '^.*cosigned: w.example/1 has cosigned [0-9]+ entries of ' \
    witness --log-key "$(sed -n 's/^log //p' "$work/export/keys.txt")"
expect 6 'not signed by key' verb ledger cosign "$work/export/checkpoint"
expect 3 'missing' verb ledger cosign "$work/missing"
expect 0 '"cosigned":[0-9]+,"witness":"w.example/1"' verb ledger cosign "$work/cosigned" --json

# Now the cart takes part.
until_true 60 eval '[ "$(verb round list --json | json state)" = published ]' || fail "the round does not end"
[ "$(verb round list --json | json accepted)" = 2 ] || fail "the cart has no part in the round"
export_log
[ -s "$work/export/cosigned" ] || fail "the export lacks the cosigned checkpoint"
expect 0 'w.example/1 has cosigned its first [0-9]+ entries' "$audit" verify "$work/export"
expect 0 '"witness":"w.example/1","witnessed":[0-9]+,' "$audit" verify "$work/export" --witness "$key" --json
rm "$work/export/cosigned"
expect 6 'unwitnessed_plan at entry [0-9]+: its witness w.example/1 has cosigned the first 0' \
    "$audit" verify "$work/export"
expect 6 'bad_cosignature' "$audit" verify "$work/export" --witness "$key"
expect 2 '--witness' "$audit" verify "$work/export" --witness x

# It goes on with this log and never back.
expect 0 '"cosigned":[0-9]+' witness --json
mv "$work/export" "$work/late"
mv "$work/early" "$work/export"
expect 6 'is older, or the log was cut' witness
for name in cart van; do stop_device "$name"; done
stop_server
echo "a witness stands between two views"
