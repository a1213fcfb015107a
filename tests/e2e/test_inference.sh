#!/usr/bin/env bash
# tacit run, logits and bench as a person types them: threads and kernels change no exact answer,
# seeds repeat, pictures and raw prompts go in, what comes out is whole text, and errors.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
subject=("$tacit")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

same() { [ "$1" = "$2" ] || fail "$3: '$1' and '$2' differ"; }

"$TACIT_BIN/write_tiny_model" "$dir"
text=$dir/text.gguf mmproj=$dir/mmproj.gguf
base64 -d >"$dir/picture.png" <<'PNG'
iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==
PNG

# Exact logits: the same bits whatever the threads, near one another whatever the kernels.
one=$("$tacit" logits -m "$text" -p "Where is it?" --exact --all --top 5 -t 1)
for threads in 2 3; do
    same "$one" "$("$tacit" logits -m "$text" -p "Where is it?" --exact --all --top 5 -t $threads)" \
        "logits on $threads threads"
done
[ "$(wc -l <<<"$one")" = 12 ] || fail "12 tokens, but: $one"
best() { awk '{ split($1, a, ":"); print a[1], sprintf("%.2f", a[2]) }'; }
for cpu in generic avx2; do
    same "$(best <<<"$one")" \
        "$(TACIT_CPU=$cpu "$tacit" logits -m "$text" -p "Where is it?" --exact --all --top 5 2>/dev/null | best)" \
        "logits with $cpu"
done
last=$("$tacit" logits -m "$text" -p "Where is it?" --exact --top 5)
same "$(tail -n 1 <<<"$one" | best)" "$(best <<<"$last")" "the last position"
expect 0 '^\{"tokens":\[[0-9, ]+\],"logits":\[\{"id":[0-9]+,"logit":-?[0-9.]+' \
    logits -m "$text" -p "Where?" --json
# The end token of SmolVLM's template, read as one token only on request.
expect 0 '"tokens":\[[0-9]+\]' logits -m "$text" -p "<end_of_utterance>" --special --json
expect 0 '"tokens":\[[0-9]+,[0-9]+,' logits -m "$text" -p "<end_of_utterance>" --json

# A file that asks for a BOS gets one, whether prompt or template spell it too or not; another text
# in that place is text.
bos=257
expect 0 "^\{\"tokens\":\[$bos, ?120\]" logits -m "$dir/bos.gguf" -p x --json
expect 0 "^\{\"tokens\":\[$bos, ?120\]" logits -m "$dir/bos.gguf" -p "<|im_start|>x" --special --json
expect 0 "^\{\"tokens\":\[$bos, ?60, ?124" logits -m "$dir/bos.gguf" -p "<|im_start|>x" --json
expect 0 "^\{\"tokens\":\[$bos, ?120, ?$bos\]" \
    logits -m "$dir/bos.gguf" -p "x<|im_start|>" --special --json
expect 0 "^\{\"tokens\":\[$bos\]" logits -m "$dir/bos.gguf" -p "" --json
same "$("$tacit" logits -m "$dir/bos.gguf" -p "What?" --chat --exact)" \
    "$("$tacit" logits -m "$text" -p "What?" --chat --exact)" "the template's BOS and the file's"

# A prompt out of a file or from standard input is the typed one, but for the end of its last line.
printf 'Where is it?\n' >"$dir/prompt.txt"
for command in logits run; do
    typed=$("$tacit" $command -m "$text" -p 'Where is it?' --exact)
    same "$typed" "$("$tacit" $command -m "$text" -f "$dir/prompt.txt" --exact)" "$command of a file"
    same "$typed" "$(printf 'Where is it?\r\n' | "$tacit" $command -m "$text" --file - --exact)" "$command of a pipe"
    same "$typed" "$(printf 'Where is it?' | "$tacit" $command -m "$text" --file - --exact)" "$command without a line end"
    expect 2 'expected either --prompt TEXT or --file FILE, which is - for standard input' "$command" -m "$text"
    expect 2 'expected either --prompt' "$command" -m "$text" -p x -f "$dir/prompt.txt"
    expect 3 'none.txt: cannot open' "$command" -m "$text" -f "$dir/none.txt"
done
printf 'a\0b' >"$dir/nul.txt"
expect 3 'nul.txt: byte 1: expected text, found a NUL' run -m "$text" -f "$dir/nul.txt"
same "$("$tacit" tokenize -m "$text" -f "$dir/prompt.txt")" "$("$tacit" tokenize -m "$text" -f - <"$dir/prompt.txt")" "tokens of a pipe"

