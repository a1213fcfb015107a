#!/usr/bin/env bash
# tacit train as a person types it: each trainable set lowers the loss, what it saves continues
# where training ended, the same command gives the same bytes whatever the threads, and errors.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
subject=("$tacit" train)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# losses ARGUMENTS...: the loss of each epoch, a line each.
losses() { "$tacit" train "$@" --json 2>"$dir/log" | sed -n 's/.*"loss":\([0-9.]*\).*/\1/p'; }

# falls FACTOR: the last of the numbers on stdin is below FACTOR times the first.
falls() { awk -v factor="$1" 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR > 1 && last < factor * first) }'; }

"$TACIT_BIN/write_tiny_model" "$dir"
base64 -d >"$dir/picture.png" <<'PNG'
iVBORw0KGgoAAAANSUhEUgAAABgAAAAYCAIAAABvFaqvAAAF3UlEQVR42hWU0YvQdBzAv+llt3Wdd3Pa1XScOmxcN7mWLKPBrkvH
KJUNrrCfQUeb4sEYhzJbESOGsYiBg2A0kVgjwbaXe/gZRmwExtiDuNpTDwuKZIEPIb0EYZj+A5+nz+cDAEAC0AAsAA8gAsgAKoAO
gAAsAAfAAwgAIoAEIAMoADBADdAC9AADwPiQAgSQxGM0sYUltvLEhEg8LhPbVOIJnZhEBGERpEM86RFTAfFUREwnxPaMmCmIWUxQ
NbGjJeie2DkQu0biaQAKSGoLTU2w1DaemhQpUqamVGpap2YQRVkU7VC7PGouoJ6NqN0JxWbUfEHtwxRXUwdaiu+phYFaHKmDAAyQ
zFaa2cYyBM9Micx2maFUZqfOzCGGsRjWYfZ6DBcwz0XMQsIIGbNUMC9iRqqZl1tG7hllYFZG5igAByQ3QXOTLDfFczMiR8vcnMrt
1rl5xHEWxzvcosctBdyhiDuccHLGLRfcEcxpNXes5fSeWx24kyP3DoAApPA4LZCssJ0XaFF4RhZYVdivCzwSBEsQHeElT5AD4dVI
UBPhjUzQC+FNLKBaeLcVrF5YHwRnFM4DSEBK22hpipUoXpoTJVaWOFVa0KUlJEmWJDvSiidpgXQiklYTCWXSWiGdwZJdS+dayesl
f5AujtJnAAqQyhO0Ms0qO3llt6jsl5UFVXlBVw4jRbEU1VGOe8pqoJyKlPcSZT1TNgrlfaz4tfJJq0S98vmgXB6VrwA0ILVJWpth
tTlemxc1XtaWVO2wri0jTbM03dFOetpaoJ2NtI1E8zLt40L7FGtxrX3RalmvXRu0zVG7AWAAaRC0QbEGwxucaAiyIamGohsaMgzL
QI5heoYdGG5k+IkRZkZcGCk28tooWwP3RjUYzWh0j/wlEUkjmkUsj3gRiTKSVaTqSEcIWchykOMhL0BBhKIEJRnKClRghGtUt6jt
UT+gYUQP3TaBNJ+kzV2suZc3F0XzJdlcUc3junkSmaZlOo75gWdeDMxLkXk5Ma9m5mZhfo/NpjZ/bs2hN/8czL9H8z8AG0h7irbn
WJvj7SXRlmVbU+1V3V5Dtm3ZnmNf9Ow4sK9E9rXExpn9Q2HfwvYvtX2nte/19v3Bnhzth7G6QLpP0e6zrPsc7x4S3Vdl94TqntLd
s8h1LTdw3EueeyVwv4ncbxP3Zub+VLi/Yvdu7f7TuhO9Ozu47Og+D+AD6U/T/m7WX+D9w6Kvyv6q6r+n+xvI9y0/cvzLnn8t8L+N
/B8Tv8/83wr/L+zfr32y9ed6/8DgHxr9FYAQyHA7HbJsKPChLIZvyCFSw3U99FAYWmHihFe9EAfhzSjsk/D3LLxXhA9wOF2He9pw
sQ9fGcLXx/BtgBjIeIaO59l4iY+XxViX4zU13tDjj1EcW3HmxJte/EMQ/xTFvyXxvSyGIp7B8XwdL7Xxch/rQ7w2xhsAKZDpLJ3u
Y9MX+fSImL4pp2fU9H09/RSlqZUWTvq9l94K0l+j9K8kfZClM0W6F6dinb7Wpqt9enpIL4xpCJADmVN0zrG5xOeamCM5t9Xc1/MY
5bmVYydvvPyXIL8b5feTfDrL54tcxPmROn+rzc/2+YdDHo35lwAlkOUOujzAli/z5TGxfFcuz6nlJ3r5BSpLq6yd8mevvBOU/0Ql
mZR7snKpKF/D5Vt1ud6WH/XlpaHMx/L6o/2SmKYxz2KZx7qILRl7Ko50nCGMLdw6ePDwvQBPRHguwYsZXi7wKsZna/xRi+Mefz3g
GyO+BVABWe2kqwW2UvhqVazW5cpXq8/16hqqKqvqnepPr7ofVLNRdSCpXskqvahO4+rDurrUVl/31XdDdXus/gBogGx20c0i26zw
zUmxceTmotpc1ptN1DRWMzjN314zGTRs1BxKmtezZq1oLuAmqpu8bW70ze2huTM2/wJ0QHZP091BtjvKd++I3Xm5+0ztvtK7G6jr
rG50uv+8jg6656NuJenezrqNogtx92XdXW+7W333x9D9O3az/wMCh7JPv4J8jwAAAABJRU5ErkJggg==
PNG
line() { printf '{"id":"%s","messages":[{"role":"user","content":[%s{"type":"text","text":"%s"}]},{"role":"assistant","content":[{"type":"text","text":"%s"}]}]}\n' "$1" "$2" "$3" "$4"; }
picture='{"type":"image","image":"picture.png"},'
for i in 1 2 3 4 5 6; do line "t$i" "" "say $i" "abc"; done >"$dir/text.jsonl"
for i in 1 2; do line "p$i" "$picture" "what?" "seen"; done >"$dir/pictures.jsonl"
model=(-m "$dir/text.gguf")
seeing=("${model[@]}" --mmproj "$dir/mmproj.gguf" --data "$dir/pictures.jsonl")

