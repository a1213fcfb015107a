#!/usr/bin/env bash
# `tacit adapter` as a program: what it tells of adapters, the way to PEFT's files and back, an ordinary
# LoRA from a core, and what is refused.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tacit=$TACIT_BIN/tacit
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"

"$TACIT_BIN/write_tiny_model" "$work"
text=$work/text.gguf
model=(-m "$text")
for i in 1 2 3; do
    echo "{\"id\":\"r$i\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Is it $i?\"}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"It is $i.\"}]}]}"
done >"$work/d.jsonl"
train() {
    "$tacit" train "${model[@]}" --data "$work/d.jsonl" --rank 4 --epochs 3 --learning-rate 0.05 "$@" >/dev/null 2>&1
}
answers() { "$tacit" logits "${model[@]}" -p 'Is it 2?' --chat --exact --top 0 --all "$@"; }
train --trainable lora --targets 'attn_*,ffn_up=3' --out "$work/a.gguf"
train --trainable core --targets 'attn_q,ffn_down' --out "$work/core.gguf"

# What it is, with and without a model.
expect 0 '^kind: lora$' "$tacit" adapter info "$work/a.gguf"
expect 0 '^  blk\.\*\.ffn_up: 2 of rank 3$' "$tacit" adapter info "$work/a.gguf"
expect 0 '^base: [0-9a-f]{64} \(this model\)$' "$tacit" adapter info "${model[@]}" "$work/a.gguf"
expect 0 '"base_is_model":true,' "$tacit" adapter info "${model[@]}" "$work/a.gguf" --json
expect 0 '"base_is_model":false,' "$tacit" adapter info -m "$work/bos.gguf" "$work/a.gguf" --json
expect 0 '"kind":"tacit.core".*"base_is_model":null,.*"alpha":8.0,"pairs":4,"values":64,' \
    "$tacit" adapter info "$work/core.gguf" --json
expect 3 "no general.type; expected 'adapter'" "$tacit" adapter info "$text"
expect 3 'none.gguf: cannot open' "$tacit" adapter info "$work/none.gguf"
expect 2 '--mmproj belongs to a model' "$tacit" adapter info "$work/a.gguf" --mmproj "$work/mmproj.gguf"

# A soft prompt is told, and goes nowhere else.
"$tacit" train "${model[@]}" --data "$work/d.jsonl" --trainable prompt --virtual-tokens 3 --out "$work/prompt.gguf" >/dev/null 2>&1
expect 0 '^rows before everything: 3$' "$tacit" adapter info "${model[@]}" "$work/prompt.gguf"
expect 0 '"kind":"tacit.prompt".*"alpha":null,"pairs":0,"values":96,.*"virtual_tokens":3,"image_virtual_tokens":0' \
    "$tacit" adapter info "$work/prompt.gguf" --json
for format in peft gguf; do
    expect 3 'the adapter is a soft prompt, which is no pair of LoRA' \
        "$tacit" adapter export "${model[@]}" "$work/prompt.gguf" --format "$format" --out "$work/none-$format"
done

[ ! -e "$work/none-peft" ] && [ ! -e "$work/none-gguf" ] || fail "something of a refused export is left"

# There and back: the same answers to the last digit, and the same files.
expect 0 '^10 pairs written to .*peft \(peft\)$' \
    "$tacit" adapter export "${model[@]}" "$work/a.gguf" --out "$work/peft" --base some/base
grep -q '"base_model_name_or_path": "some/base"' "$work/peft/adapter_config.json" || fail "the base is not named"
expect 0 'base_model.model.model.layers.1.mlp.up_proj.lora_B.weight F32 +\[64,3\]' \
    "$tacit" inspect "$work/peft/adapter_model.safetensors"
expect 0 '"format":"gguf","pairs":10' "$tacit" adapter import "${model[@]}" "$work/peft" --out "$work/back.gguf" --json
answers --adapter "$work/a.gguf" >"$work/expected"
answers --adapter "$work/back.gguf" >"$work/found"
cmp "$work/expected" "$work/found" || fail "the way to PEFT and back changes answers"
answers >"$work/base"
cmp -s "$work/expected" "$work/base" && fail "the adapter changes no answer"
"$tacit" adapter import "${model[@]}" "$work/peft/adapter_model.safetensors" --out "$work/file.gguf" >/dev/null
cmp "$work/back.gguf" "$work/file.gguf" || fail "a folder and its file are different adapters"
expect 0 'names no base model; --base NAME' "$tacit" adapter export "${model[@]}" "$work/back.gguf" --out "$work/two"
cmp "$work/peft/adapter_model.safetensors" "$work/two/adapter_model.safetensors" ||
    fail "exported, imported and exported again it is another"
expect 6 'trained on the base' "$tacit" adapter export -m "$work/bos.gguf" "$work/a.gguf" --out "$work/no"

