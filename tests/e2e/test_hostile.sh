#!/usr/bin/env bash
# A device that breaks the rules, over TLS, beside honest ones whose rounds go on.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
start_pair
lineage --rounds 5 --cohort 3
"$bin/hostile_client" "tls+tcp://127.0.0.1:$port" "tls+tcp://127.0.0.1:$enrol_port" "$(token)" \
    "$work/text.gguf" "$work" unknown replay token round base shape nan huge clone \
    >"$work/hostile.log" 2>&1 || fail "hostile_client"

said() { grep -qE "^$1: $2" "$work/hostile.log" || fail "$1: expected '$2'"; }
refused=$(sed -n 's/^unknown: \([0-9]*\) .*/\1/p' "$work/hostile.log")
said unknown "$refused unknown device"
said token "$refused the token is not valid"
said clone "$refused this device is frozen"
said frozen "$refused this device is frozen"
said replay '[0-9]+ a later request was served already'
said round '0 plan$'
said base '0 plan$'
said shape '0 shape$'
said nan '0 finite$'
said huge '0 norm$'

# Every round was published with the honest updates alone, and the log says all of it.
until_true 60 rounds_ended 5 || fail "the rounds do not end"
[ "$(published)" = 5 ] || fail "$(published) of 5 rounds were published"
[ "$(verb round list --json | grep -o '"accepted":2,"rejected":1' | wc -l)" = 5 ] || fail "expected two accepted updates and one rejected in each round"
[ "$(verb device show hostile --json | json state)" = frozen ] || fail "the clone is not frozen"
verb ledger export "$work/export" >/dev/null
expect 0 'violations: 0' "$bin/tacit-audit" verify "$work/export"
stop_device cart
stop_device van
stop_server
echo "hostile devices are held"
