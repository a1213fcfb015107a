#!/usr/bin/env bash
# What a lineage trains, besides halves of LoRA pairs: cores between frozen halves, and soft prompts;
# from the operator's command line over devices' training to an adapter that answers, and alone.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
start_server
start_pair

# Options of another set are refused: whoever gives them expects them to count.
expect 2 'trainable: expected .*ffa, core.* prompt' lineage --trainable all
expect 2 'rank: not of trainable prompt; leave it out' lineage --trainable prompt --rank 4
expect 2 'targets: not of trainable prompt' lineage --trainable prompt --targets attn_q
expect 2 'last-layers: not of trainable prompt' lineage --trainable prompt --last-layers 1
expect 2 'rslora: not of trainable prompt' lineage --trainable prompt --rslora yes
expect 2 'virtual-tokens: not of trainable ffa or core' lineage --trainable core --virtual-tokens 4
expect 2 'image-virtual-tokens: not of trainable ffa or core' lineage --image-virtual-tokens 4
expect 2 'virtual-tokens: expected .*4096' lineage --trainable prompt --virtual-tokens 4097
expect 2 "fits the target 'attn_z'" lineage --trainable core --targets attn_z

# So are numbers of another optimizer.
expect 2 'optimizer: expected sgd, adam or adamw' lineage --optimizer lion
expect 2 'momentum: not of optimizer adam; leave it out' lineage --momentum 0.5
expect 2 'weight-decay: not of optimizer sgd; leave it out' lineage --optimizer sgd --weight-decay 0.1
expect 2 'schedule: expected constant, linear or cosine' lineage --schedule step

# newest: the file of the adapter published last. inspected PATTERN: it has a line like that.
newest() { verb adapter list --json | json file_digest; }
fetch() { cp "$work/server/adapters/$(newest).gguf" "$work/adapter.gguf"; }
inspected() {
    "$bin/tacit" inspect "$work/adapter.gguf" | grep -qE "$1" ||
        fail "no $1 in $("$bin/tacit" inspect "$work/adapter.gguf")"
}
ends() { # ends ROUNDS: so many ended, and the last was published
    until_true 60 rounds_ended "$1" || fail "the rounds do not end"
    [ "$(last_round state)" = published ] || fail "the last round is $(last_round state): $(last_round reason)"
}

expect 2 'weight-decay: a soft prompt starts at embeddings' lineage --trainable prompt --optimizer adamw
verb round start --rounds 2 --steps 2 --q 0.25 --noise-multiplier 20 --cohort 2 --quorum 2 --pad-seconds 0 \
    --deadline-seconds 120 --trainable core --rank 4 --targets 'attn_?,ffn_down=2' --rslora yes --last-layers 1 \
    --optimizer adamw --weight-decay 5 --learning-rate 0.05 --schedule cosine --warmup 1 --json >"$work/started.json"
# 52 values, each moved by 0.05 a step; decay by a share of what four steps can have moved it.
awk -v found="$(json norm_bound <"$work/started.json")" \
    'BEGIN { bound = 2 * 0.05 * sqrt(52) * (1 + 5 * 4 * 0.05); exit !((found / bound - 1) ^ 2 < 1e-18) }' ||
    fail "the norm bound is $(json norm_bound <"$work/started.json")"
ends 2
fetch
inspected 'blk.1.attn_q.weight.lora_core +f32 +\[4,4\]'
inspected 'blk.1.ffn_down.weight.lora_core +f32 +\[2,2\]'
"$bin/tacit" inspect "$work/adapter.gguf" | grep -q 'blk.0' && fail "the first layer is adapted, too"
expect 2 'rows before pictures, and the model has no image encoder' lineage --trainable prompt --image-virtual-tokens 3
lineage --rounds 1 --trainable prompt --virtual-tokens 5
ends 3
fetch
inspected 'prompt.text +f32 +\[[0-9]+,5\]'
until_true 60 grep -q "$(newest)" "$work/cart/adapters/active.json" || fail "the device does not take the prompt"
stop_device cart
stop_device van
same_epsilon cart
verb ledger export "$work/export" >/dev/null
expect 0 'violations: 0' "$bin/tacit-audit" verify "$work/export"
stop_server

