#!/usr/bin/env bash
# Old copies of a device. A folder that was restored from a backup stops before it signs anything, takes
# over what the log has by an act of its owner, and goes on with the account that the server knows. A
# copy that answers as the device does freezes both. test_restored_server.sh has the other side.
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
start_pair
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

verb ledger export "$work/export" >/dev/null
"$bin/tacit-audit" verify "$work/export" --json >/dev/null || fail "the audit finds violations"
stop_server
echo "old copies add nothing"
