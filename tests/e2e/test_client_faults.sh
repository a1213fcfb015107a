#!/usr/bin/env bash
# What a device does when something around it is wrong: exit codes, one line each, nothing spent,
# nothing lost.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
client=$bin/tacit-client
for name in cart van; do
    make_data "$work/$name.jsonl" 1
done
status_of() { "$client" status --dir "$work/$1" --json | json "$2"; }
once() { "$client" run --dir "$work/$1" --once --patience "${2:-20}"; }

# Before enrolment.
expect 3 'client.yaml' "$client" run --dir "$work/nobody"
expect 2 'dir' "$client" run
expect 2 'tls\+tcp://' "$client" enroll --server http://127.0.0.1 --token "$(token)" --dir "$work/x"

# What cannot work is refused before the token is used up, and leaves no client.yaml behind.
unused=$(token)
join() { "$client" enroll --token "$unused" --dir "$work/new" "$@"; }
url=tls+tcp://127.0.0.1:$port
expect 3 'none.gguf: cannot read' join --server "$url" --model none.gguf --data "$work/cart.jsonl"
expect 3 'none.jsonl: cannot read' join --server "$url" --model "$work/text.gguf" --data none.jsonl
[ ! -e "$work/new/client.yaml" ] || fail "a client.yaml with a wrong path was written"
expect 3 'expected the magic' join --server "$url" --model "$work/gate.jsonl" --data "$work/cart.jsonl"
expect 1 "'model.text' is .*gate.jsonl there, not .*text.gguf; edit it" \
    join --server "$url" --model "$work/text.gguf"
sed -i "s|text: .*|text: \"$work/text.gguf\"|" "$work/new/client.yaml"
expect 2 "port $enrol_port is for enrolment alone" join --server "tls+tcp://127.0.0.1:$enrol_port"
expect 0 'connection is refused.* not the port for devices, correct .server. in' join --server tls+tcp://127.0.0.1:9
sed -i "s|^server: .*|server: \"$url\"|" "$work/new/client.yaml"
expect 0 'the server has no round for this device now' once new
verb device revoke "$("$client" status --dir "$work/new" --json | json device | cut -c1-8)" >/dev/null

# A model that no record can be put to: nothing would be learned from what is spent.
unknown_template "$work/text.gguf" "$work/odd.gguf"
odd='odd.gguf: the model.s chat template, .* is not one of those supported .*; devices take the template of the model.s file'
expect 3 "$odd" "$client" enroll --token "$(token)" --dir "$work/odd" --server "$url" --model "$work/odd.gguf" --data "$work/cart.jsonl"
expect 3 "$odd" "$client" train --dir "$work/odd-alone" --model "$work/odd.gguf" --data "$work/cart.jsonl" --out "$work/x.gguf" \
    --epsilon 3 --steps 3 --q 0.25
[ "$(status_of odd-alone reserves)" = 0 ] || fail "budget was spent on a model without a template"

# A policy that became stricter since the enrolment: the plan is refused, and nothing is spent.
enrol van "$(token)" >/dev/null
enrol cart "$(token)" >/dev/null
sed -i 's/^  minimum_noise_multiplier:.*/  minimum_noise_multiplier: 30/' "$work/van/client.yaml"
lineage
expect 4 'noise multiplier 20 is below this device.s minimum 30' once van
[ "$(status_of van reserves)" = 0 ] || fail "a refused plan was reserved"

# A plan whose uploads would show how long training takes.
sed -i 's/^  minimum_noise_multiplier:.*/  minimum_noise_multiplier: 0.5/; s/^  minimum_pad_seconds:.*/  minimum_pad_seconds: 60/' \
    "$work/van/client.yaml"
expect 4 'pad of 0 seconds .* minimum_pad_seconds 60' once van
[ "$(status_of van minimum_pad_seconds)" = 60 ] || fail "status does not show the least pad"
expect 0 'at least 60 s after the reserve' "$client" status --dir "$work/van"
[ "$(status_of van reserves)" = 0 ] || fail "a refused plan was reserved"
sed -i 's/^  minimum_pad_seconds:.*/  minimum_pad_seconds: 0/' "$work/van/client.yaml"

# A policy that allows more than was declared.
sed -i 's/^  minimum_noise_multiplier:.*/  minimum_noise_multiplier: 0.4/' "$work/van/client.yaml"
expect 4 'allows more than this device declared' once van
sed -i 's/^  minimum_noise_multiplier:.*/  minimum_noise_multiplier: 30/' "$work/van/client.yaml"

# No room on the disk: nothing is reserved or sent, one line says why.
(
    trap '' XFSZ
    ulimit -f 1
    expect 1 'client' once cart
)
[ "$(status_of cart reserves)" = 0 ] || fail "something was reserved on a full disk"

