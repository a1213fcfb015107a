#!/usr/bin/env bash
# `tacit inspect` and `tacit tokenize` on files that the repository has: output, JSON and exit codes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
golden=$TACIT_SOURCE/tests/golden
tacit=$TACIT_BIN/tacit
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"

small=$golden/tokenizer/small_gpt2.gguf
expect 0 '^kind: text$' "$tacit" inspect "$small"
expect 0 'tokenizer.ggml.pre +string +"gpt-2"$' "$tacit" inspect "$small"
expect 0 '^  text model: .*key llama.context_length is missing' "$tacit" inspect "$small"
expect 0 '"kind":"text".*"architecture":"llama".*"parameters":0,' "$tacit" inspect --json "$small"
expect 0 '"key":"tokenizer.ggml.merges","type":"array","element":"string","count":[0-9]+,' \
    "$tacit" inspect --json "$small"
expect 0 '"unsupported":\[\{"what":"text model","why":"' "$tacit" inspect --json "$small"
expect 0 '^supported: not fully, [0-9]+ reasons? at the end$' "$tacit" inspect "$small"
for file in nano mmproj-nano mmproj-nano-audio mmproj-nano-sensor; do
    expect 0 '^supported: yes$' "$tacit" inspect "$TACIT_SOURCE/tests/nano/$file.gguf"
done

corpus=$TACIT_SOURCE/tests/fuzz/corpus/safetensors
expect 0 '^kind: safetensors$' "$tacit" inspect "$corpus/good/peft"
expect 0 '"parameters":12,"bytes":36,"types":\[\{"type":"F32","tensors":1,"bytes":24\},\{"type":"BF16"' \
    "$tacit" inspect --json "$corpus/good/peft"
expect 0 '"key":"format","type":"string","value":"pt"' "$tacit" inspect --json "$corpus/good/peft"
expect 3 'overlap.*the file is damaged' "$tacit" inspect "$corpus/bad/overlap"

printf 'GGUF\003\0\0\0' >"$work/short.gguf"
head -c -1 "$golden/tiny-tied.gguf" >"$work/cut.gguf"
expect 3 'short.gguf: byte 8: the file ends within the counts' "$tacit" inspect "$work/short.gguf"
expect 3 'cut.gguf: .*truncated' "$tacit" inspect "$work/cut.gguf"
expect 3 'none.gguf: cannot open' "$tacit" inspect "$work/none.gguf"
expect 2 'expected FILE' "$tacit" inspect
expect 0 'usage: tacit inspect FILE' "$tacit" inspect --help

# Types that are not known are named with those that are, and listed with all else that the file holds.
alien=$TACIT_SOURCE/tests/fuzz/corpus/gguf/bad/unknown_type
expect 3 "tensor 'new': type 40 is unknown, so is its size; expected f32, f16, .* or q4_0" "$tacit" run -m "$alien" -p x
expect 0 '^  new +type 40 +\[16,2\]$' "$tacit" inspect "$alien"
expect 0 '^  type: 1 tensors are of type 40, which cannot be computed \(f32, f16, .* or q4_0 can\)$' "$tacit" inspect "$alien"
expect 0 '"types":\[\{"type":"type 40","tensors":1,"bytes":0\},\{"type":"higher numbers","tensors":1,"bytes":0\}\]' \
    "$tacit" inspect --json "$alien"

expect 0 '^[0-9]+( [0-9]+)*$' "$tacit" tokenize -m "$small" -p 'The heart rate is 72.'
expect 0 '^\{"tokens":\[2\],"seconds":[0-9.e-]+\}$' "$tacit" tokenize -m "$small" --special --json -p '<|im_end|>'
expect 0 '^\{"tokens":\[([0-9]{2,},)+[0-9]{2,}\],"seconds":[0-9.e-]+\}$' "$tacit" tokenize -m "$small" --json -p '<|im_end|>'
expect 0 '^\{"tokens":\[\],"seconds":[0-9.e-]+\}$' "$tacit" tokenize -m "$small" --json -p ''
expect 2 'expected either --prompt TEXT or --file FILE' "$tacit" tokenize -m "$small"
echo "inspect holds"
