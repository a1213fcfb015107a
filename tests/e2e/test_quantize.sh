#!/usr/bin/env bash
# `tacit quantize` and `tacit calibrate` as programs: a text model and an encoder in every type, answers
# after it, what is told and what is refused.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tacit=$TACIT_BIN/tacit
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"

"$TACIT_BIN/write_tiny_model" "$work"
text=$work/text.gguf
top() { "$tacit" logits -m "$1" -p 'The heart rate is' --exact --top 1; }

# Upwards nothing is lost: the same logits, to the last digit.
expect 0 'quantized already and lose a second time' "$tacit" quantize "$text" "$work/f32.gguf" --type f32
[ "$(top "$work/f32.gguf")" = "$(top "$text")" ] || fail "f32 answers otherwise than its source"
expect 0 '^file type: 0 \(f32\)$' "$tacit" inspect "$work/f32.gguf"

for type in bf16 f16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0; do
    expect 0 "\"type\":\"$type\"" "$tacit" quantize "$work/f32.gguf" "$work/$type.gguf" --type $type --json
    expect 0 "^file type: [0-9]+ \($type\)$" "$tacit" inspect "$work/$type.gguf"
    "$tacit" inspect --json "$work/$type.gguf" | grep -q '"unsupported":\[\]' || fail "$type: something is not supported"
    "$tacit" run -m "$work/$type.gguf" -p 'The heart rate is' -n 3 >/dev/null || fail "$type does not run"
    "$tacit" quantize "$work/f32.gguf" "$work/again.gguf" --type $type -t 1 >/dev/null 2>&1
    cmp "$work/$type.gguf" "$work/again.gguf" || fail "$type: threads change the bytes"
done
expect 0 'rows of 32 values are no multiple of 256, so they become q5_0 instead of q4_k' \
    "$tacit" quantize "$work/f32.gguf" "$work/again.gguf" --type q4_k
expect 0 '"name":"blk.0.attn_q.weight","from":"f32","to":"q5_0".*"instead_of":"q4_k"' \
    "$tacit" quantize "$work/f32.gguf" "$work/again.gguf" --type q4_k --json

# Choices for tensors.
"$tacit" quantize "$work/f32.gguf" "$work/mix.gguf" --type q4_0 --embedding-type q5_1 \
    --tensor-type 'blk.0.*=q8_0' --tensor-type 'blk.*.ffn_down.weight=f16' >/dev/null
expect 0 '^  token_embd.weight +q5_1 ' "$tacit" inspect "$work/mix.gguf"
expect 0 '^  blk.0.ffn_down.weight +q8_0 ' "$tacit" inspect "$work/mix.gguf"
expect 0 '^  blk.1.ffn_down.weight +f16 ' "$tacit" inspect "$work/mix.gguf"
expect 0 '^  blk.1.ffn_up.weight +q4_0 ' "$tacit" inspect "$work/mix.gguf"

# An encoder beside its text model.
"$tacit" quantize "$work/mmproj.gguf" "$work/mmproj-q4.gguf" --type q4_0 >/dev/null 2>&1
expect 0 '^  v.patch_embd.weight +f(16|32) ' "$tacit" inspect "$work/mmproj-q4.gguf"
expect 0 '^  v.blk.0.attn_q.weight +q4_0 ' "$tacit" inspect "$work/mmproj-q4.gguf"
expect 0 '^unsupported|^tensors' "$tacit" inspect "$work/mmproj-q4.gguf"

# An importance matrix: collected, told, used, and another model's refused.
for i in 1 2 3; do
    echo "{\"id\":\"r$i\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Is it $i?\"}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"It is $i.\"}]}]}"
done >"$work/d.jsonl"
echo 'no json' >>"$work/d.jsonl"
expect 0 '"records":3,"skipped":1,"rows":[0-9]+,"matrices":15' \
    "$tacit" calibrate -m "$work/f32.gguf" --data "$work/d.jsonl" -o "$work/w.gguf" --json
"$tacit" calibrate -m "$work/f32.gguf" --data "$work/d.jsonl" -o "$work/w1.gguf" -t 1 >/dev/null 2>&1
cmp "$work/w.gguf" "$work/w1.gguf" || fail "threads change the importance matrix"
expect 0 'general.type +string +"imatrix"' "$tacit" inspect "$work/w.gguf"
expect 0 'imatrix.chunk_count +u32 +3' "$tacit" inspect "$work/w.gguf"
expect 0 '"weighted":14' "$tacit" quantize "$work/f32.gguf" "$work/weighted.gguf" --type q4_0 --json \
    --imatrix "$work/w.gguf"
cmp -s "$work/weighted.gguf" "$work/q4_0.gguf" && fail "weights change nothing"
expect 0 'quantize.imatrix.file +string +"w.gguf"' "$tacit" inspect "$work/weighted.gguf"
expect 3 'expected an importance matrix' "$tacit" quantize "$text" "$work/no.gguf" --type q4_0 --imatrix "$text"
expect 3 'mmproj.gguf: an importance matrix is of the linears of a text model, .* leave it out here' \
    "$tacit" quantize "$work/mmproj.gguf" "$work/no.gguf" --type q4_0 --imatrix "$work/w.gguf"
