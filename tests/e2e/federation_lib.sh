# shellcheck shell=bash
# Functions that run a federation of real processes: sourced by the demo, the measurements and the
# comparisons. Needs TACIT_BIN (folder of the programs). Every process started here is remembered in
# fed_pids and ended by fed_stop; nothing else is ever signalled.

fed_pids=()

fed_say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

fed_fail() {
    echo "federation: $*" >&2
    exit 1
}

# fed_stop: ends what was started, the newest first, and waits for it.
fed_stop() {
    local i
    for ((i = ${#fed_pids[@]} - 1; i >= 0; i--)); do
        kill "${fed_pids[$i]}" 2>/dev/null || true
    done
    for ((i = ${#fed_pids[@]} - 1; i >= 0; i--)); do
        wait "${fed_pids[$i]}" 2>/dev/null || true
    done
    fed_pids=()
}

# fed_wait_for SECONDS COMMAND...: until the command succeeds.
fed_wait_for() {
    local left=$(($1 * 10))
    shift
    until "$@" 2>/dev/null; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.1
    done
}

# fed_server DIR MODEL MMPROJ GATE [MARGIN]: makes and starts a server on free ports of 127.0.0.1.
# MMPROJ and GATE may be empty; MARGIN is the gate's, where its default is not wanted.
fed_server() {
    local dir=$1 model=$2 mmproj=$3 gate=$4 margin=${5:-} options=()
    [ -n "$mmproj" ] && options+=(--mmproj "$mmproj")
    [ -n "$gate" ] && options+=(--gate "$gate")
    "$TACIT_BIN/tacit-server" init "$dir" --host 127.0.0.1 --name 127.0.0.1 --port 0 \
        --enrol-port 0 --model "$model" "${options[@]}" >/dev/null
    sed -i 's/^poll_ms: .*/poll_ms: 500/' "$dir/server.yaml"
    [ -z "$margin" ] || sed -i "s/^  margin: [0-9.]*/  margin: $margin/" "$dir/server.yaml"
    "$TACIT_BIN/tacit-server" run --dir "$dir" 2>>"$dir/server.log" &
    fed_pids+=($!)
    fed_wait_for 30 test -s "$dir/address" || fed_fail "the server did not start: $(tail -1 "$dir/server.log")"
    fed_wait_for 30 "$TACIT_BIN/tacit-server" token list --dir "$dir" --json >/dev/null ||
        fed_fail "the server does not answer: $(tail -1 "$dir/server.log")"
}

# fed_enrol SERVER_DIR CLIENT_DIR NAME MODEL MMPROJ DATA POLICY: enrols a device; POLICY is the text
# under "policy:" of its client.yaml.
fed_enrol() {
    local server=$1 dir=$2 name=$3 model=$4 mmproj=$5 data=$6 policy=$7 token port
    port=$(cut -d' ' -f1 "$server/address")
    token=$("$TACIT_BIN/tacit-server" token create --dir "$server" --json |
        sed 's/.*"token":"\([^"]*\)".*/\1/')
    mkdir -p "$dir"
    {
        echo "model:"
        echo "  text: \"$model\""
        [ -n "$mmproj" ] && printf '  mmproj:\n    - "%s"\n' "$mmproj"
        echo "data: \"$data\""
        echo "threads: 1"
        echo "poll_seconds: 1"
        echo "policy:"
        echo "$policy"
    } >"$dir/client.yaml"
    "$TACIT_BIN/tacit-client" enroll --server "tls+tcp://127.0.0.1:$port" --token "$token" \
        --dir "$dir" --name "$name" >>"$dir/client.log" 2>&1 ||
        fed_fail "$name cannot enrol: $(tail -1 "$dir/client.log")"
}

# fed_client CLIENT_DIR: starts the agent.
fed_client() {
    OPENBLAS_NUM_THREADS=1 "$TACIT_BIN/tacit-client" run --dir "$1" 2>>"$1/client.log" &
    fed_pids+=($!)
}

# fed_json FILE KEY: the first value of that key, a number or a word.
fed_json() { grep -o "\"$2\": *\"\{0,1\}[^\",}]*" "$1" | head -1 | sed 's/^[^:]*: *"\{0,1\}//'; }

# fed_active CLIENT_DIR VERSION: true when the device has activated at least this version.
fed_active() {
    local version
    version=$(fed_json "$1/adapters/active.json" version)
    [ -n "$version" ] && [ "$version" -ge "$2" ]
}