# Adapters, on one thread and on two.
lora=("${model[@]}" --data "$dir/text.jsonl" --epochs 12 --batch 3 --learning-rate 0.02 --seed 7)
losses "${lora[@]}" --trainable lora --out "$dir/a1.gguf" -t 1 | falls 0.7 || fail "lora does not learn"
losses "${lora[@]}" --trainable lora --out "$dir/a2.gguf" -t 2 >/dev/null
cmp -s "$dir/a1.gguf" "$dir/a2.gguf" || fail "threads change the adapter"
losses "${lora[@]}" --trainable ffa --targets attn_output,ffn_down --out "$dir/f.gguf" | falls 0.8 ||
    fail "ffa does not learn"
losses "${lora[@]}" --trainable core --rank 16 --learning-rate 0.1 --out "$dir/core.gguf" | falls 0.9 ||
    fail "core does not learn"
[ "$(wc -c <"$dir/core.gguf")" -lt "$(($(wc -c <"$dir/f.gguf") * 2))" ] || fail "cores are as large as pairs"
"$tacit" eval "${model[@]}" --adapter "$dir/core.gguf" --data "$dir/text.jsonl" >/dev/null || fail "eval refuses cores"
# Ranks of their own, under rsLoRA, in the last layer alone; of names with stars as well.
losses "${lora[@]}" --trainable lora --targets 'attn_?=2,ffn_*=4' --rslora --last-layers 1 --out "$dir/own.gguf" |
    falls 0.9 || fail "ranks of their own do not learn"
subject=("$tacit")
expect 0 'blk.1.attn_q.weight.lora_b +f32 +\[2,' inspect "$dir/own.gguf"
expect 0 'blk.1.ffn_up.weight.lora_b +f32 +\[4,' inspect "$dir/own.gguf"
expect 0 'adapter.lora.alpha' inspect "$dir/own.gguf"
"$tacit" inspect "$dir/own.gguf" | grep -q 'blk.0' && fail "the first layer is adapted, too"
subject=("$tacit" train)
expect 2 "nothing of the model, .*, fits the target 'attn_x'" "${lora[@]}" --trainable lora --targets attn_x --out "$dir/x"
# Soft prompts: rows before everything, and before every picture; nothing else changes.
losses "${lora[@]}" --trainable prompt --virtual-tokens 8 --learning-rate 0.3 --out "$dir/prompt.gguf" | falls 0.9 ||
    fail "a prompt does not learn"
