#!/usr/bin/env bash
# Server and device killed at every named point of a round: it ends as if nothing had happened, each
# device is charged once, and the log stays clean.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
for name in cart van; do
    make_data "$work/$name.jsonl" 1
    enrol "$name" "$(token)" >/dev/null
done
start_device van
rounds=0

# One more round must have been published with both updates.
expect_published() {
    rounds=$((rounds + 1))
    until_true 60 rounds_ended "$rounds" || fail "$1: the round does not end"
    [ "$(last_round state)" = published ] || fail "$1: the round ended as $(last_round state)"
    [ "$(last_round accepted)" = 2 ] || fail "$1: $(last_round accepted) updates were accepted"
    echo "survived $1"
}

for point in client.reserved_locally client.reserve_acknowledged client.mid_training \
    client.trained client.sealed client.upload_half client.committed; do
    start_device cart "$point"
    lineage --rounds 1
    await_kill "${device_pid[cart]}"
    start_device cart
    expect_published "$point"
    stop_device cart
done

start_device cart
for point in server.reserve_logged server.chunk_written server.update_decided server.aggregated \
    server.evaluated server.published; do
    stop_server
    serve_until "$point"
    lineage --rounds 1
    await_kill "$server_pid"
    candidate=$(sha256sum "$work"/server/adapters/candidate-*.gguf 2>/dev/null | cut -d' ' -f1 || true)
    start_server
    expect_published "$point"
    if [ -n "$candidate" ]; then # the same accepted set gives the same bytes
        [ "$(verb adapter list --json | json file_digest)" = "$candidate" ] ||
            fail "$point: the restarted server published other bytes"
    fi
    until_true 10 eval "! ls '$work'/server/uploads/* '$work'/server/adapters/candidate-* >/dev/null 2>&1" ||
        fail "$point: files of an ended round are left"
done

# Every round was paid once by each device, and says so in the log.
verb ledger export "$work/export" >/dev/null
audit=$("$bin/tacit-audit" verify "$work/export" --json) || fail "audit: $audit"
[ "$(grep -o "\"reserves\":$rounds," <<<"$audit" | wc -l)" = 2 ] || fail "expected $rounds reserves of each device: $audit"
[ "$(grep -o "\"accepted\":$rounds," <<<"$audit" | wc -l)" = 2 ] || fail "expected $rounds accepted updates of each device: $audit"
for name in cart van; do
    same_epsilon "$name"
done
stop_device cart
stop_device van
stop_server
echo "crashes hold"
