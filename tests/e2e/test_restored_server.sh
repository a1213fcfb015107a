#!/usr/bin/env bash
# A server's folder that was restored from a backup. Devices that saw more refuse it and spend nothing for
# it, until the operator vouches for it with a key that the server does not have: then they follow, bring
# what it lacks, and train on. The accounts on both ends are equal throughout, and the auditor finds
# everything in order, receipts of the lost log included.
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
counts() { [ "$(last_round "$1")" = "$2" ]; } # counts KEY VALUE
# A round ends a moment before its lineage does; devices that are away are not waited for.
begin() {
    until_true 20 lineage --cohort 2 --target 2 2>>"$work/start.log" || fail "no lineage starts"
}
round() { # round N: the N-th round, of a lineage of its own
    begin
    until_true 60 rounds_ended "$1" || fail "round $1 does not end"
    [ "$(last_round state)" = published ] || fail "round $1 is $(last_round state)"
}

make_federation
start_server
# The operator's private key is elsewhere.
mv "$work/server/keys/operator.key" "$work/operator.key"
for name in bus tram barge; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
done
unused=$(token)
stop_server
cp -r "$work/server" "$work/backup"
cp -r "$work/bus" "$work/bus-old"
start_server
once barge # and then it is away for long
sed -i 's/^  epsilon: .*/  epsilon: 12/' "$work/tram/client.yaml"
"$client" budget --declare --dir "$work/tram" >/dev/null
start_device bus
start_device tram
round 1
until_true 30 told bus spends 1 || fail "the bus has not spent"
stop_device bus
stop_device tram
sed -i 's/^  epsilon: .*/  epsilon: 5/' "$work/tram/client.yaml"
"$client" budget --declare --dir "$work/tram" >/dev/null
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
# A copy of its folder that is older than all of that: first the log, then the entries.
mv "$work/bus" "$work/newer"
mv "$work/bus-old" "$work/bus"
expect 4 'the folder is an older copy.*budget --recover' once bus
expect 0 'epsilon' "$client" budget --recover --dir "$work/bus"
[ "$(spent bus)" = "$spent" ] || fail "the recovered copy has spent $(spent bus), not $spent"
same_epsilon bus
rm -rf "$work/bus"
mv "$work/newer" "$work/bus"
start_device bus
start_device tram
round 1
for name in bus tram; do
    same_epsilon "$name"
    [ "$(status "$name" reserves)" = 2 ] || fail "$name has not trained after the restore"
done
stop_device bus
stop_device tram
# The restored log had neither the cap that the tram reserved under nor the one that it declared then.
told tram epsilon_cap 5.0 || fail "the tram lost the cap that it declared"
[ "$(verb device show tram --json | json epsilon_cap)" = 5.0 ] || fail "the log has another cap"
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

# Once more, with a round open on both sides, the tram running all the time, and the barge two restores
# behind.
start_device tram
begin
until_true 20 counts state collecting || fail "no round collects"
start_device bus client.reserve_acknowledged
await_kill "${device_pid[bus]}"
unset 'device_pid[bus]'
until_true 30 told tram spends 3 || fail "the tram has not spent"
until_true 30 counts accepted 1 || fail "its update is not accepted"
kill -9 "$server_pid"
wait "$server_pid" || true
cp -r "$work/server" "$work/backup-3"
start_server
verb round cancel >/dev/null
expect 1 'serves this folder' restore --operator-key "$work/operator.key"
stop_server
rm -rf "$work/server"
mv "$work/backup-3" "$work/server"
expect 0 '"generation":3,.*"round_closed":true' restore --operator-key "$work/operator.key" --json
start_server
[ "$(last_round state) $(last_round reason)" = "failed restored" ] || fail "the round is not closed"
follows() { grep -q "follows '.*/3' now" "$work/$1.log"; }
until_true 30 follows tram || fail "the running tram does not follow"
expect 0 'superseded|follows .*/3. now' once bus
expect 0 'follows .*/3. now' once barge
[ "$(status bus reserves) $(status bus spends)" = "3 3" ] || fail "not what the bus has done"
start_device bus
begin
until_true 60 counts state published || fail "no round after the second restore"
for name in bus tram; do
    same_epsilon "$name"
    [ "$(status "$name" reserves)" = 4 ] || fail "$name has not trained after the second restore"
    stop_device "$name"
done

# The auditor: the restores are told, receipts of older origins are of entries that came again.
verb ledger export "$work/export" >/dev/null
receipts=()
for file in "$work"/{bus,tram,barge}/receipts/*.receipt; do
    [ -e "$file" ] && receipts+=(--receipt "$file")
done
ls "$work"/{bus,tram}/receipts >"$work/receipts.log"
for origin in spend spend-origin2 spend-origin3; do
    grep -q "$origin.receipt" "$work/receipts.log" || fail "no receipt of the kind $origin"
done
verify() { "$bin/tacit-audit" verify "$work/export" "${receipts[@]}"; }
expect 0 'restored at entry [0-9]+: .*goes on as .*/2. .*' verify
expect 0 'restored at entry [0-9]+: .*goes on as .*/3. .*; [1-9][0-9]* entries of devices' verify
expect 0 'pass +restores' verify
stop_server
echo "a restored server goes on"
