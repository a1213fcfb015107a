#!/usr/bin/env bash
# tacit eval and tacit embed as a person types them: JSON, bad records, bad files, exit codes.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
subject=("$tacit")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$TACIT_BIN/write_tiny_model" "$dir"
cp "$TACIT_SOURCE/tests/fuzz/corpus/image/good/jpeg_full" "$dir/a.jpg"
cp "$TACIT_SOURCE/tests/fuzz/corpus/image/good/png_colour" "$dir/b.png"
head -c 300 "$dir/a.jpg" >"$dir/half.jpg"
line() { printf '{"id":"%s","messages":[{"role":"user","content":[{"type":"image","image":"%s"},{"type":"text","text":"%s"}]},{"role":"assistant","content":"%s"}]}\n' "$@"; }
{ line number:1 a.jpg "how fast?" 7; line number:2 a.jpg "how far?" 8; line label:3 b.png "which?" low; } >"$dir/good.jsonl"
{ cat "$dir/good.jsonl"; line number:4 half.jpg "how?" 9; line number:5 ../a.jpg "how?" 9; line number:6 none.jpg x y; } >"$dir/bad.jsonl"
model=(-m "$dir/text.gguf" --mmproj "$dir/mmproj.gguf")

expect 0 '"accuracy":[01]\.[0-9]+,"loss":[0-9.]+,"perplexity":[0-9.]+,"examples":3,"records":3,"skipped":0,"decode_tokens_per_s":[0-9.]+,"peak_rss_bytes":[0-9]+,"by_kind":\{"number":\{"accuracy":[0-9.]+,"examples":2\},"label"' \
    eval "${model[@]}" --data "$dir/good.jsonl" --json -n 4
expect 0 'accuracy .* of 3 answers' eval "${model[@]}" --data "$dir/good.jsonl" -n 4 --fast
expect 0 '"examples":1,' eval "${model[@]}" --data "$dir/good.jsonl" --limit 1 --json
expect 0 '(right|wrong) label:3: expected .low., answered' eval "${model[@]}" --data "$dir/good.jsonl" --answers

# Why answers end.
expect 0 '"finish_reasons":\{"stop":0,"length":3,"context":0\}' eval "${model[@]}" --data "$dir/good.jsonl" --json -n 4
expect 0 '1 answers were ended by the model.s context of 512 rows' eval "${model[@]}" --data "$dir/good.jsonl" -n 600 --limit 1
expect 0 'ended +0 by themselves, 0 by --tokens, 1 by a full context' eval "${model[@]}" --data "$dir/good.jsonl" -n 600 --limit 1

# The same numbers whatever the threads, and other numbers for other marker tokens.
loss() { "$tacit" eval "${model[@]}" --data "$dir/good.jsonl" --json -n 4 "$@" | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
[ "$(loss -t 1)" = "$(loss -t 3)" ] || fail "the loss depends on the number of threads"
[ "$(loss)" != "$(loss --form mtmd)" ] || fail "--form mtmd changes nothing"
[ "$(loss --form mtmd)" != "$(loss --form mtmd-ik)" ] || fail "--form mtmd-ik is --form mtmd"

# A damaged picture, a path outside, a missing file: skipped and counted, or an error.
expect 0 'bad.jsonl:4: .*half.jpg: damaged JPEG.*skipped' eval "${model[@]}" --data "$dir/bad.jsonl" -n 1
expect 0 '"records":3,"skipped":3' eval "${model[@]}" --data "$dir/bad.jsonl" --json -n 1
expect 3 'bad.jsonl:5: .*stay inside' eval "${model[@]}" --data "$dir/bad.jsonl" --strict
{ line a half.jpg q r; } >"$dir/half.jsonl"
expect 3 'no record could be evaluated' eval "${model[@]}" --data "$dir/half.jsonl"
expect 3 'half.jsonl:1.*damaged JPEG' eval "${model[@]}" --data "$dir/half.jsonl" --strict
expect 3 'give its file with --mmproj' eval -m "$dir/text.gguf" --data "$dir/good.jsonl" --strict

# A chat template that is not supported is a fault of the model: said once and before data are read. The one
# that is chosen instead gives the numbers of the file's own.
unknown_template "$dir/text.gguf" "$dir/odd.gguf"
expect 3 "chat template, which begins with '<.im_start.>.*', is not one of those supported .*; choose one with --chat-template$" \
    eval -m "$dir/odd.gguf" --data "$dir/nowhere.jsonl"
[ "$("$tacit" eval -m "$dir/odd.gguf" --data "$dir/good.jsonl" 2>&1 | wc -l)" = 1 ] || fail "the template is named more than once"
model[1]=$dir/odd.gguf
same=$(loss --chat-template smolvlm)
model[1]=$dir/text.gguf
[[ -n $same && $same = "$(loss)" ]] || fail "a chosen template gives another loss than the file's own"
expect 2 "chat template 'gpt': expected one of smolvlm, " eval "${model[@]}" --data "$dir/good.jsonl" --chat-template gpt
# Tokens that the vocabulary does not have are not spelled by letters.
expect 3 "template .chatml. is made of the token '<.im_end.>', which the vocabulary does not have; choose one with --chat-template: smolvlm" \
    eval "${model[@]}" --data "$dir/nowhere.jsonl" --chat-template chatml

# Files that are no models, or the wrong way round.
head -c 2000 "$dir/mmproj.gguf" >"$dir/cut.gguf"
expect 3 'cut.gguf' eval -m "$dir/text.gguf" --mmproj "$dir/cut.gguf" --data "$dir/good.jsonl"
expect 3 'architecture' eval -m "$dir/mmproj.gguf" --data "$dir/good.jsonl"
expect 3 'expected .clip. or .tacit.sensor.; a text model goes to -m' eval -m "$dir/text.gguf" --mmproj "$dir/text.gguf" --data "$dir/good.jsonl"
expect 3 'mmproj-nano.gguf: .*rows of [0-9]+ values, the text model takes 32; the files belong to different models' \
    eval -m "$dir/text.gguf" --mmproj "$TACIT_SOURCE/tests/nano/mmproj-nano.gguf" --data "$dir/good.jsonl"
expect 3 'nowhere.gguf' eval -m "$dir/nowhere.gguf" --data "$dir/good.jsonl"
expect 2 'data is missing' eval -m "$dir/text.gguf"
expect 2 'expected hf, hf-frame, mtmd or mtmd-ik' eval "${model[@]}" --data "$dir/good.jsonl" --form llava
expect 0 'usage: tacit eval' eval --help

rows=$("$tacit" embed "${model[@]}" --image "$dir/a.jpg" --json)
[ "$(tr -cd '[' <<<"$rows" | wc -c)" = 10 ] || fail "embed: expected 9 rows: $rows"
[ "$("$tacit" embed "${model[@]}" --image "$dir/a.jpg" -t 1)" = "$("$tacit" embed "${model[@]}" --image "$dir/a.jpg" -t 2)" ] ||
    fail "rows depend on the number of threads"
[ "$("$tacit" embed "${model[@]}" --image "$dir/a.jpg" | wc -lw | tr -s ' ')" = " 9 288" ] || fail "embed: expected 9 lines of 32 numbers"
expect 3 'damaged JPEG' embed "${model[@]}" --image "$dir/half.jpg"
expect 3 'expected a JPEG or PNG' embed "${model[@]}" --image "$dir/good.jsonl"
echo "eval and embed hold"