# A core as an ordinary LoRA.
expect 0 '^4 pairs written' "$tacit" adapter export "${model[@]}" "$work/core.gguf" --format gguf --out "$work/lora.gguf"
expect 0 '^kind: lora$' "$tacit" adapter info "${model[@]}" "$work/lora.gguf"
answers --adapter "$work/core.gguf" >"$work/expected"
answers --adapter "$work/lora.gguf" >"$work/found"
numbers() { tr ' :' '\n\n' <"$1"; }
paste <(numbers "$work/expected") <(numbers "$work/found") |
    awk 'function abs(x) { return x < 0 ? -x : x } abs($1 - $2) > 1e-3 { bad++ } END { exit bad > 0 }' ||
    fail "a core and its ordinary LoRA answer differently"

# Pairs beside an encoder.
with=(-m "$text" --mmproj "$work/mmproj.gguf")
cp "$TACIT_SOURCE/tests/fuzz/corpus/image/good/jpeg_full" "$work/a.jpg"
sed 's|"content":\[{"type":"text","text":"Is|"content":[{"type":"image","image":"a.jpg"},{"type":"text","text":"Is|' \
    "$work/d.jsonl" >"$work/seen.jsonl"
"$tacit" train "${with[@]}" --data "$work/seen.jsonl" --trainable lora --targets 'attn_q,v.blk.*.attn_*,mm.model.fc' \
    --rank 2 --out "$work/seen.gguf" >/dev/null 2>&1
expect 0 '^  mm.model.fc: 1 of rank 2$' "$tacit" adapter info "${with[@]}" "$work/seen.gguf"
expect 0 '^11 pairs written' "$tacit" adapter export "${with[@]}" "$work/seen.gguf" --out "$work/seen"
expect 0 'base_model.model.model.vision_model.encoder.layers.1.self_attn.out_proj.lora_A.weight' \
    "$tacit" inspect "$work/seen/adapter_model.safetensors"
expect 0 '^11 pairs written' "$tacit" adapter import "${with[@]}" "$work/seen" --out "$work/seen-back.gguf"
expect 0 '^kind: tacit.lora$' "$tacit" adapter info "${with[@]}" "$work/seen-back.gguf"
expect 3 'other programs know no pairs beside encoders' \
    "$tacit" adapter export "${with[@]}" "$work/seen.gguf" --format gguf --out "$work/no.gguf"
expect 3 'of a module that this model lacks .*--mmproj' "$tacit" adapter import "${model[@]}" "$work/seen" --out "$work/no.gguf"

# What is refused, and that nothing is left behind.
cp -r "$work/peft" "$work/odd"
sed -i 's/"use_dora": false/"use_dora": true/' "$work/odd/adapter_config.json"
expect 3 'use_dora is true' "$tacit" adapter import "${model[@]}" "$work/odd" --out "$work/no.gguf"
rm "$work/odd/adapter_config.json"
expect 3 'adapter_config.json: cannot open' "$tacit" adapter import "${model[@]}" "$work/odd" --out "$work/no.gguf"
expect 3 'adapter_model.safetensors: there is no such file' "$tacit" adapter import "${model[@]}" "$work" --out "$work/no.gguf"
expect 3 'no safetensors file' "$tacit" adapter import "${model[@]}" "$work/a.gguf" --out "$work/no.gguf"
expect 2 '--format onnx: expected peft or gguf' \
    "$tacit" adapter export "${model[@]}" "$work/a.gguf" --format onnx --out "$work/no.gguf"
expect 2 '--base is of --format peft' \
    "$tacit" adapter export "${model[@]}" "$work/a.gguf" --format gguf --base x --out "$work/no.gguf"
expect 2 '--out is missing' "$tacit" adapter export "${model[@]}" "$work/a.gguf"
expect 2 'which is read; name another file' "$tacit" adapter export "${model[@]}" "$work/a.gguf" --format gguf --out "$work/a.gguf"
expect 2 'which is read; name another file' \
    "$tacit" adapter import "${model[@]}" "$work/peft" --out "$work/peft/adapter_config.json"
expect 2 'which is read; name another file' "$tacit" adapter import "${model[@]}" "$work/peft" --out "$text"
ln -s ../a.gguf "$work/two/link" && rm "$work/two/adapter_model.safetensors"
mv "$work/two/link" "$work/two/adapter_model.safetensors"
expect 2 'which is read; name another file' "$tacit" adapter export "${model[@]}" "$work/a.gguf" --out "$work/two"
expect 0 '^kind: lora$' "$tacit" adapter info "$work/a.gguf"
[ ! -e "$work/no.gguf" ] || fail "a refused file was written"
[ ! -e "$work/no" ] || fail "a refused folder was made"
[ -z "$(find "$work" -name '*.tacit-new')" ] || fail "an unfinished file was left"
for command in 'adapter info' 'adapter export' 'adapter import'; do
    # shellcheck disable=SC2086
    expect 0 "tacit $command" "$tacit" $command --help
done
echo "adapter holds"
