#!/usr/bin/env bash
# A whole federation of real processes: from a token to an active adapter and a verified export.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
expect 1 'another tacit-server serves' "$bin/tacit-server" run --dir "$work/server"
for name in cart van; do
    make_data "$work/$name.jsonl" 1
    token_of=$(token)
    enrol "$name" "$token_of" >/dev/null
done

# A token is worth one device; what is no token, or of another server, is worth none.
make_data "$work/thief.jsonl" 2
expect 4 'token is not valid' enrol thief "$token_of"
expect 2 'tacit1-' enrol thief "tacit1-nonsense"
revoked=$(verb token create --json)
verb token revoke "$(json id <<<"$revoked")" >/dev/null
expect 4 'token is not valid' enrol thief "$(json token <<<"$revoked")"
[ "$(verb device list --json | grep -o '"pseudonym"\|"device"' | wc -l)" = 2 ] || fail "a device too many"

start_device cart
start_device van
verb watch --until-done --json >"$work/watch.log" &
watcher=$!
lineage --rounds 2
until_true 60 rounds_ended 2 || fail "the rounds do not end"
wait "$watcher"
"$bin/json_lines" number time_ms kind lineage <"$work/watch.log" || fail "watch --json prints something else"
[ "$(last_round state)" = published ] || fail "the last round is $(last_round state): $(last_round reason)"
# For people: on paper each round has a line for its opening and one for each update, none for a
# reserve alone; on a terminal these are one line that is written over.
verb watch --until-done >"$work/watch.txt"
for accepted in 0 1 2; do
    [ "$(grep -c "round 1  collecting .*accepted $accepted" "$work/watch.txt")" -le 1 ] ||
        fail "watch repeats a line: $(cat "$work/watch.txt")"
done
grep -q 'round 1  collecting .*accepted 0' "$work/watch.txt" || fail "watch does not show the opening"
grep -q 'round 1  collecting .*accepted 2' "$work/watch.txt" || fail "watch does not show the last update"
grep -q $'\r' "$work/watch.txt" && fail "watch writes over lines of a file"
for state in collecting aggregating evaluating published; do
    grep -q "\"state\":\"$state\"" "$work/watch.log" || fail "watch told nothing about '$state'"
done

# Both devices use what was published, and it runs.
digest=$(verb adapter list --json | json file_digest)
active() { grep -q "$digest" "$work/$1/adapters/active.json"; }
until_true 30 active cart || fail "cart: adapter not active"
until_true 30 active van || fail "van: adapter not active"
"$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/server/adapters/$digest.gguf" \
    --data "$work/gate.jsonl" --json >/dev/null

# The server's number for each device is the device's own.
for name in cart van; do
    same_epsilon "$name"
done

# Back to version 1 and forth again: devices follow what is current.
verb adapter rollback 1 --reason "a test" >/dev/null
digest=$(verb adapter show 1 --json | json file_digest)
until_true 30 active cart || fail "cart: not rolled back"
expect 1 'not before' verb adapter rollback 1
verb adapter publish 2 >/dev/null

# An auditor holds the devices' receipts against the log.
stop_device cart
receipts=()
for file in "$work"/cart/receipts/*.receipt "$work"/van/receipts/*.receipt; do receipts+=(--receipt "$file"); done
[ ${#receipts[@]} -ge 16 ] || fail "only $((${#receipts[@]} / 2)) receipts"
verb ledger export "$work/export" >/dev/null
expect 0 "violations: 0" "$bin/tacit-audit" verify "$work/export" "${receipts[@]}"
expect 0 "violations: 0, devices: 2, rounds: 2" "$bin/tacit-audit" report "$work/export" --html "$work/report.html" \
    --csv "$work/devices.csv" "${receipts[@]}"

# A revoked device is told so, for ever; the other one cannot hold a round of two alone.
verb device revoke cart --reason "stolen" >/dev/null
expect 4 'revoked' "$bin/tacit-client" run --dir "$work/cart" --once
expect 1 'revoked already' verb device revoke cart
lineage
until_true 20 grep -q 'waiting: the next round asks for 2 devices; 1 are active' "$work/server.log" ||
    fail "the wait is not told"
verb round cancel >/dev/null
stop_device van
stop_server
expect 5 'no server answers' verb device list
verb_log=$(grep -c 'stopping' "$work/server.log")
[ "$verb_log" = 1 ] || fail "the stop was not told"
echo "federation holds"
