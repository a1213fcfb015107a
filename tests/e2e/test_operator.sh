#!/usr/bin/env bash
# The operator's side of things that go wrong: paths as typed, files that are not there, a second
# server, long lists, an output that takes nothing.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

"$bin/write_tiny_model" "$work"
make_data "$work/gate.jsonl" 0
mkdir "$work/a folder"
cd "$work"

# Files are meant from where they were typed, and looked at before a folder is made.
expect 3 'none.gguf: cannot read' "$bin/tacit-server" init "$work/never" --model none.gguf
expect 3 'none.jsonl: cannot read' "$bin/tacit-server" init "$work/never" --model text.gguf --gate none.jsonl
expect 3 'none.gguf: cannot read' "$bin/tacit-server" init "$work/never" --model text.gguf --mmproj none.gguf
[ ! -e "$work/never" ] || fail "init left a folder behind"
(cd "a folder" && expect 0 'is ready' "$bin/tacit-server" init "$work/server" --host 127.0.0.1 --port 0 \
    --enrol-port 0 --model ../text.gguf --gate ../gate.jsonl)
expect 5 'no server answers' verb device list
start_server
expect 1 'another tacit-server serves this folder' "$bin/tacit-server" run --dir "$work/server"

# More rows than one message holds.
for _ in 1 2 3 4; do verb token create --count 1000 --json >/dev/null; done
[ "$(verb token list --json | grep -o '"state":"open"' | wc -l)" = 4000 ] || fail "the list of tokens is cut"

expect 1 'cannot write to standard output' bash -c "'$bin/tacit-server' token list --dir '$work/server' >/dev/full"
stop_server
echo "operator: ok"