subject=("$tacit")
expect 0 'prompt.text +f32 +\[[0-9]+,8\]' inspect "$dir/prompt.gguf"
"$tacit" eval "${model[@]}" --adapter "$dir/prompt.gguf" --data "$dir/text.jsonl" >/dev/null || fail "eval refuses prompts"
scores() { "$tacit" logits "${model[@]}" -p abc --top 4 "$@"; }
plain=$(scores)
prompted=$(scores --adapter "$dir/prompt.gguf")
[ "$plain" != "$prompted" ] || fail "the prompt is not read"
subject=("$tacit" train)
expect 2 "rslora is of an adapter" "${lora[@]}" --trainable all --rslora --out "$dir/x"
losses "${lora[@]}" --trainable lora --out "$dir/a3.gguf" --seed 8 >/dev/null
cmp -s "$dir/a1.gguf" "$dir/a3.gguf" && fail "the seed changes nothing"

# Pairs beside the tower and the connector: the adapter changes what pictures become, and says what it is.
losses "${seeing[@]}" --epochs 8 --batch 2 --learning-rate 0.02 --trainable lora --targets 'v.*,mm.*' --out "$dir/tower.gguf" |
    falls 0.9 || fail "a tower's adapter does not learn"
subject=("$tacit")
expect 0 'adapter.type +.*tacit.lora' inspect "$dir/tower.gguf"
rows=(embed "${model[@]}" --mmproj "$dir/mmproj.gguf" --image "$dir/picture.png")
plain=$("$tacit" "${rows[@]}")
adapted=$("$tacit" "${rows[@]}" --adapter "$dir/tower.gguf")
[ "$plain" != "$adapted" ] || fail "rows are those of the base"
"$tacit" train "${seeing[@]}" --trainable lora --targets 'v.*,mm.*' --epochs 1 --out "$dir/x" -t 2 >/dev/null 2>&1
"$tacit" train "${seeing[@]}" --trainable lora --targets 'v.*,mm.*' --epochs 1 --out "$dir/y" -t 1 >/dev/null 2>&1
cmp -s "$dir/x" "$dir/y" || fail "threads change a tower's adapter"
loss_of() { "$tacit" eval "${seeing[@]}" --json "$@" 2>/dev/null | sed 's/.*"loss":\([0-9.]*\).*/\1/'; }
base=$(loss_of)
below "$(loss_of --adapter "$dir/tower.gguf")" "$base" || fail "eval does not see the tower's adapter"
losses "${seeing[@]}" --epochs 8 --batch 2 --learning-rate 0.3 --trainable prompt --image-virtual-tokens 4 \
    --out "$dir/image-prompt.gguf" | falls 0.95 || fail "a prompt before pictures does not learn"
expect 0 'prompt.image +f32 +\[[0-9]+,4\]' inspect "$dir/image-prompt.gguf"
below "$(loss_of --adapter "$dir/image-prompt.gguf")" "$base" || fail "eval does not see the prompt before pictures"
subject=("$tacit" train)

# Everything: what was saved goes on from there, and is an ordinary model.
all=(--data "$dir/text.jsonl" --trainable all --batch 3 --learning-rate 0.003 --types f32)
losses "${model[@]}" "${all[@]}" --epochs 8 --out "$dir/all.gguf" >"$dir/first"
falls 0.6 <"$dir/first" || fail "full training does not learn"
losses -m "$dir/all.gguf" "${all[@]}" --epochs 1 --out "$dir/more.gguf" >"$dir/second"
cat "$dir/first" "$dir/second" | falls 0.6 || fail "the saved model lost what it learned"
"$tacit" tokenize -m "$dir/all.gguf" -p "abc" >/dev/null || fail "the saved model does not load"

# Through a picture: the projector alone, and tower and text together.
losses "${seeing[@]}" --trainable projector --epochs 10 --batch 2 --learning-rate 0.01 \
    --out "$dir/mm.gguf" | falls 0.95 || fail "the projector does not learn"
losses "${seeing[@]}" --trainable all --epochs 8 --batch 2 --learning-rate 0.003 --types q8_0 \
    --out "$dir/all.gguf" --out-mmproj "$dir/all-mm.gguf" | falls 0.6 || fail "all does not learn"
expect 0 'epoch 1: loss' -m "$dir/all.gguf" --mmproj "$dir/all-mm.gguf" --data "$dir/pictures.jsonl" \
    --trainable ffa --out "$dir/f.gguf" --eval "$dir/pictures.jsonl"

# A chat template that is not supported: said before data are read, and another can be chosen.
unknown_template "$dir/text.gguf" "$dir/odd.gguf"
expect 3 'is not one of those supported .*; choose one with --chat-template$' -m "$dir/odd.gguf" \
    --data "$dir/absent.jsonl" --trainable lora --out "$dir/x"
expect 0 'epoch 1: loss' -m "$dir/odd.gguf" --chat-template smolvlm --data "$dir/text.jsonl" --trainable lora --out "$dir/x"
expect 3 "made of the token '<.im_end.>'" "${model[@]}" --chat-template chatml --data "$dir/absent.jsonl" \
    --trainable lora --out "$dir/x"

