#!/usr/bin/env bash
# The operator's side of things that go wrong: paths as typed, files that are not there, a second
# server, long lists, an output that takes nothing.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$(dirname "$0")/federation.sh"

"$bin/write_tiny_model" "$work"
make_data "$work/gate.jsonl" 0
mkdir "$work/a folder"
cd "$work"

# Files are meant from where they were typed, and looked at before a folder is made.
expect 3 'none.gguf: cannot read' "$bin/tacit-server" init "$work/never" --model none.gguf
expect 3 'none.jsonl: cannot read' "$bin/tacit-server" init "$work/never" --model text.gguf --gate none.jsonl
expect 3 'none.gguf: cannot read' "$bin/tacit-server" init "$work/never" --model text.gguf --mmproj none.gguf
# What 'run' could not work with is refused as well.
expect 3 'gate.jsonl: expected the magic' "$bin/tacit-server" init "$work/never" --model gate.jsonl
expect 3 "architecture 'clip'" "$bin/tacit-server" init "$work/never" --model mmproj.gguf
expect 3 "'bad name': expected a DNS name" "$bin/tacit-server" init "$work/never" --name 'bad name' --model text.gguf
{ cat gate.jsonl; echo '{"id":"p","messages":[{"role":"user","content":[{"type":"image","image":"img/no.png"}]},{"role":"assistant","content":"1"}]}'; } >pictures.jsonl
expect 3 "pictures.jsonl:$(wc -l <pictures.jsonl): .*img/no.png: cannot read" \
    "$bin/tacit-server" init "$work/never" --model text.gguf --gate pictures.jsonl
[ ! -e "$work/never" ] || fail "init left a folder behind"

# The first word of several commands lists them; behind it only they are known.
expect 0 '^  adapter rollback ' "$bin/tacit-server" adapter --help
"$bin/tacit-server" adapter --help | grep -q 'device list' && fail "another group's commands are listed"
expect 2 'token create' "$bin/tacit-server" token
expect 2 "unknown command 'device shwo'; see 'tacit-server device --help'" "$bin/tacit-server" device shwo
(cd "a folder" && expect 0 'is ready' "$bin/tacit-server" init "$work/server" --host 127.0.0.1 --port 0 \
    --enrol-port 0 --model ../text.gguf --gate ../gate.jsonl)
expect 5 'no server answers' verb device list
start_server
expect 0 '^none$' verb device list
expect 0 '^none$' verb round list
expect 1 "'nobody' is no device" verb device show nobody
expect 1 "'01234567' names 0 rounds" verb round show 01234567
expect 1 'another tacit-server serves this folder' "$bin/tacit-server" run --dir "$work/server"

# More rows than one message holds.
for _ in 1 2 3 4; do verb token create --count 1000 --json >/dev/null; done
[ "$(verb token list --json | grep -o '"state":"open"' | wc -l)" = 4000 ] || fail "the list of tokens is cut"

expect 1 'cannot write to standard output' bash -c "'$bin/tacit-server' token list --dir '$work/server' >/dev/full"
stop_server
echo "operator: ok"
