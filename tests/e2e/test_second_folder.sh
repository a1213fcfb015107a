#!/usr/bin/env bash
# What one store of data may spend where: a second server for the same folder, a second folder on the
# same data, enrolment again under the same keys and under new ones. One folder is one account, and
# it stays with one server; nothing ties two folders to the same data, which the READMEs say.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

client=$bin/tacit-client
spent() { # spent NAME: epsilon of the device's own account
    "$client" status --dir "$work/$1" --json | grep -o '"account":{"epsilon":[0-9.e-]*' | cut -d: -f3
}
status() { "$client" status --dir "$work/$1" --json | json "$2"; }
told() { [ "$(status "$1" "$2")" = "$3" ]; } # told NAME KEY VALUE

make_federation
start_server
start_pair
lineage --cohort 2
until_true 60 rounds_ended 1 || fail "the round does not end"
until_true 20 told cart version 1 || fail "the cart has no adapter"
stop_device cart
stop_device van
before=$(spent cart)
device=$(status cart device)
key=$(sha256sum <"$work/cart/identity/device.key")
join() { "$client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$1" --dir "$work/$2" --name "$2"; }

# The same folder again, at its server: it is enrolled. The token is not used up.
unused=$(token)
expect 1 'enrolled already .* another server needs another folder' join "$unused" cart

# The same keys without the server's name in client.yaml: they have signed, so they join nothing anew,
# neither here nor elsewhere. Their account is what it was.
sed -i '/^server:/d; /^enrol:/d' "$work/cart/client.yaml"
expect 1 'reserves .* made before' join "$unused" cart
own_port=$port
own_server=$server_pid
"$bin/tacit-server" init "$work/elsewhere" --host 127.0.0.1 --port 0 --enrol-port 0 \
    --model "$work/text.gguf" --gate "$work/gate.jsonl" >/dev/null
"$bin/tacit-server" run --dir "$work/elsewhere" >"$work/elsewhere.log" 2>&1 &
device_pid[elsewhere]=$!
until_true 30 test -s "$work/elsewhere/address" || fail "the second server does not start"
read -r port _ <"$work/elsewhere/address"
other=$("$bin/tacit-server" token create --dir "$work/elsewhere" --json | json token)
expect 1 'reserves .* made before' join "$other" cart
[ "$(spent cart)" = "$before" ] || fail "joining elsewhere changed the account"
[ "$key" = "$(sha256sum <"$work/cart/identity/device.key")" ] || fail "keys that signed were replaced"

# New keys in the same folder: the account that lies beside them is another device's, so it counts as
# lost and spent to its cap.
cp -r "$work/cart" "$work/rekeyed"
rm "$work/rekeyed/identity/device.key"
expect 4 'account is lost .* counts as spent' join "$other" rekeyed
[ "$(spent rekeyed)" = 8.0 ] || fail "new keys gave the folder a budget of $(spent rekeyed)"
told rekeyed remaining 0.0 || fail "something remains"

# The keys without their account: likewise.
cp -r "$work/cart" "$work/purse"
rm "$work/purse/client.db"*
expect 4 'account is lost .* counts as spent' join "$other" purse
[ "$(spent purse)" = 8.0 ] || fail "a dropped account gave a budget of $(spent purse)"

# A folder whose account is fresh may go to the second server: nothing was spent under it.
port=$own_port
make_data "$work/fresh.jsonl" 1
enrol fresh "$unused" >/dev/null
sed -i '/^server:/d; /^enrol:/d' "$work/fresh/client.yaml"
read -r port _ <"$work/elsewhere/address"
expect 0 'enrolled' join "$other" fresh
[ "$(spent fresh)" = 0.0 ] || fail "a fresh account has spent"

# A second folder on the same data is a second account: not prevented. Both servers' auditors see a
# device of their own, and the subject's epsilon is the sum of both.
other=$("$bin/tacit-server" token create --dir "$work/elsewhere" --json | json token)
expect 0 'enrolled' "$client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$other" \
    --dir "$work/second" --name second --model "$work/text.gguf" --data "$work/cart.jsonl"
[ "$(spent second)" = 0.0 ] || fail "a second folder knows of the first"
[ "$(status second device)" != "$device" ] || fail "a second folder is the same device"
[ "$(spent cart)" = "$before" ] || fail "a second folder changed the first"
kill "${device_pid[elsewhere]}"
wait "${device_pid[elsewhere]}" || true
unset 'device_pid[elsewhere]'
server_pid=$own_server

# A purged folder is a new device; the log goes on charging the old one, which stays what it was.
rm -r "$work/van"
port=$own_port
enrol van "$(token)" >/dev/null
[ "$(verb device list --json | grep -o '"name":"van"' | wc -l)" = 2 ] || fail "the old device is gone"
[ "$(spent van)" = 0.0 ] || fail "a purged folder has spent"
verb ledger export "$work/export" >/dev/null
"$bin/tacit-audit" verify "$work/export" --json >/dev/null || fail "the audit finds violations"
stop_server
echo "one folder is one account"
