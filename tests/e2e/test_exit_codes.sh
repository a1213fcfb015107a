#!/usr/bin/env bash
# Exit codes of all four programs for what they are given: 2 for a wrong command line, 3 for a file
# that is missing or damaged, and one line that names it.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

"$bin/write_tiny_model" "$work"
make_data "$work/data.jsonl" 1
model=$work/text.gguf missing=$work/missing
head -c 5000 "$model" >"$work/cut.gguf"
head -c 5000 /dev/urandom >"$work/noise"
tacit=$bin/tacit client=$bin/tacit-client server=$bin/tacit-server audit=$bin/tacit-audit

# A command line that cannot be meant.
for program in "$tacit" "$client" "$server" "$audit"; do
    expect 2 'see|usage' "$program" no-such-command
done
# Every command of a program, of one word or of two, tells its help and the program's version.
for program in "$tacit" "$client" "$server" "$audit"; do
    name=$(basename "$program")
    version=$("$program" --version)
    grep -qE "^$name [0-9]+\.[0-9]+\.[0-9]+$" <<<"$version" || fail "$name --version: $version"
    while IFS= read -r words; do
        # shellcheck disable=SC2086
        [ "$("$program" $words --version)" = "$version" ] || fail "$name $words --version: another version"
        # shellcheck disable=SC2086
        expect 0 '^ +--version ' "$program" $words --help
        # One style: what may repeat is said by the table, an option's line begins in one column.
        # shellcheck disable=SC2086
        help=$("$program" $words --help)
        ! grep -qE '\(may repeat\)|may be repeated|may repeat.*may repeat' <<<"$help" || fail "$name $words: repeats told twice"
    done < <("$program" --help | sed -n 's/^  \([a-z][a-z -]*[a-z]\)  .*/\1/p' | sed 's/ *$//')
done
expect 0 '^tacit-server [0-9.]+$' "$server" device --version
# "help" is --help; what is no answer to a question goes to stderr.
for program in "$tacit" "$client" "$server" "$audit"; do
    [ "$("$program" help)" = "$("$program" --help)" ] || fail "$program help is not its --help"
    [ -z "$("$program" 2>/dev/null || true)" ] || fail "$program without a command prints to stdout"
    expect 2 'COMMAND' "$program"
done
[ "$("$tacit" help run)" = "$("$tacit" run --help)" ] || fail "help run is not run --help"
[ "$("$tacit" help sensor new)" = "$("$tacit" sensor new --help)" ] || fail "help sensor new is another"
[ "$("$server" help device)" = "$("$server" device --help)" ] || fail "help device is not device --help"
expect 2 "unknown command 'no-such'" "$tacit" help no-such
# A value is told with the option as it is typed.
expect 2 '^tacit: --temp: expected a number from 0 to 100, found .abc.$' "$tacit" run -m x -p x --temp abc
expect 2 '^tacit: --tokens: expected an integer from 1 to 1000000, found .0.$' "$tacit" run -m x -p x -n 0
expect 2 '' "$tacit" eval --no-such-option
expect 2 'dir' "$client" status
expect 2 '' "$server" run --no-such-option
expect 2 '' "$audit" verify

# The engineer's program: each kind of file that it reads.
for file in "$missing" "$work/cut.gguf" "$work/noise"; do
    name=$(basename "$file")
    expect 3 "$name" "$tacit" inspect "$file"
    expect 3 "$name" "$tacit" tokenize -m "$file" -p x
    expect 3 "$name" "$tacit" run -m "$file" -p x
    expect 3 "$name" "$tacit" logits -m "$file" -p x
    expect 3 "$name" "$tacit" bench -m "$file"
    expect 3 "$name" "$tacit" eval -m "$file" --data "$work/data.jsonl"
    expect 3 "$name" "$tacit" run -m "$model" --mmproj "$file" -p x
    expect 3 "$name" "$tacit" run -m "$model" --adapter "$file" -p x
    expect 3 "$name" "$tacit" eval -m "$model" --adapter "$file" --data "$work/data.jsonl"
    expect 3 "$name" "$tacit" train -m "$file" --data "$work/data.jsonl" --trainable lora --out "$work/x"