# Answers: greedy ones repeat on any number of threads, sampled ones with their seed.
answer() { "$tacit" run -m "$text" -p "What?" -n 24 "$@" --json | sed 's/,"prompt_rows".*//'; }
same "$(answer --exact -t 1)" "$(answer --exact -t 2)" "greedy answers"
same "$(answer --temp 5 --seed 7 -t 1)" "$(answer --temp 5 --seed 7 -t 2)" "answers of one seed"
[ "$(answer --temp 5 --seed 7)" != "$(answer --temp 5 --seed 8)" ] || fail "two seeds, one answer"
"$tacit" run -m "$text" -p "What?" -n 60 --temp 9 --seed 3 >"$dir/answer"
iconv -f UTF-8 -t UTF-8 "$dir/answer" >/dev/null || fail "the answer is not UTF-8"
# A text that ends the answer, wherever in tokens it begins; none of it is shown.
said() { "$tacit" run -m "$text" -p "What?" -n 60 --temp 9 --seed 3 "$@"; }
tail=$(grep -aoE '[ -~]{3}' "$dir/answer" | sed -n 3p)
[ -n "$tail" ] || fail "this answer has too few letters; take another seed"
whole=$(said)
same "${whole%%"$tail"*}" "$(said --stop "never said" --stop "$tail")" "an answer until '$tail'"
said --stop "$tail" --json | grep -q '"finish_reason":"stop"' || fail "what stopped it"
same "$whole" "$(said --stop "never said")" "an answer that nothing stops"
expect 2 '--stop: expected a text' run -m "$dir/none.gguf" -p "What?" --stop ""
expect 2 '--stop: expected UTF-8' run -m "$dir/none.gguf" -p "What?" --stop $'\xbf\xbd'
expect 2 'min-p' run -m "$text" -p "What?" --min-p 1.5
expect 0 '"prompt_rows":[0-9]+' run -m "$text" -p "What?" -n 2 --raw --json
plain=$("$tacit" logits -m "$text" -p "What?" --chat --exact)
with_picture=$("$tacit" logits -m "$text" -p "What?" --exact --mmproj "$mmproj" --image "$dir/picture.png")
[[ -n $with_picture && $plain != "$with_picture" ]] || fail "the picture changes nothing"
expect 0 . run -m "$text" --mmproj "$mmproj" --image "$dir/picture.png" -p "What?" -n 3
# A picture of one tile: its nine rows once, or as tile and overview where the form always cuts.
rows() { "$tacit" logits -m "$text" --mmproj "$mmproj" --image "$dir/picture.png" -p "What?" --json --form "$1" | grep -o -- '-1[],]' | wc -l; }
for form in "hf 9" "hf-frame 9" "mtmd 18"; do
    same "$(rows "${form% *}")" "${form#* }" "rows of the form ${form% *}"
done

for line in '[a-z0-9]+, fast, 2 threads' 'prefill +[0-9.]+ tokens/s of 20; a processor second: [0-9.]+' \
    'decode +[0-9.]+ tokens/s of 4; a processor second: [0-9.]+' 'peak RSS +[0-9.]+ MiB'; do
    expect 0 "^$line\$" bench -m "$text" -p 20 -n 4 -r 1 -t 2
done
expect 0 '"prefill_tokens_per_s":[0-9.]+,"decode_tokens_per_s":[0-9.]+,"prefill_tokens_per_cpu_s":[0-9.]+,"decode_tokens_per_cpu_s":[0-9.]+.*"peak_rss_bytes":[0-9]+' \
    bench -m "$text" -p 20 -n 4 -r 1 --exact --json

# Why an answer ends: nano says what it has to, the tiny model never stops. A full context is told.
expect 0 '"finish_reason":"stop"' run -m "$TACIT_SOURCE/tests/nano/nano.gguf" -p "What is the speed?" --json
expect 0 '"finish_reason":"length"' run -m "$text" -p x --raw -n 5 -c 8 --json
expect 0 'context of 8 rows is full, which ended the answer; --context takes up to 512' run -m "$text" -p x --raw -n 500 -c 8
expect 0 'context of 512 rows, all that the model has, is full' run -m "$text" -p x --raw -n 600
"$tacit" run -m "$text" -p x --raw -n 500 -c 8 --json 2>/dev/null >"$dir/full"
grep -qE '"tokens":\[([0-9]+,){7}[0-9]+\],"finish_reason":"context"' "$dir/full" || fail "not 8 tokens in 8 rows: $(cat "$dir/full")"
"$tacit" run -m "$text" -p x --raw -n 8 -c 8 2>&1 | grep full && fail "a full context is told of an answer that was to end there"

