#!/usr/bin/env bash
# Real programs over loopback, with a fault at each call of tacit-client, then of tacit-server, that
# changes its folder (fault_calls.c): making a server, enrolment, a round, the adapter. After the fault the program is
# started again without one until the round is published, and everything must be as if nothing had
# happened: one reserve, one accepted update, the same epsilon, the same kinds of files, a clean
# audit that holds the receipts of the device.
#
# usage: fault_federation.sh [--stride N] [--every K] [--side init|enrol|client|server] [--kind KIND] [--at CALL]
# --every K: of each side every K-th kind alone, other ones than of the side before.
# Needs TACIT_BIN, TACIT_SOURCE and TACIT_FAULT_LIBRARY. Every point begins with the same folders.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"
# A sanitizer's library need not come first: the calls here stand before it on purpose.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

# What the shell itself says of killed programs is of no use; what fails is said on the real stderr.
exec 3>&2 2>"$work/shell.err"
fail() {
    echo "FAILED: $*" >&3
    for log in "$work"/*.log; do tail -n "${TACIT_LOG_LINES:-2}" "$log" >&3; done
    exit 1
}

stride=1 every=1 only_side='' only_kind='' only_at=''
while [ $# -gt 0 ]; do
    case $1 in
    --stride) stride=$2 ;;
    --every) every=$2 ;;
    --side) only_side=$2 ;;
    --kind) only_kind=$2 ;;
    --at) only_at=$2 ;;
    *) echo "fault_federation.sh: unknown option '$1'" >&3 && exit 2 ;;
    esac
    shift 2
done
kinds='kill torn power names short full enospc enospc+ eio eio+ erofs erofs+'
once_for_all='short enospc eio erofs' # the fault is over after one call
what=
points=0 failures=0

# The point that failed is named beside what is wrong.
broken() { fail "$what: $* ($(head -1 "$work/calls" 2>/dev/null))"; }

# with_fault FOLDER KIND CALL: the words before a program that has this fault.
with=()
with_fault() {
    with=(env "LD_PRELOAD=$TACIT_FAULT_LIBRARY" "TACIT_FAULT_DIR=$work/$1" "TACIT_FAULT_KIND=$2"
        "TACIT_FAULT_AT=$3" "TACIT_FAULT_LOG=$work/calls")
}

is_over() { [[ " $once_for_all " == *" $1 "* ]]; }
kills() { [[ " kill torn power names " == *" $1 "* ]]; }

# --- servers and devices of one point ---

end_server() { # by whatever it takes: a point ends here
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    server_pid=
}

# fresh SNAPSHOT: the folders as they were when it was taken.
fresh() {
    end_server
    rm -rf "$work/server" "$work/cart" "$work/export" "$work/calls"
    cp -a "$work/$1/." "$work/"
    : >"$work/server.log"
    : >"$work/cart.log"
    token_text=$(cat "$work/token-of-$1" 2>/dev/null || true)
    port=$snapshot_port
}

take_snapshot() { # take_snapshot NAME: of the folders of a stopped federation
    mkdir "$work/$1"
    cp -a "$work/server" "$work/$1/"
    [ ! -d "$work/cart" ] || cp -a "$work/cart" "$work/$1/"
}

# serve COMMAND...: starts the server by that command; true when it listens.
serve() {
    rm -f "$work/server/address"
    "$@" "$bin/tacit-server" run --dir "$work/server" >>"$work/server.log" 2>&1 &
    server_pid=$!
    until_true 30 eval "[ -s '$work/server/address' ] || ! kill -0 $server_pid 2>/dev/null"
    [ -s "$work/server/address" ] && kill -0 "$server_pid" 2>/dev/null
}

once() { "$@" "$bin/tacit-client" run --dir "$work/cart" --once --patience 20 >>"$work/cart.log" 2>&1; }
join() {
    "$@" "$bin/tacit-client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$token_text" --dir "$work/cart" \
        --name cart --model "$work/text.gguf" --data "$work/cart.jsonl" >>"$work/cart.log" 2>&1
}
prepare_policy() { # as `enroll` writes it, but the device trains alone and its uploads do not wait
    join env || fail "cannot enrol: $(tail -1 "$work/cart.log")"
    sed -e 's/^  minimum_pad_seconds:.*/  minimum_pad_seconds: 0/; s/^  minimum_cohort:.*/  minimum_cohort: 1/' \
        -e 's/^  minimum_quorum:.*/  minimum_quorum: 1/' "$work/cart/client.yaml" >"$work/client.yaml"
    fresh empty
    mkdir "$work/cart"
    cp "$work/client.yaml" "$work/cart/client.yaml"
}
make_server() {
    free_ports
    "$@" "$bin/tacit-server" init "$work/server" --host 127.0.0.1 --port "${ports[0]}" --enrol-port "${ports[1]}" \
        --model "$work/text.gguf" --gate "$work/gate.jsonl" >>"$work/server.log" 2>&1
}
start_lineage() { lineage --cohort 1 --quorum 1 2>>"$work/server.log"; }
# One lineage runs at a time: where its start was acknowledged or not, there is one afterwards.
need_lineage() {
    local text
    [ -z "$(last_round state)" ] || return 0
    text=$(lineage --cohort 1 --quorum 1 2>&1) || [[ $text == *"a lineage is running"* ]] || broken "no lineage: $text"
}

