#!/usr/bin/env bash
# What does not fit is refused with what it needs, what is there and what would fit, before anything is
# taken: the programs as a person runs them, under a limit on their data (ulimit -d, KiB).
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
client=$TACIT_BIN/tacit-client
if grep -qaE '__(asan|tsan)_init' "$tacit"; then
    echo "skipped: a sanitizer's shadow memory is data as well, and far above any limit of use here"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# within KIB WORDS...: the command under the limit.
within() {
    local kib=$1
    shift
    (
        ulimit -d "$kib"
        exec "$@"
    )
}

size='[0-9.]+ [KMG]iB'
"$TACIT_BIN/write_tiny_model" "$work"
# 26 MiB of weights, 4 layers of 576 and 20,000 tokens: 25 million values.
"$TACIT_BIN/write_shape" smollm2-135m "$work/shape.gguf" --layers 4 --vocab 20000
model=(-m "$work/shape.gguf" -t 1)
for i in 1 2 3; do
    echo "{\"id\":\"$i\",\"messages\":[{\"role\":\"user\",\"content\":\"What is $i?\"},{\"role\":\"assistant\",\"content\":\"$i\"}]}"
done >"$work/data.jsonl"
train=("$tacit" train "${model[@]}" --data "$work/data.jsonl")
adapter=(--rank 4 --targets "attn_q,attn_v")

# Training: every tensor does not fit, an adapter does.
expect 1 "training needs $size \(values $size, gradients $size, optimizer $size, working memory for 256 rows $size, what is kept beside $size\), $size are available: .*LoRA adapter of rank 8 on attn_q and others would fit" \
    within 250000 "${train[@]}" --trainable all --out "$work/all.gguf"
[ ! -e "$work/all.gguf" ] || fail "a refused training left a model"
expect 0 'epoch 1: loss' within 250000 "${train[@]}" --trainable ffa "${adapter[@]}" --out "$work/ffa.gguf"
[ -s "$work/ffa.gguf" ] || fail "no adapter"

# A longer example than fits, and how long they may be.
long=$(printf 'word %.0s' {1..1200})
echo "{\"id\":\"long\",\"messages\":[{\"role\":\"user\",\"content\":\"$long\"},{\"role\":\"assistant\",\"content\":\"1\"}]}" >>"$work/data.jsonl"
expect 1 "working memory for 6[0-9]{3} rows $size.* are available: examples of at most [0-9]+ rows.* would fit" \
    within 250000 "${train[@]}" --trainable lora "${adapter[@]}" --out "$work/lora.gguf"
rows=$({ within 250000 "${train[@]}" --trainable lora "${adapter[@]}" --out "$work/lora.gguf" 2>&1 || true; } | sed -n 's/.*of at most \([0-9]*\) rows.*/\1/p')
expect 0 'epoch 1: loss' within 250000 "${train[@]}" --trainable lora "${adapter[@]}" --out "$work/lora.gguf" --max-rows "$rows"

# Quantizing: the largest tensor decides, and nothing is left.
expect 1 "the largest tensor, token_embd.weight as f32, needs $size, $size are available; nothing was written" \
    within 40000 "$tacit" quantize "$work/shape.gguf" "$work/f32.gguf" --type f32 -t 1
for left in "$work"/f32.gguf*; do
    [ ! -e "$left" ] || fail "$left was left"
done

# Inference: panels of packed weights are data, pages of the file are not.
expect 1 "the model needs $size \(weights $size, .*$size are available" \
    within 24000 "$tacit" logits "${model[@]}" -p 'What is 1?' --top 1
expect 0 '' within 24000 "$tacit" logits "${model[@]}" -p 'What is 1?' --top 1 --exact

# A picture of a few kilobytes whose pixels do not fit.
expect 1 "vast.png: a picture of 8192 x 4096 pixels needs 96.0 MiB, $size are available; give a smaller one" \
    within 60000 "$tacit" embed -m "$work/text.gguf" --mmproj "$work/mmproj.gguf" --image "$work/vast.png" -t 1

# A device says so before its budget is touched, and trains when there is room.
private=("$client" train --dir "$work/device" --model "$work/shape.gguf" --data "$work/data.jsonl" --out "$work/dp.gguf"
    --epsilon 3 --delta 1e-5 --steps 1 --targets attn_q --rank 4 --max-tokens 4000)
expect 4 "plan does not fit into this device's memory: training needs $size .* would fit" within 100000 "${private[@]}"
expect 0 '"reserves":0[,}]' "$client" status --dir "$work/device" --json
echo "memory: what does not fit is refused in time"