# Conversations need a template whose tokens the vocabulary has; raw prompts need none.
unknown_template "$text" "$dir/odd.gguf"
expect 3 'is not one of those supported .*; choose one with --chat-template$' run -m "$dir/odd.gguf" -p x -n 1
expect 3 'choose one with --chat-template$' logits -m "$dir/odd.gguf" -p x --chat
expect 0 . run -m "$dir/odd.gguf" -p x -n 1 --raw
expect 0 . run -m "$dir/odd.gguf" -p x -n 1 --chat-template smolvlm
expect 0 . bench -m "$dir/odd.gguf" -p 8 -n 1 -r 1
expect 2 "form" bench -m "$text" -p 8 -n 1 -r 1 --form odd
expect 2 "unknown option '--system'" bench -m "$text" -p 8 -n 1 -r 1 --system s
expect 0 "^  chat template: .*is not one of those supported .smolvlm, " inspect "$dir/odd.gguf"
expect 3 "template .llama3. is made of the token '<.start_header_id.>', which the vocabulary does not have; choose one with --chat-template: smolvlm, [^3]*$" \
    run -m "$TACIT_SOURCE/tests/nano/nano.gguf" -p x --chat-template llama3
LC_ALL=C sed '0,/<end_of_utterance>/s//<end_of_utterancx>/' "$text" >"$dir/lacking.gguf"
lacking="the chat template .smolvlm. is made of the token '<end_of_utterance>', which the vocabulary does not have"
expect 3 "$lacking; (choose one with --chat-template: [a-z]|it can spell none)" run -m "$dir/lacking.gguf" -p x
expect 0 "^  chat template: $lacking" inspect "$dir/lacking.gguf"

# A system turn stands where the template has it.
spelled=$(printf '<|im_start|>System: s<end_of_utterance>\nUser: x<end_of_utterance>\nAssistant:')
tokens() { "$tacit" logits -m "$text" --top 1 --json "$@" | sed 's/"logits".*//'; }
same "$(tokens --system s -p x)" "$(tokens --special -p "$spelled")" "the tokens with a system turn"
expect 2 '--system, --image' run -m "$text" --raw --system s -p x

# What goes wrong says what, with the design's exit codes.
head -c 20000 "$text" >"$dir/torn.gguf"
expect 3 'nowhere.gguf' run -m "$dir/nowhere.gguf" -p x
expect 3 'torn.gguf' run -m "$dir/torn.gguf" -p x
expect 3 "found an encoder .*, which goes to --mmproj" run -m "$mmproj" -p x
expect 3 'text.gguf' run -m "$text" --mmproj "$text" -p x
expect 3 'picture|image' run -m "$text" -p x --image "$dir/picture.png"
expect 3 'absent.png' run -m "$text" --mmproj "$mmproj" -p x --image "$dir/absent.png"
# What is too long says how long it is, whose limit it meets, and what can be done.
long=$(head -c 60000 /dev/zero | tr '\0' a)
expect 3 'an input of 60000 rows: the context holds 512, which is all that the model has' logits -m "$text" -p "$long"
expect 3 'a conversation of 600[0-9][0-9] rows: the model.s context holds 512; shorten it' run -m "$text" -p "$long"
expect 3 'an input of 2[0-9] rows: the context holds 8, the model.s up to 512; .* enlarge the context' run -m "$text" -p x -c 8
expect 3 'part.gguf: one of 2 parts; join them' run -m "$dir/part.gguf" -p x
expect 3 'part.gguf: one of 2 parts; join them' logits -m "$text" --mmproj "$dir/part.gguf" -p x
expect 2 '--form llava: expected hf, hf-frame' run -m "$text" --mmproj "$mmproj" --image "$dir/picture.png" -p x --form llava
expect 2 '--raw' run -m "$text" --mmproj "$mmproj" --raw --image "$dir/picture.png" -p x
expect 2 'temp' run -m "$text" -p x --temp -1
expect 2 'prompt' run -m "$text"
TACIT_CPU=vax expect 2 'TACIT_CPU=vax is none of this architecture.s: expected generic, avx2, avx512 or amx' \
    logits -m "$text" -p x
expect 2 'no rows' logits -m "$text" -p ""
echo "inference holds"