# --- what must hold at the end ---

names_in() { # kinds of files: hexadecimal names made alike; diagnostics may be lost
    (cd "$work" && find "$1" -type f -printf '%m %p\n' | sed -E 's/[0-9a-f]{32,}/HEX/g' |
        grep -vE 'db-(wal|shm)$|/local.log$' | sort)
}

finished_round() { rounds_ended 1; }

# Starts the device again, until the round is published and its adapter in force.
finish_round() {
    local tries=0
    once env || true
    until finished_round && fed_version 1; do
        tries=$((tries + 1))
        [ $tries -le 12 ] || broken "the round does not end: $(verb round list 2>&1 | tail -1)"
        once env || true
    done
}
fed_version() { grep -q "\"version\": *$1" "$work/cart/adapters/active.json" 2>/dev/null; }

check() { # check ROUNDS: one device, which took part in so many
    local audit receipts=() file
    if [ "$1" = 1 ]; then
        [ "$(last_round state)" = published ] || broken "the round ended as $(last_round state)"
        [ "$(last_round accepted)" = 1 ] || broken "$(last_round accepted) updates were accepted"
        for file in "$work"/cart/receipts/*.receipt; do receipts+=(--receipt "$file"); done
    fi
    same_epsilon cart
    verb ledger export "$work/export" >/dev/null || broken "no export"
    audit=$("$bin/tacit-audit" verify "$work/export" "${receipts[@]}" --json) || broken "audit: $audit"
    [[ $audit == *"\"reserves\":$1,"* && $audit == *"\"accepted\":$1,"* ]] || broken "audit: $audit"
    [ "$(grep -o '"reserves":' <<<"$audit" | wc -l)" = 1 ] || broken "several devices: $audit"
    now=$("$bin/tacit-client" status --dir "$work/cart" --json | grep -o '"account":{[^}]*}' |
        sed 's/,"checkpoint_size":[0-9]*//') # a restart of the server is an entry more
    stop_server
    names=$(names_in server; names_in cart)
}

# As in the undisturbed run.
compare() {
    check "$(rounds_of "$side")"
    [ "$now" = "$expected" ] || broken "expected $expected, found $now"
    diff <(echo "$expected_names") <(echo "$names") >&3 || broken "other files are left"
}

# An error is one line that names a file and says what to do next.
complains() { # complains LOG FOLDER
    local line
    line=$(grep -E 'Input/output|No space left|Read-only|disk|SQLite' "$1" | head -1)
    [ -n "$line" ] || broken "no word about it: $(tail -1 "$1")"
    [[ $line == *"$work/$2"*\;* ]] || broken "no file or no next step: $line"
}

rounds_of() { [[ $1 == init || $1 == enrol ]] && echo 0 || echo 1; }

# --- points ---

after_fault() { # after_fault EXIT KIND LOG FOLDER
    if [ ! -s "$work/calls" ]; then # runs differ by a few calls
        echo "$what" >>"$work/unreached"
    elif kills "$2"; then
        [ "$1" = 137 ] || broken "expected a kill, found exit $1"
    elif [ "$1" != 0 ]; then
        [ "$1" = 1 ] || broken "expected exit 0 or 1, found $1: $(tail -1 "$3")"
        complains "$3" "$4"
    fi
}

init_point() { # init_point KIND CALL
    local code=0
    rm -rf "$work/server"
    mkdir "$work/server"
    with_fault server "$1" "$2"
    make_server "${with[@]}" 2>/dev/null || code=$?
    [ "$2" = 0 ] || after_fault $code "$1" "$work/server.log" server
    [ -e "$work/server/server.yaml" ] || make_server env || broken "init does not go on: $(tail -1 "$work/server.log")"
    serve env || broken "the server does not start: $(tail -1 "$work/server.log")"
    read -r port _ <"$work/server/address"
    token_text=$(token)
    join env || broken "no device can enrol: $(tail -1 "$work/cart.log")"
}

is_enrolled() { # what is enrolled is not enrolled again
    "$bin/tacit-client" status --dir "$work/cart" --json 2>/dev/null | grep -q '"device":"[0-9a-f]'
}