# Alone: what is refused, and what both sets leave.
make_data "$work/own.jsonl" 1
train() {
    "$bin/tacit-client" train --dir "$work/alone" --model "$work/text.gguf" --data "$work/own.jsonl" --out "$work/a.gguf" \
        --steps 3 --q 0.25 --noise-multiplier 20 --json "$@"
}
expect 2 'trainable: expected ffa, core or prompt' train --trainable lora
expect 2 'leave out --targets' train --trainable prompt --rank 4
expect 2 'leave out --virtual-tokens' train --trainable core --virtual-tokens 4
expect 2 'optimizer: expected sgd, adam or adamw' train --optimizer lion
expect 2 'momentum is of sgd, not of adam' train --momentum 0.5
expect 2 'weight-decay is of adamw, not of sgd' train --optimizer sgd --weight-decay 0.1
expect 2 'schedule: expected constant, linear or cosine' train --schedule step
TACIT_KILL_AT=client.mid_training:2 train --trainable prompt --virtual-tokens 7 --optimizer sgd --schedule linear >/dev/null 2>&1 && fail "it was not killed"
expect 0 'continuing' train
cp "$work/a.gguf" "$work/adapter.gguf"
inspected 'prompt.text +f32 +\[[0-9]+,7\]'
"$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/a.gguf" --data "$work/own.jsonl" --json >/dev/null ||
    fail "the prompt does not load"

# What the person at the device sees: steps, and held-out records judged by inference.
make_data "$work/heldout.jsonl" 1
free=(--dir "$work/free")
expect 3 'none.jsonl' train "${free[@]}" --eval "$work/none.jsonl"
expect 2 'which is read' train "${free[@]}" --eval "$work/a.gguf"
sed -i 's/^  allow_non_private:.*/  allow_non_private: true/' "$work/free/client.yaml"
train "${free[@]}" --trainable core --rank 8 --mechanism none --optimizer sgd --learning-rate 2 --q 1 --divisor 6 --steps 30 \
    --eval "$work/heldout.jsonl" >"$work/result.json" 2>"$work/train.log" || fail "no training without noise"
grep -qE 'step 30 of 30: 6 units with a gradient, mean loss [0-9.]+, 0 s left' "$work/train.log" || fail "no last step is told"
below "$(json loss <"$work/result.json")" "$(json loss_base <"$work/result.json")" || fail "no better: $(cat "$work/result.json")"
exact=$("$bin/tacit" eval -m "$work/text.gguf" --adapter "$work/a.gguf" --data "$work/heldout.jsonl" --json | json loss)
[ "$(json loss_exact <"$work/result.json" | cut -c1-8)" = "${exact:0:8}" ] || fail "eval says $exact, train $(cat "$work/result.json")"
[ "$(json examples <"$work/result.json")" = 6 ] || fail "not all were answered"
expect 0 'heldout.jsonl: accuracy [0-9.]+ \([0-9.]+ before\), loss [0-9.]+ \([0-9.]+ before; exact [0-9.]+\), 6 answers' \
    "$bin/tacit-client" train --dir "$work/alone" --data "$work/own.jsonl" --out "$work/a.gguf" --steps 2 --q 0.5 \
    --noise-multiplier 20 --eval "$work/heldout.jsonl"
grep -q '% clipped to 1,' <<<"$("$bin/tacit-client" train --dir "$work/alone" --data "$work/own.jsonl" --out "$work/a.gguf" --steps 2 --q 1 \
    --noise-multiplier 20 2>&1)" || fail "the clipped share is not told"
echo "cores and prompts are trained, published, taken and audited"