# Data and model that cannot be read, and another model.
mv "$work/cart.jsonl" "$work/away.jsonl"
expect 3 'cannot read the data' once cart
mv "$work/away.jsonl" "$work/cart.jsonl"
sed -i "s|text: .*|text: \"$work/missing.gguf\"|" "$work/cart/client.yaml"
expect 3 'missing.gguf' once cart
{ cat "$work/text.gguf"; printf 'x'; } >"$work/other.gguf"
sed -i "s|text: .*|text: \"$work/other.gguf\"|" "$work/cart/client.yaml"
expect 4 'plan is for the base [0-9a-f]{64}, this device has [0-9a-f]{64}' once cart
sed -i "s|text: .*|text: \"$work/text.gguf\"|" "$work/cart/client.yaml"

# An interrupted run goes on; two at a time do not.
start_device cart
until_true 30 eval "[ \"\$(status_of cart spends)\" = 1 ]" || fail "cart does not take part"
expect 1 'another tacit-client' once cart
stop_device cart
grep -q 'stopped; the next run continues' "$work/cart.log" || fail "the stop was not told"
verb round cancel >/dev/null

# A server that is away.
cp -r "$work/cart" "$work/clone"
stop_server
expect 5 'server' once cart 1
start_server

# Looser again, both devices: a round, its adapter damaged on the server before a device has it.
make_data "$work/cab.jsonl" 1
enrol cab "$(token)" >/dev/null
lineage --target 2 # van still refuses
start_device cart
start_device cab
until_true 60 rounds_ended 2 || fail "the round does not end"
until_true 30 eval "[ \"\$(status_of cart version)\" = 1 ]" || fail "cart has no adapter"
stop_device cart
stop_device cab
digest=$(verb adapter list --json | json file_digest)
file=$work/server/adapters/$digest.gguf
cp "$file" "$work/good.gguf"
rm -f "$work"/van/adapters/*
# As many bytes as no adapter holds by chance: one of 256 holds any single one.
printf 'not what it was' | dd of="$file" bs=1 seek=1500 conv=notrunc status=none
expect 6 'another digest' once van
[ "$("$client" status --dir "$work/van" --json | grep -c '"active_adapter":null')" = 1 ] || fail "a damaged adapter is active"
cp "$work/good.gguf" "$file"
once van 2>/dev/null || fail "the good adapter is refused"
[ "$(status_of van version)" = 1 ] || fail "the good adapter is not active"

# A copy of a device that lags is told so and takes no part; the device is none the worse for it.
# What two copies do that answer alike is test_restored.sh's business.
lineage
until_true 20 eval "[ \"\$(last_round state)\" = collecting ]" || fail "no round collects"
expect 4 'an older copy, or another copy works' once clone
[ "$(verb device show cart --json | json state)" = active ] || fail "the device was frozen for its copy"
verb round cancel >/dev/null

# Training without the server: charged to the same account, resumed for nothing, refused at the cap.
make_data "$work/own.jsonl" 1
train() { "$client" train --dir "$work/alone" --model "$work/text.gguf" --data "$work/own.jsonl" --steps 3 --q 0.25 --rank 2 --json "$@"; }
expect 4 'noise multiplier 0.4' train --out "$work/a.gguf" --noise-multiplier 0.4
TACIT_KILL_AT=client.mid_training:2 train --out "$work/a.gguf" --epsilon 3 >/dev/null 2>&1 && fail "it was not killed"
spent=$("$client" status --dir "$work/alone" --json | json epsilon)
expect 0 'continuing' train --out "$work/a.gguf" --epsilon 3
[ "$("$client" status --dir "$work/alone" --json | json epsilon)" = "$spent" ] || fail "the restart was charged"
"$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/a.gguf" --data "$work/own.jsonl" --json >/dev/null ||
    fail "the adapter does not load"
expect 4 "this device's cap is 8" train --out "$work/b.gguf" --epsilon 7.9
[ ! -e "$work/b.gguf" ] || fail "a refused training wrote an adapter"

# What cannot be asked for is refused with its own reason, not with that of a computation on it.
expect 4 'epsilon 9 is above this device.s cap 8' train --out "$work/never.gguf" --epsilon 9
sed -i 's/^  epsilon: 8 .*/  epsilon: 60/' "$work/alone/client.yaml"
expect 2 'epsilon 50: .*ask for less epsilon' train --out "$work/never.gguf" --epsilon 50
sed -i 's/^  epsilon: 60/  epsilon: 8/' "$work/alone/client.yaml"

# Who trained alone before cannot join a log that begins with the enrolment.
expect 1 'enrols before it trains' "$client" enroll --server "$url" --token "$(token)" --dir "$work/alone"
stop_server
echo "faults are told"
