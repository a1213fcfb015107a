#!/usr/bin/env bash
# Old copies, on either side. A device's folder that was restored from a backup stops before it signs
# anything, takes over what the log has by an act of its owner, and goes on with the account that the
# server knows. A copy that answers as the device does freezes both. A server's folder that was
# restored is refused by devices that saw more; nothing is spent for it.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

client=$bin/tacit-client
once() { "$client" run --dir "$work/$1" --once --patience 5; }
spent() { # spent NAME: epsilon of the device's own account
    "$client" status --dir "$work/$1" --json | grep -o '"account":{"epsilon":[0-9.e-]*' | cut -d: -f3
}
status() { "$client" status --dir "$work/$1" --json | json "$2"; }
told() { [ "$(status "$1" "$2")" = "$3" ]; } # told NAME KEY VALUE
collects() { [ "$(last_round state)" = collecting ]; }
# A round ends a moment before its lineage does.
begin() { until_true 20 lineage --cohort 2 2>>"$work/start.log" || fail "no lineage starts"; }
round() { # round N: the N-th round, of a lineage of its own
    begin
    until_true 60 rounds_ended "$1" || fail "round $1 does not end"
    [ "$(last_round state)" = published ] || fail "round $1 is $(last_round state)"
}

make_federation
start_server
for name in cart van; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
    start_device "$name"
done
round 1
until_true 30 told cart version 1 || fail "the cart has no adapter"
stop_device cart
cp -r "$work/cart" "$work/old" # the backup
start_device cart
round 2
round 3
until_true 30 told cart spends 3 || fail "the cart has not spent"
stop_device cart
spent=$(spent cart)

# Restored: it says so, spends nothing, freezes nobody.
mv "$work/cart" "$work/newer"
cp -r "$work/old" "$work/cart"
before=$(spent cart)
expect 4 'the folder is an older copy, or another copy works.*budget --recover' once cart
[ "$(spent cart)" = "$before" ] || fail "an older copy spent something"
[ "$(verb device show cart --json | json state)" = active ] || fail "the older copy was frozen"

# The owner's act: the union of both accounts, from the log.
expect 0 'epsilon' "$client" budget --recover --dir "$work/cart"
[ "$(spent cart)" = "$spent" ] || fail "after the recovery $(spent cart), spent were $spent"
[ "$(status cart reserves) $(status cart spends)" = "3 3" ] || fail "not the union"
same_epsilon cart
start_device cart
round 4
same_epsilon cart
[ "$(status cart reserves)" = 4 ] || fail "the recovered device takes no part"
stop_device cart

# The same by the other copy: its chain is the log's, so it only lags. Two copies that both answer
# are found out, and neither goes on.
rm -r "$work/newer"
cp -r "$work/cart" "$work/twin"
begin
until_true 20 collects || fail "no round collects"
start_device cart client.reserve_acknowledged
await_kill "${device_pid[cart]}"
unset 'device_pid[cart]'
counter() { sqlite3 "$work/$1/client.db" "SELECT value FROM client_number WHERE name = 'counter'"; }
sqlite3 "$work/twin/client.db" "UPDATE client_number SET value = $(counter cart) - 1 WHERE name = 'counter'"
expect 4 'frozen as a suspected clone' once twin
expect 4 'frozen as a suspected clone' once cart
[ "$(verb device show cart --json | json state)" = frozen ] || fail "nobody is frozen"
expect 4 'frozen' "$client" budget --recover --dir "$work/twin"
verb round cancel >/dev/null 2>&1 || true # unless it ended when its device was frozen
until_true 20 rounds_ended 5 || fail "the round waits for a frozen device"

# A server's folder from a backup: devices that saw more refuse it and spend nothing for it. The
# operator's private key is elsewhere.
mv "$work/server/keys/operator.key" "$work/operator.key"
stop_device van
verb device revoke van >/dev/null # or the rounds would wait for it
for name in bus tram; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
done
unused=$(token)
stop_server
cp -r "$work/server" "$work/backup"
start_server
start_device bus
start_device tram
round 6
until_true 30 told bus spends 1 || fail "the bus has not spent"
stop_device bus
stop_device tram
make_data "$work/late.jsonl" 1
enrol late "$(token)" >/dev/null
once late # has a checkpoint of what comes to be lost
stop_server
spent=$(spent bus)
mv "$work/server" "$work/lost"
cp -r "$work/backup" "$work/server"
start_server
begin
expect 6 'restored from an older copy' once bus
expect 6 'restored from an older copy' once tram
[ "$(spent bus)" = "$spent" ] || fail "something was spent for a restored server"
[ "$(status bus abandons)" = 0 ] || fail "something was given up for a restored server"
[ -s "$work/server/ahead.checkpoint" ] || fail "the server does not keep what devices hold of its log"
stop_server
grep -q 'this folder is an older copy' "$work/server.log" || fail "the operator is not told"

# The operator vouches, for a fresh copy of the backup that nobody served.
cp "$work/server/ahead.checkpoint" "$work/ahead"
rm -rf "$work/server"
cp -r "$work/backup" "$work/server"
restore() { "$bin/tacit-server" restore --dir "$work/server" "$@"; }
expect 2 'operator-key' restore
expect 6 'not the operator key' restore --operator-key "$work/server/keys/server.key"
expect 3 'operator.key' restore --operator-key "$work/missing/operator.key"
sed '2s/.*/9999/' "$work/ahead" >"$work/false"
expect 6 'signature' restore --operator-key "$work/operator.key" --checkpoint "$work/false"
expect 0 '"generation":2,.*"round_closed":false' \
    restore --operator-key "$work/operator.key" --checkpoint "$work/ahead" --json
cp -r "$work/server" "$work/backup-2"
start_server
expect 4 'token' "$client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$unused" \
    --dir "$work/never" --model "$work/text.gguf" --data "$work/bus.jsonl"
expect 0 'follows .*/2. now and brings 2 of its entries' once bus
[ "$(spent bus)" = "$spent" ] || fail "after the restore $(spent bus), spent were $spent"
same_epsilon bus
expect 4 'unknown device' once late # the backup does not have it
start_device bus
start_device tram
round 6
for name in bus tram; do
    same_epsilon "$name"
    [ "$(status "$name" reserves)" = 2 ] || fail "$name has not trained after the restore"
    stop_device "$name"
done
stop_server
for log in bus tram; do grep -q ERROR "$work/$log.log" && fail "$log logs an error"; done

# Neither the old server nor a second restore of the same copy is followed any more.
mv "$work/server" "$work/second"
mv "$work/lost" "$work/server"
start_server
expect 6 'never was that' once bus
stop_server
mv "$work/server" "$work/lost"
cp -r "$work/backup" "$work/server"
restore --operator-key "$work/operator.key" >/dev/null
start_server
expect 6 'checkpoint of [0-9]+ entries' once bus
stop_server
rm -rf "$work/server"
mv "$work/second" "$work/server"
start_server
expect 0 '' once bus

# The auditor: the restore is told, receipts of the old origin are of entries that came again.
verb ledger export "$work/export" >/dev/null
receipts=()
for file in "$work"/{bus,tram}/receipts/*.receipt; do receipts+=(--receipt "$file"); done
[ "${#receipts[@]}" = 24 ] || fail "not two receipts of each entry that came again: ${receipts[*]}"
verify() { "$bin/tacit-audit" verify "$work/export" "${receipts[@]}"; }
expect 0 'restored at entry [0-9]+: .*goes on as .*/2. .*; 4 entries of devices' verify
expect 0 'pass +restores' verify
rm -rf "$work/export"
stop_server
echo "old copies add nothing"