LC_ALL=C sed 's/blk\./blX./g; s/token_embd/token_embX/g' "$work/w.gguf" >"$work/foreign.gguf"
expect 3 'names none of its tensors; it is another model' "$tacit" quantize "$work/f32.gguf" "$work/no.gguf" \
    --type q4_0 --imatrix "$work/foreign.gguf"
# With pictures: their rows count, on any number of threads, and make another matrix.
cp "$TACIT_SOURCE/tests/fuzz/corpus/image/good/jpeg_full" "$work/a.jpg"
sed 's|"content":\[|"content":[{"type":"image","image":"a.jpg"},|' "$work/d.jsonl" | sed '4d' |
    sed 's|{"type":"image","image":"a.jpg"},\({"type":"text","text":"It\)|\1|' >"$work/seen.jsonl"
seen() { "$tacit" calibrate -m "$work/f32.gguf" --mmproj "$work/mmproj.gguf" --data "$work/seen.jsonl" --json "$@"; }
expect 0 '"records":3,"skipped":0' seen -o "$work/s.gguf"
seen -o "$work/s1.gguf" -t 1 >/dev/null 2>&1
cmp "$work/s.gguf" "$work/s1.gguf" || fail "threads change the matrix of pictures"
cmp -s "$work/s.gguf" "$work/w.gguf" && fail "pictures change no matrix"
expect 0 '"weighted":14' "$tacit" quantize "$work/f32.gguf" "$work/seen.gguf" --type q4_0 --json --imatrix "$work/s.gguf"
expect 3 'd.jsonl:1: .*--mmproj|seen.jsonl:1: .*--mmproj' "$tacit" calibrate -m "$work/f32.gguf" --data "$work/seen.jsonl" \
    -o "$work/no.gguf" --strict
unknown_template "$work/f32.gguf" "$work/odd.gguf"
expect 3 'is not one of those supported .*; choose one with --chat-template$' \
    "$tacit" calibrate -m "$work/odd.gguf" --data "$work/none.jsonl" -o "$work/no.gguf"
expect 0 '"records":3,' "$tacit" calibrate -m "$work/odd.gguf" --chat-template smolvlm --data "$work/d.jsonl" \
    -o "$work/w2.gguf" --json
cmp "$work/w.gguf" "$work/w2.gguf" || fail "a chosen template gives another matrix than the file's own"
expect 3 'd.jsonl:4' "$tacit" calibrate -m "$text" --data "$work/d.jsonl" -o "$work/no.gguf" --strict

# What is refused, and that nothing is left behind.
expect 3 'an adapter, which stays as it is' \
    "$tacit" quantize "$TACIT_SOURCE/tests/fuzz/corpus/adapter/good/down" "$work/no.gguf" --type q4_0
expect 3 'expected a text model' "$tacit" quantize "$work/w.gguf" "$work/no.gguf" --type q4_0
expect 3 'none.gguf: cannot open' "$tacit" quantize "$work/none.gguf" "$work/no.gguf" --type q4_0
"$tacit" quantize "$work/f32.gguf" "$work/upper.gguf" --type Q4_0 >/dev/null
cmp "$work/upper.gguf" "$work/q4_0.gguf" || fail "Q4_0 is not q4_0"
expect 2 '--type q4_k_m: expected .*; a mixture is q4_k with --tensor-type' "$tacit" quantize "$text" "$work/no.gguf" --type q4_k_m
expect 3 'found an importance matrix .*, which goes to tacit quantize --imatrix' "$tacit" run -m "$work/w.gguf" -p x
expect 2 '--type q3_k: expected f32, ' "$tacit" quantize "$text" "$work/no.gguf" --type q3_k
expect 2 'expected PATTERN=TYPE' "$tacit" quantize "$text" "$work/no.gguf" --type q4_0 --tensor-type q4_0
expect 2 "matches 'blk.9" "$tacit" quantize "$text" "$work/no.gguf" --type q4_0 --tensor-type 'blk.9.*=q4_0'
expect 2 '--type is missing' "$tacit" quantize "$text" "$work/no.gguf"
expect 1 'cannot create' "$tacit" quantize "$text" "$work/none/no.gguf" --type q4_0
# Nothing is written over what it is made from, under any name.
cp "$text" "$work/kept.gguf"
ln -s kept.gguf "$work/link.gguf"
for out in kept.gguf ./kept.gguf link.gguf; do
    expect 2 'which is read; name another file' "$tacit" quantize "$work/kept.gguf" "$work/$out" --type q4_0
    expect 2 'which is read; name another file' "$tacit" calibrate -m "$work/kept.gguf" --data "$work/d.jsonl" -o "$work/$out"
done
expect 2 'which is read' "$tacit" calibrate -m "$text" --mmproj "$work/mmproj.gguf" --data "$work/d.jsonl" -o "$work/mmproj.gguf"
expect 2 'which is read' "$tacit" quantize "$work/f32.gguf" "$work/w.gguf" --type q4_0 --imatrix "$work/w.gguf"
cmp "$text" "$work/kept.gguf" || fail "a model was written over"
expect 2 'found a folder' "$tacit" quantize "$text" "$work" --type q4_0
[ ! -e "$work/no.gguf" ] || fail "a refused file was written"
[ -z "$(find "$work" -name '*.tacit-new')" ] || fail "an unfinished file was left"
echo "quantize holds"