subject=()
expect 3 'expected a text model, found an adapter .*, which goes to --adapter' "$tacit" run -m "$dir/a1.gguf" -p x
expect 3 'expected a text model, found an encoder .*, which goes to --mmproj' "$tacit" run -m "$dir/mmproj.gguf" -p x
subject=("$tacit" train)

# A weight that is no number: the last block's scale. It ends with the first step, not with the last.
cp "$TACIT_SOURCE/tests/nano/nano.gguf" "$dir/nan.gguf"
printf '\x00\x7e' | dd of="$dir/nan.gguf" bs=1 seek=$(($(stat -c %s "$dir/nan.gguf") - 34)) conv=notrunc status=none
expect 1 'step 1: the loss -?nan is no number: nothing was written; lower --learning-rate' -m "$dir/nan.gguf" \
    --data "$dir/text.jsonl" --trainable lora --epochs 1000000 --out "$dir/nan-adapter.gguf"
[ ! -e "$dir/nan-adapter.gguf" ] || fail "an adapter of no numbers"

expect 0 'usage: tacit train' --help
expect 2 'trainable' "${model[@]}" --data "$dir/text.jsonl" --out "$dir/x"
expect 2 'expected lora, ffa, core, prompt, projector or all' "${lora[@]}" --trainable adalora --out "$dir/x"
expect 2 'fits the target' "${lora[@]}" --trainable lora --targets attn_z --out "$dir/x"
# What a set has no use for is not taken silently.
for given in "targets attn_q" "rank 4" "alpha 2" "rslora" "last-layers 1"; do
    for set in all prompt; do
        # shellcheck disable=SC2086
        expect 2 "^tacit: --${given% *} is of an adapter: --trainable lora, ffa or core, not $set$" "${model[@]}" \
            --data "$dir/text.jsonl" --trainable "$set" --out "$dir/x" --$given
    done
done
expect 2 '^tacit: --virtual-tokens is of an adapter: --trainable prompt, not lora$' "${lora[@]}" --trainable lora \
    --virtual-tokens 4 --out "$dir/x"
expect 2 '^tacit: --image-virtual-tokens is of an adapter: --trainable prompt, not core$' "${lora[@]}" --trainable core \
    --image-virtual-tokens 4 --out "$dir/x"
expect 2 '--virtual-tokens: expected .*4096' "${lora[@]}" --trainable prompt --virtual-tokens 4097 --out "$dir/x"
# A result that could not be written, or would replace what is read, is told before anything is trained.
expect 1 'none/x: cannot create' "${lora[@]}" --trainable lora --out "$dir/none/x"
grep -q epoch <<<"$("$tacit" train "${lora[@]}" --trainable lora --out "$dir/none/x" 2>&1 || true)" && fail "trained for nothing"
expect 2 'which is read; name another file' "${lora[@]}" --trainable lora --out "$dir/./text.jsonl"
expect 2 'which is read' "${seeing[@]}" --trainable all --out "$dir/x" --out-mmproj "$dir/mmproj.gguf"
expect 2 'named for two results' "${seeing[@]}" --trainable all --out "$dir/x" --out-mmproj "$dir/./x"
expect 2 '--types is of a saved model' "${lora[@]}" --trainable lora --types f32 --out "$dir/x"
expect 2 '--momentum is of --optimizer sgd' "${lora[@]}" --trainable lora --momentum 0.5 --out "$dir/x"
expect 0 'epoch 12' "${lora[@]}" --trainable lora --optimizer sgd --momentum 0.5 --out "$dir/x"
expect 2 'expected adamw' "${lora[@]}" --trainable lora --optimizer lion --out "$dir/x"
expect 2 '--form llava: expected hf, hf-frame' "${lora[@]}" --trainable lora --form llava --out "$dir/x"
expect 2 'no projector' "${lora[@]}" --trainable projector --out "$dir/x"
expect 2 'out-mmproj' "${seeing[@]}" --trainable all --out "$dir/x"
expect 3 'absent.jsonl' "${model[@]}" --data "$dir/absent.jsonl" --trainable lora --out "$dir/x"
expect 3 'no usable example' "${model[@]}" --data "$dir/pictures.jsonl" --trainable lora --out "$dir/x"
echo '{"id":' >>"$dir/text.jsonl"
expect 3 'text.jsonl:7' "${lora[@]}" --trainable lora --strict --out "$dir/x"
expect 0 '"skipped":1' "${lora[@]}" --trainable lora --json --out "$dir/x"
