# shellcheck shell=bash
# Functions for tests of whole federations: one server, devices, tokens, rounds. Sourced; wants
# TACIT_BIN. Everything lies in $work; only processes that were started here are ended.
# shellcheck source=tests/e2e/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
bin=$TACIT_BIN
work=$(mktemp -d "${TACIT_TEST_DIR:-/tmp}/tacit-e2e-XXXXXX")
server_pid=
declare -A device_pid=()

# Shows the end of every program's log, too.
fail() {
    echo "FAILED: $*" >&2
    for log in "$work"/*.log; do echo "--- $log" >&2; tail -25 "$log" >&2; done
    exit 1
}

cleanup() {
    local pid
    for pid in $server_pid "${device_pid[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    [ -n "${TACIT_KEEP:-}" ] || rm -rf "$work"
}
trap cleanup EXIT

# until_true SECONDS COMMAND...: asks again until it succeeds; the bound is for broken runs only.
until_true() {
    local tries=$(($1 * 20))
    shift
    until "$@"; do
        ((tries-- > 0)) || return 1
        sleep 0.05
    done
}

# json FIELD: the value of the last "FIELD": in the JSON on standard input.
json() { tr ',{}[]' '\n' | sed -n "s/^\"$1\":\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" | tail -1; }

verb() { "$bin/tacit-server" "$@" --dir "$work/server"; }

make_data() { # make_data FILE NUMBER: six records of six subjects
    local k
    for k in 1 2 3 4 5 6; do
        printf '{"id":"r%d-%d","subject":"s%d","messages":[{"role":"user","content":"how much is %d?"},{"role":"assistant","content":"%d"}]}\n' \
            "$2" "$k" "$k" "$k" "$((k + $2))"
    done >"$1"
}

# A port that nobody listens on, below those that the system gives to whoever asks for any: a server
# that is started again finds it as free as it was.
free_port() {
    local candidate
    while candidate=$(shuf -i 10240-32000 -n 1); do
        (: <>"/dev/tcp/127.0.0.1/$candidate") 2>/dev/null || break
    done
    echo "$candidate"
}

# Two that differ, into `ports`.
free_ports() {
    ports=("$(free_port)" "$(free_port)")
    while [ "${ports[0]}" = "${ports[1]}" ]; do ports[1]=$(free_port); done
}

# serve_until KILL_POINT: serves $work/server. "": no point.
serve_until() {
    rm -f "$work/server/address"
    TACIT_KILL_AT=$1 "$bin/tacit-server" run --dir "$work/server" >>"$work/server.log" 2>&1 &
    server_pid=$!
    until_true 30 test -s "$work/server/address" || fail "the server does not start"
    # shellcheck disable=SC2034 # tests use both
    read -r port enrol_port <"$work/server/address"
}

start_server() { serve_until ""; }

stop_server() {
    local code=0
    kill "$server_pid"
    wait "$server_pid" || code=$?
    server_pid=
    [ "$code" = 0 ] || fail "the server ended with $code"
}

# The server ends by its kill point.
await_kill() { # await_kill PID
    local code=0
    until_true 60 eval "! kill -0 $1 2>/dev/null" || fail "process $1 was not killed"
    wait "$1" || code=$?
    [ "$code" = 137 ] || fail "expected a kill, found exit $code"
}

make_federation() { # make_federation: model, data, server folder
    "$bin/write_tiny_model" "$work"
    make_data "$work/gate.jsonl" 0
    free_ports
    "$bin/tacit-server" init "$work/server" --host 127.0.0.1 --port "${ports[0]}" --enrol-port "${ports[1]}" \
        --model "$work/text.gguf" --gate "$work/gate.jsonl" >/dev/null
    # A random model answers nothing right: only the loss moves, and noise may raise it.
    sed -i 's/^poll_ms.*/poll_ms: 100/; s/^  margin:.*/  margin: 1/' "$work/server/server.yaml"
}

token() { verb token create --json | json token; }

enrol() { # enrol NAME TOKEN
    "$bin/tacit-client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$2" --dir "$work/$1" \
        --name "$1" --model "$work/text.gguf" --data "$work/$1.jsonl" || return
    # Uploads of these federations do not wait; test_client_faults.sh looks at the key itself.
    sed -i 's/^  minimum_pad_seconds:.*/  minimum_pad_seconds: 0/' "$work/$1/client.yaml"
}

start_device() { # start_device NAME [KILL_POINT]
    TACIT_KILL_AT=${2:-} "$bin/tacit-client" run --dir "$work/$1" >>"$work/$1.log" 2>&1 &
    device_pid[$1]=$!
}

# start_pair: cart and van, enrolled and running, with data of six subjects each.
start_pair() {
    local name
    for name in cart van; do
        make_data "$work/$name.jsonl" 1
        enrol "$name" "$(token)" >/dev/null
        start_device "$name"
    done
}

stop_device() { # stop_device NAME
    kill "${device_pid[$1]}"
    wait "${device_pid[$1]}" || true
    unset "device_pid[$1]"
}

# lineage OPTIONS...: starts one whose noise is high and whose cost is low.
lineage() {
    verb round start --rounds 1 --steps 2 --q 0.25 --noise-multiplier 20 --cohort 2 --quorum 2 \
        --pad-seconds 0 --deadline-seconds 120 "$@" >/dev/null
}

# same_epsilon NAME: the server's account of a device, from the log, is the device's own.
same_epsilon() {
    local theirs ours
    theirs=$("$bin/tacit-client" status --dir "$work/$1" --json | grep -o '"account":{"epsilon":[0-9.e-]*')
    ours=$(verb device show "$1" --json | json epsilon)
    [[ -n $ours && ${theirs#*epsilon\":} = "$ours" ]] || fail "$1: epsilon $theirs, the server says $ours"
}

last_round() { verb round list --json | json "$1"; }
rounds_ended() { [ "$(verb round list --json | grep -oE '"state":"(published|failed)"' | wc -l)" -ge "$1" ]; }
published() { verb adapter list --json | grep -o '"file_digest"' | wc -l; }
