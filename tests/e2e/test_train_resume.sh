#!/usr/bin/env bash
# tacit train over time: killed after any step it goes on to the same bytes; a schedule and a warm-up
# that move the learning rate; an end where held-out examples stop improving; a signal; a checkpoint
# that cannot be written, is torn, or is of another training.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
subject=("$tacit" train)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$TACIT_BIN/write_tiny_model" "$dir"
line() { printf '{"id":"%s","messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' "$@"; }
for i in 1 2 3 4 5 6 7; do line "t$i" "say $i" "abc$i"; done >"$dir/data.jsonl"
for i in 1 2; do line "h$i" "tell $i" "xyz"; done >"$dir/heldout.jsonl"
base=(-m "$dir/text.gguf" --data "$dir/data.jsonl" --trainable lora --batch 2 --learning-rate 0.02 --warmup 3
    --schedule cosine --seed 5)
train=("${base[@]}" --epochs 3) # 12 steps

# Killed after each step in turn, with and without a checkpoint at that step, under Adam's moments and
# under sgd's velocity, with held-out examples whose best epoch is kept.
for optimizer in adamw "sgd --momentum 0.5"; do
    # shellcheck disable=SC2206 # words
    whole=("${train[@]}" --optimizer $optimizer --eval "$dir/heldout.jsonl" --patience 9)
    "$tacit" train "${whole[@]}" --out "$dir/whole.gguf" --json >"$dir/whole.log" 2>/dev/null
    for step in 1 2 3 4 7 8 11 12; do
        rm -f "$dir/c" "$dir/a.gguf"
        code=0
        TACIT_KILL_AT=train.mid_training:$step "$tacit" train "${whole[@]}" --out "$dir/a.gguf" --checkpoint "$dir/c" \
            --checkpoint-steps 3 >/dev/null 2>&1 || code=$?
        [ "$code" = 137 ] || fail "step $step: expected a kill, found exit $code"
        [ ! -e "$dir/a.gguf" ] || fail "step $step: a result of a training that was killed"
        "$tacit" train "${whole[@]}" --out "$dir/a.gguf" --checkpoint "$dir/c" --checkpoint-steps 3 --json \
            >"$dir/log" 2>"$dir/err"
        cmp -s "$dir/a.gguf" "$dir/whole.gguf" || fail "step $step, $optimizer: another result after a kill"
        [ "$step" -lt 4 ] || grep -q 'continuing behind step' "$dir/err" || fail "step $step: began anew"
        [ ! -e "$dir/c" ] || fail "the checkpoint outlives the result"
        # The last epoch's line is that of the whole: its loss is of steps before and behind the kill.
        [ "$step" = 12 ] || [ "$(tail -1 "$dir/log" | grep -o '"loss":[0-9.]*')" = "$(tail -1 "$dir/whole.log" | grep -o '"loss":[0-9.]*')" ] ||
            fail "step $step: the epoch's loss is another: $(tail -1 "$dir/log")"
    done
done

# The learning rate may be another when it goes on; data, batch and seed may not.
TACIT_KILL_AT=train.mid_training:5 "$tacit" train "${train[@]}" --out "$dir/a.gguf" --checkpoint "$dir/c" --checkpoint-steps 2 \
    >/dev/null 2>&1 && fail "it was not killed"
cp "$dir/c" "$dir/kept"
expect 6 'the checkpoint of another training' "${train[@]}" --batch 3 --out "$dir/a.gguf" --checkpoint "$dir/c"
expect 6 'the checkpoint of another training' "${train[@]}" --seed 6 --out "$dir/a.gguf" --checkpoint "$dir/c"
expect 6 'the checkpoint of another training' "${train[@]}" --rank 4 --out "$dir/a.gguf" --checkpoint "$dir/c"
expect 6 'the checkpoint of another training' "${train[@]}" --optimizer sgd --out "$dir/a.gguf" --checkpoint "$dir/c"
head -5 "$dir/data.jsonl" >"$dir/fewer.jsonl"
expect 6 'the checkpoint of another training' "${train[@]}" --data "$dir/fewer.jsonl" --out "$dir/a.gguf" --checkpoint "$dir/c"
cmp -s "$dir/c" "$dir/kept" || fail "a refused checkpoint was changed"
expect 0 'continuing behind step 4 of 12' "${train[@]}" --learning-rate 0.001 --out "$dir/a.gguf" --checkpoint "$dir/c"
# A torn one is none: a crash while the first was written leaves nothing to go on from.
head -c 100 "$dir/kept" >"$dir/c"
"$tacit" train "${train[@]}" --out "$dir/b.gguf" >/dev/null 2>&1
"$tacit" train "${train[@]}" --out "$dir/a.gguf" --checkpoint "$dir/c" >/dev/null 2>"$dir/err"
cmp -s "$dir/a.gguf" "$dir/b.gguf" || fail "a torn checkpoint changes the result"