done
expect 3 missing "$tacit" eval -m "$model" --data "$missing"
expect 3 missing "$tacit" train -m "$model" --data "$missing" --trainable lora --out "$work/x"
expect 3 missing "$tacit" run -m "$model" --mmproj "$work/mmproj.gguf" --image "$missing" -p x
expect 3 noise "$tacit" run -m "$model" --mmproj "$work/mmproj.gguf" --image "$work/noise" -p x
expect 3 missing "$tacit" embed -m "$model" --mmproj "$work/mmproj.gguf" --image "$missing"

# Output that does not arrive is a failure, of every command that prints.
full() { "$@" >/dev/full; }
m=(-m "$model")
see=("${m[@]}" --mmproj "$work/mmproj.gguf" --image "$TACIT_SOURCE/tests/fuzz/corpus/image/good/jpeg_full")
for words in "run ${m[*]} -p x -n 2" "run ${m[*]} -p x -n 2 --json" "logits ${m[*]} -p x" "tokenize ${m[*]} -p x" \
    "bench ${m[*]} -p 4 -n 2 -r 1" "inspect $model" "embed ${see[*]}" "eval ${m[*]} --data $work/data.jsonl -n 2" \
    "quantize $model $work/q.gguf --type q8_0" "calibrate ${m[*]} --data $work/data.jsonl -o $work/i.gguf" \
    "train ${m[*]} --data $work/data.jsonl --trainable lora --out $work/a.gguf" --help --version "run --help"; do
    # shellcheck disable=SC2086
    expect 1 '^tacit: cannot (write to|print)' full "$tacit" $words
done

# The device's program.
expect 3 'client.yaml' "$client" run --dir "$missing"
expect 3 'client.yaml' "$client" status --dir "$missing"
[ ! -e "$missing" ] || fail "status made a folder"
expect 3 missing "$client" train --dir "$work/device" --model "$model" --data "$missing" --out "$work/x"
expect 3 missing "$client" train --dir "$work/other" --model "$missing" --data "$work/data.jsonl" --out "$work/x"
[ ! -e "$work/device/client.yaml" ] || fail "a client.yaml that names no file was written"
expect 3 noise "$client" train --dir "$work/device" --model "$work/noise" --data "$work/data.jsonl" --out "$work/x"
"$client" status --dir "$work/device" >/dev/null || fail "status of a folder without an account"
cp "$work/noise" "$work/device/client.db"
rm -f "$work/device/client.db-wal" "$work/device/client.db-shm"
expect 3 'client.db' "$client" status --dir "$work/device"
cmp "$work/noise" "$work/device/client.db" || fail "status wrote to a damaged database"
echo 'policy: {' >"$work/device/client.yaml"
expect 3 'client.yaml' "$client" status --dir "$work/device"

# The operator's program.
expect 3 'missing' "$server" run --dir "$missing"
expect 3 'missing' "$server" token list --dir "$missing"
expect 3 'missing' "$server" init "$work/server" --model "$missing" --gate "$work/data.jsonl"
"$server" init "$work/server" --host 127.0.0.1 --port 0 --enrol-port 0 --model "$model" \
    --gate "$work/data.jsonl" >/dev/null
sed -i "s|$model|$missing|" "$work/server/server.yaml"
expect 3 'missing' "$server" run --dir "$work/server"
sed -i "s|$missing|$model|" "$work/server/server.yaml"
mv "$work/server/keys/server.key" "$work/server.key"
expect 3 'server.key' "$server" run --dir "$work/server"
rm "$work/server/server.yaml"
expect 3 'server.yaml' "$server" run --dir "$work/server"

# The auditor's program.
expect 3 'missing' "$audit" verify "$missing"
mkdir "$work/export"
expect 3 'export' "$audit" verify "$work/export"
expect 3 'missing' "$audit" verify "$work/export" --receipt "$missing"
echo "exit codes hold"
