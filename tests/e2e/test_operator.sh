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
# What 'run' could not work with is refused as well.
expect 3 'gate.jsonl: expected the magic' "$bin/tacit-server" init "$work/never" --model gate.jsonl
expect 3 "architecture 'clip'" "$bin/tacit-server" init "$work/never" --model mmproj.gguf
unknown_template text.gguf odd.gguf
expect 3 "odd.gguf: the model's chat template, .* is not one of those supported .*; devices take the template of the model's file" \
    "$bin/tacit-server" init "$work/never" --model odd.gguf
expect 3 "'bad name': expected a DNS name" "$bin/tacit-server" init "$work/never" --name 'bad name' --model text.gguf
{ cat gate.jsonl; echo '{"id":"p","messages":[{"role":"user","content":[{"type":"image","image":"img/no.png"}]},{"role":"assistant","content":"1"}]}'; } >pictures.jsonl
expect 3 "pictures.jsonl:$(wc -l <pictures.jsonl): .*img/no.png: cannot read" \
    "$bin/tacit-server" init "$work/never" --model text.gguf --gate pictures.jsonl
[ ! -e "$work/never" ] || fail "init left a folder behind"

# The first word of several commands lists them; behind it only they are known.
expect 0 '^  adapter rollback ' "$bin/tacit-server" adapter --help
"$bin/tacit-server" adapter --help >"$work/adapter.help"
grep -q 'device list' "$work/adapter.help" && fail "another group's commands are listed"
expect 2 'token create' "$bin/tacit-server" token
expect 2 "unknown command 'device shwo'; see 'tacit-server device --help'" "$bin/tacit-server" device shwo
(cd "a folder" && expect 0 'is ready' "$bin/tacit-server" init "$work/server" --host 127.0.0.1 --port 0 \
    --enrol-port 0 --model ../text.gguf --gate ../gate.jsonl)
expect 5 'no server answers' verb device list
sed 's|text.gguf|odd.gguf|' server/server.yaml >server.yaml && mv server.yaml server/ && chmod 600 server/server.yaml
expect 3 'odd.gguf: .* devices take the template' "$bin/tacit-server" run --dir "$work/server"
sed -i 's|odd.gguf|text.gguf|' server/server.yaml
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
# A path that is too long is refused, never cut to one that names something else.
long=$(printf '/%0200d' {1..20})
expect 2 'OUT: expected at most 4094 bytes, found 8040' verb ledger export "$long$long"
expect 2 'OUT: expected at most' verb ledger export "${long:1}$(printf 'x%.0s' {1..80})"
expect 1 'File name too long' verb ledger export "$work/$(printf '%0300d' 1)"
# Nor does an export take the place of what the server keeps, by whatever name.
ln -s server "$work/by another name"
mkdir "$work/empty"
for out in "$work/server/uploads" "$work/server/adapters/" "$work/by another name/uploads" \
    "$work/empty/../server/export"; do
    expect 1 "lies in the server's own folder" verb ledger export "$out"
done
[ "$(stat -c %a "$work/server/uploads")" = 700 ] || fail "uploads was replaced"
expect 1 'is not an export' verb ledger export "$work/by another name"
expect 0 exported verb ledger export "$work/empty"
stop_server
echo "operator: ok"