# Ctrl-C ends between two steps; the same command goes on.
interrupted() { # interrupted ARGUMENTS...: interrupts once an epoch is told; leaves its exit code
    rm -f "$dir/log"
    "$tacit" train "${base[@]}" --epochs 100000 "$@" >"$dir/log" 2>"$dir/err" &
    local pid=$!
    for _ in $(seq 400); do [ -s "$dir/log" ] && break || sleep 0.05; done
    kill -INT "$pid"
    code=0
    wait "$pid" || code=$?
}
interrupted --out "$dir/i.gguf" --checkpoint "$dir/i"
[ "$code" = 5 ] || fail "interrupted: exit $code"
grep -q 'the same command goes on from' "$dir/err" || fail "interrupted: $(cat "$dir/err")"
[ -s "$dir/i" ] && [ ! -e "$dir/i.gguf" ] || fail "interrupted: no checkpoint, or a result"
interrupted --out "$dir/i.gguf" --checkpoint "$dir/i"
grep -q 'continuing behind step' "$dir/err" || fail "it does not go on: $(cat "$dir/err")"
interrupted --out "$dir/i.gguf"
grep -q 'nothing was written; with --checkpoint it could go on' "$dir/err" || fail "interrupted: $(cat "$dir/err")"

# Held-out examples that are of something else soon get worse: it ends there, with the best epoch's values.
patient=("${base[@]}" --epochs 200 --eval "$dir/heldout.jsonl" --patience 2)
"$tacit" train "${patient[@]}" --out "$dir/p.gguf" --json >"$dir/log" 2>"$dir/err"
epochs=$(wc -l <"$dir/log")
best=$(grep -n '"best":true' "$dir/log" | tail -1 | cut -d: -f1)
[ "$epochs" -lt 200 ] && [ "$((epochs - best))" = 2 ] || fail "it ended behind epoch $epochs, the best is $best"
[ "$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' "$dir/log" | sort -g | head -1)" = "$(sed -n "$best"'s/.*"eval_loss":\([0-9.]*\).*/\1/p' "$dir/log")" ] ||
    fail "epoch $best is not the best"
expected=$(sed -n "$best"'s/.*"eval_loss":\([0-9.]*\).*/\1/p' "$dir/log")
found=$("$tacit" eval -m "$dir/text.gguf" --adapter "$dir/p.gguf" --data "$dir/heldout.jsonl" --json | sed 's/.*"loss":\([0-9.]*\).*/\1/')
awk -v a="$found" -v b="$expected" 'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 < (1e-4 * b) ^ 2) }' ||
    fail "the adapter's loss is $found, the best epoch's was $expected"
grep -q "the values are those behind epoch $best" "$dir/err" || fail "it does not say whose values: $(cat "$dir/err")"

# Another schedule is another training.
for words in "--schedule linear" "--schedule constant" "--warmup 5"; do
    # shellcheck disable=SC2086 # words
    "$tacit" train "${train[@]}" $words --out "$dir/s.gguf" >/dev/null 2>&1
    cmp -s "$dir/s.gguf" "$dir/b.gguf" && fail "$words changes nothing"
done

# A number that is none stops the step; what is kept is a state whose numbers were good.
diverge=("${base[@]}" --optimizer sgd --schedule constant --epochs 50 --out "$dir/n.gguf" --checkpoint "$dir/n" --checkpoint-steps 1)
expect 1 'step [0-9]+: the (loss|gradient of) .* is no number: nothing was written; .*/n has the state behind step [0-9]+, which was good; lower' \
    "${diverge[@]}" --learning-rate 1000 --weight-decay 1000
[ -s "$dir/n" ] && [ ! -e "$dir/n.gguf" ] || fail "no state is kept, or a result is"
expect 0 'continuing behind step' "${diverge[@]}" --learning-rate 1e-9

# A checkpoint for which there is no room ends the training with its name; the one before stays.
(
    trap '' XFSZ
    TACIT_KILL_AT=train.mid_training:5 "$tacit" train "${train[@]}" --out "$dir/a.gguf" --checkpoint "$dir/f" --checkpoint-steps 2 \
        >/dev/null 2>&1 && fail "it was not killed"
    cp "$dir/f" "$dir/kept"
    ulimit -f 1
    expect 1 '/f: .*(File too large|No space)' "${train[@]}" --out "$dir/a.gguf" --checkpoint "$dir/f" --checkpoint-steps 2
    cmp -s "$dir/f" "$dir/kept" || fail "a full disk changed the checkpoint"
)
expect 0 'continuing behind step 4' "${train[@]}" --out "$dir/a.gguf" --checkpoint "$dir/f"
cmp -s "$dir/a.gguf" "$dir/b.gguf" || fail "another result after a full disk"

# What cannot be.
expect 2 'schedule step: expected constant, linear or cosine' "${train[@]}" --schedule step --out "$dir/x"
expect 2 'patience is of held-out data: give --eval' "${train[@]}" --patience 2 --out "$dir/x"
expect 2 'checkpoint-steps: give --checkpoint' "${train[@]}" --checkpoint-steps 2 --out "$dir/x"
expect 1 'none/c: cannot create' "${train[@]}" --checkpoint "$dir/none/c" --out "$dir/x"
expect 2 'named for two results' "${train[@]}" --checkpoint "$dir/x" --out "$dir/x"
expect 2 'which is read' "${train[@]}" --checkpoint "$dir/data.jsonl" --out "$dir/x"
echo "trainings go on"