enrol_point() { # enrol_point KIND CALL
    local code=0
    serve env || broken "the server does not start"
    mkdir "$work/cart"
    with_fault cart "$1" "$2"
    join "${with[@]}" 2>/dev/null || code=$?
    [ "$2" = 0 ] || after_fault $code "$1" "$work/cart.log" cart
    is_enrolled || join env || broken "enrolment does not go on: $(tail -1 "$work/cart.log")"
    once env || broken "the device does not run: $(tail -1 "$work/cart.log")"
}

client_point() {
    local code=0
    serve env || broken "the server does not start"
    start_lineage
    with_fault cart "$1" "$2"
    once "${with[@]}" 2>/dev/null || code=$?
    [ "$2" = 0 ] || after_fault $code "$1" "$work/cart.log" cart
    finish_round
}

serves() { kill -0 "$server_pid" 2>/dev/null; }

# The device works as long as the server does, and not for ever where that fails at everything.
once_served() {
    local pid
    "$bin/tacit-client" run --dir "$work/cart" --once --patience 20 >>"$work/cart.log" 2>&1 &
    pid=$!
    until_true "$1" eval "! kill -0 $pid 2>/dev/null || ! serves" || true
    kill "$pid" 2>/dev/null || true
    wait "$pid" || true
}

# The round as the operator and the device drive it until it has ended or the server is gone; what of
# it fails is tried again later.
drive() {
    local bound=20 end
    is_over "$1" || kills "$1" || bound=2
    start_lineage || return 0
    end=$((SECONDS + bound))
    until ! serves || finished_round || [ $SECONDS -ge $end ]; do
        once_served $bound
        sleep 0.1
    done
}

server_point() {
    local code=0
    with_fault server "$1" "$2"
    if serve "${with[@]}"; then drive "$1"; fi
    if serves; then kill "$server_pid"; fi
    wait "$server_pid" 2>/dev/null || code=$?
    server_pid=
    [ "$2" = 0 ] || after_fault $code "$1" "$work/server.log" server
    serve env || broken "the server does not start again: $(tail -1 "$work/server.log")"
    need_lineage
    finish_round
}

sparseness() { # kills come at every call, the others at some
    case $1 in
    kill) echo 1 ;;
    torn | power | names) echo 4 ;;
    *) echo 16 ;;
    esac
}

run_side() { # run_side SIDE SNAPSHOT KINDS...
    local side=$1 snapshot=$2 calls at step kind missed n=0 start=$SECONDS done=0 failed=$failures
    shift 2
    what="$side, undisturbed"
    : >"$work/unreached"
    fresh "$snapshot"
    "${side}_point" kill 0
    calls=$(wc -l <"$work/calls")
    [ "$calls" -gt 10 ] || broken "only $calls calls were seen"
    check "$(rounds_of "$side")"
    end_server
    expected=$now expected_names=$names
    for kind in "$@"; do
        [ -z "$only_kind" ] || [ "$only_kind" = "$kind" ] || continue
        n=$((n + 1))
        [ $(((n + side_number) % every)) = 0 ] || continue
        step=$(($(sparseness "$kind") * stride))
        for ((at = 1 + (n * 7) % step; at <= calls; at += step)); do
            [ -z "$only_at" ] || at=$only_at
            what="--side $side --kind $kind --at $at"
            ( # goes on after a failure
                trap end_server EXIT
                fresh "$snapshot"
                "${side}_point" "$kind" "$at"
                compare
            ) || failures=$((failures + 1))
            done=$((done + 1))
            [ -z "$only_at" ] || break
        done
    done
    points=$((points + done))
    missed=$(wc -l <"$work/unreached")
    [ "$missed" -le $((3 + done / 20)) ] || fail "$side: $missed of $done faults never happened"
    echo "$side: $calls calls change files; $done points, $missed not reached; $((failures - failed)) failed, $((SECONDS - start)) s"
}

make_federation
make_data "$work/cart.jsonl" 1
serve env || fail "the server does not start"
read -r port _ <"$work/server/address"
snapshot_port=$port
token_text=$(token)
echo "$token_text" >"$work/token-of-empty"
stop_server
take_snapshot empty
serve env || fail "the server does not start"
prepare_policy
serve env || fail "the server does not start"
join env || fail "cannot enrol: $(tail -1 "$work/cart.log")"
stop_server
take_snapshot enrolled

side_number=0
for side in init enrol client server; do
    side_number=$((side_number + 1))
    [ -z "$only_side" ] || [ "$only_side" = $side ] || continue
    # shellcheck disable=SC2086
    run_side $side "$([[ $side == init || $side == enrol ]] && echo empty || echo enrolled)" $kinds
done
echo "real programs: $points points, $failures failed"
[ $failures = 0 ]
