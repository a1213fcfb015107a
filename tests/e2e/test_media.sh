#!/usr/bin/env bash
# Several encoders in one model as a person types them: pictures, sound and sensors together through run,
# logits, embed, eval and train; media without an encoder, files of one kind twice.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
subject=("$tacit")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$TACIT_BIN/write_tiny_model" "$dir"
cp "$TACIT_SOURCE/tests/fuzz/corpus/image/good/jpeg_full" "$dir/a.jpg"
printf 'time,speed,rpm\n0,50,\n0.5,60,2000\n0.9,40,1900\n' >"$dir/a.csv"
printf 'time,speed\n0,90\n1.5,10\n' >"$dir/b.csv"
printf 'time,volts\n0,1\n' >"$dir/bad.csv"
text=(-m "$dir/text.gguf")
both=("${text[@]}" --mmproj "$dir/mmproj.gguf" --mmproj "$dir/sensor.gguf")
turned=("${text[@]}" --mmproj "$dir/sensor.gguf" --mmproj "$dir/mmproj.gguf")
line() { printf '{"id":"%s","messages":[{"role":"user","content":[{"type":"image","image":"a.jpg"},{"type":"sensor","sensor":"%s"},{"type":"text","text":"braking?"}]},{"role":"assistant","content":"%s"}]}\n' "$@"; }
{ line x:1 a.csv yes; line x:2 b.csv no; } >"$dir/data.jsonl"
{ line x:1 a.csv yes; line x:2 bad.csv no; } >"$dir/bad.jsonl"

# Rows: a window of 10 samples is three patches of four; rows carry times; the picture's do not.
rows=$("$tacit" embed "${both[@]}" --sensor "$dir/a.csv" --json)
[[ $rows =~ \"seconds\":\[0.0,0.4,0.8\] ]] || fail "embed: no times: $rows"
[ "$(tr -cd '[' <<<"$rows" | wc -c)" = 5 ] || fail "embed: expected 3 rows: $rows"
[ "$("$tacit" embed "${both[@]}" --sensor "$dir/a.csv" --sensor "$dir/b.csv" --image "$dir/a.jpg" | wc -l)" = 16 ] ||
    fail "embed: expected 9 rows of a picture, 3 and 4 of windows"
expect 2 'name a file by --image, --audio or --sensor' embed "${both[@]}"
expect 3 "bad.csv: column 2 is 'volts': expected time or a channel of the model: speed, rpm, temp" \
    embed "${both[@]}" --sensor "$dir/bad.csv"
truncate -s 1G "$dir/big.csv"
expect 3 'big.csv: .*bytes' embed "${both[@]}" --sensor "$dir/big.csv"

# Sound: 50 frames are 25 positions, eight a row.
three=("${both[@]}" --mmproj "$dir/audio.gguf")
rows=$("$tacit" embed "${three[@]}" --audio "$dir/low.wav" --json)
[[ $rows =~ \"seconds\":\[0.0,0.16,0.32,0.48\] ]] || fail "embed: expected 4 rows of 0.16 s: $rows"
expect 3 'a.csv' embed "${three[@]}" --audio "$dir/a.csv"

# What the model is asked matters; the order of the files names another base, not other answers.
logits() { "$tacit" logits "$@" -p "braking?" --json --exact; }
[ "$(logits "${both[@]}" --sensor "$dir/a.csv")" != "$(logits "${both[@]}" --sensor "$dir/b.csv")" ] ||
    fail "readings change nothing"
[ "$(logits "${three[@]}" --audio "$dir/low.wav")" != "$(logits "${three[@]}" --audio "$dir/high.wav")" ] ||
    fail "sound changes nothing"
[ "$(logits "${both[@]}" --image "$dir/a.jpg" --sensor "$dir/a.csv")" = "$(logits "${turned[@]}" --sensor "$dir/a.csv" --image "$dir/a.jpg")" ] ||
    fail "the order of files or options changes logits"
expect 0 '"prompt_rows":' run "${both[@]}" --image "$dir/a.jpg" --sensor "$dir/a.csv" -p "braking?" -n 3 --json
expect 2 'need the chat template' run "${both[@]}" --sensor "$dir/a.csv" -p x --raw

# Encoding is timed beside text: one picture and one window are two frames.
expect 0 '"frames":2,"encode_seconds":0\.' bench "${both[@]}" --image "$dir/a.jpg" --sensor "$dir/a.csv" -p 4 -n 1 -r 1 --json
expect 0 'encoding +[0-9.]+ ms, .*, 1 frames' bench "${both[@]}" --image "$dir/a.jpg" -p 4 -n 1 -r 1
expect 0 '"frames":0,' bench "${both[@]}" -p 4 -n 1 -r 1 --json

# Media without their encoder, encoders that are too many or somebody else's.
expect 3 'a.csv: the model has no sensor encoder; give its file with --mmproj' run "${text[@]}" --mmproj "$dir/mmproj.gguf" --sensor "$dir/a.csv" -p x
expect 3 'a.jpg: the model has no image encoder' run "${text[@]}" --mmproj "$dir/sensor.gguf" --image "$dir/a.jpg" -p x
expect 3 'low.wav: the model has no audio encoder' run "${both[@]}" --audio "$dir/low.wav" -p x
expect 3 'an encoder for sensor already' run "${both[@]}" --mmproj "$dir/sensor.gguf" -p x
expect 0 'mmproj' inspect "$dir/sensor.gguf"
expect 0 '"prompt_rows":' run "${three[@]}" --image "$dir/a.jpg" --audio "$dir/low.wav" --sensor "$dir/a.csv" -p "?" -n 3 --json

expect 0 '"examples":2,"records":2,"skipped":0' eval "${both[@]}" --data "$dir/data.jsonl" --json -n 2
expect 0 '"records":1,"skipped":1' eval "${both[@]}" --data "$dir/bad.jsonl" --json -n 2
expect 3 "bad.jsonl:2: .*bad.csv" eval "${both[@]}" --data "$dir/bad.jsonl" --strict

# Every projector is trained, each into a file of its own, and the files are a model again.
train=(train "${both[@]}" --data "$dir/data.jsonl" --epochs 30 --learning-rate 1e-2 --json)
loss() { sed -n "$1"'s/.*"loss":\([^,]*\),.*/\1/p'; }
expect 2 'out-mmproj: expected 1 times .*, found 0' "${train[@]}" --trainable projector --out "$dir/p.gguf"
"$tacit" "${train[@]}" --trainable projector --out "$dir/p.gguf" --out-mmproj "$dir/s.gguf" >"$dir/log"
below "$(loss '$' <"$dir/log")" "$(loss 1 <"$dir/log")" || fail "projectors learn nothing: $(cat "$dir/log")"
for pair in mmproj:p sensor:s; do
    cmp -s "$dir/${pair%:*}.gguf" "$dir/${pair#*:}.gguf" && fail "$pair was not trained"
done
before=$("$tacit" eval "${both[@]}" --data "$dir/data.jsonl" --json -n 2 | loss 1)
after=$("$tacit" eval "${text[@]}" --mmproj "$dir/p.gguf" --mmproj "$dir/s.gguf" --data "$dir/data.jsonl" --json -n 2 | loss 1)
below "$after" "$before" || fail "the trained files are no better: $before, $after"
"$tacit" "${train[@]}" --trainable all --types f32 --out "$dir/t2.gguf" --out-mmproj "$dir/p2.gguf" --out-mmproj "$dir/s2.gguf" >/dev/null
expect 0 '"records":2' eval -m "$dir/t2.gguf" --mmproj "$dir/p2.gguf" --mmproj "$dir/s2.gguf" --data "$dir/data.jsonl" --json -n 2

# An adapter is of the base with both files, in that order.
"$tacit" "${train[@]}" --trainable lora --out "$dir/a.gguf" >/dev/null
expect 0 '"records":2' eval "${both[@]}" --adapter "$dir/a.gguf" --data "$dir/data.jsonl" --json -n 2
expect 6 'trained on the base' eval "${turned[@]}" --adapter "$dir/a.gguf" --data "$dir/data.jsonl" -n 2

# A device trains on records of both kinds, with noise; one whose readings are damaged counts as nothing.
subject=()
client=("$TACIT_BIN/tacit-client" train --dir "$dir/cart" --data "$dir/bad.jsonl" --out "$dir/c.gguf" --steps 8 --q 0.9 --rank 2)
"${client[@]}" --model "$dir/text.gguf" --mmproj "$dir/mmproj.gguf" --mmproj "$dir/sensor.gguf" \
    --noise-multiplier 100 >"$dir/client.log" 2>&1 || fail "no local training: $(cat "$dir/client.log")"
grep -q 'line 2: .*bad.csv: column 2' "$dir/cart/local.log" || fail "the damaged record is not named: $(cat "$dir/cart/local.log")"
grep -q 'line 1:' "$dir/cart/local.log" && fail "a good record is left out: $(cat "$dir/cart/local.log")"
expect 0 '"records":2' "$tacit" eval "${both[@]}" --adapter "$dir/c.gguf" --data "$dir/data.jsonl" --json -n 2
echo "media of several kinds hold"

# A sensor encoder from nothing: channels, means and deviations are the data's; it is trained like any.
subject=("$tacit")
new=(sensor new "${text[@]}" --rate 10 --patch 4 --width 8)
expect 0 '"windows":2,"longest_seconds":1.5,"channels":\[\{"name":"speed","unit":"","mean":50.0,"std":26.07680962[0-9]*,"readings":5\},\{"name":"rpm","unit":"","mean":1950.0,"std":50.0,"readings":2\}\]' \
    "${new[@]}" --data "$dir/data.jsonl" --out "$dir/new.gguf" --json
# A name that is not UTF-8 is given in hexadecimal digits, and nothing fails when all is done.
expect 0 "\"out\":\"$(printf '%s' "$dir/" | od -An -tx1 | tr -d ' \n')fe\"" "${new[@]}" --data "$dir/data.jsonl" --out "$dir/"$'\xfe' --json
expect 0 'tacit.sensor.max_patches .*4$' inspect "$dir/new.gguf"
expect 0 'tacit.sensor.lowpass .*true' inspect "$dir/new.gguf"
expect 0 'rpm +mean 1950 .*1/min' "${new[@]}" --data "$dir/data.jsonl" --out "$dir/raw.gguf" --raw --channels 'rpm:1/min,speed'
"$tacit" inspect "$dir/raw.gguf" | grep -q lowpass && fail "--raw filters"
expect 3 "a.csv: column 2 is 'speed'" "${new[@]}" --data "$dir/data.jsonl" --out "$dir/x.gguf" --channels rpm
expect 2 'channels' "${new[@]}" --data "$dir/data.jsonl" --out "$dir/x.gguf" --channels 'rpm,,speed'
expect 2 'rate' sensor new "${text[@]}" --data "$dir/data.jsonl" --out "$dir/x.gguf"
sed 's/{"type":"sensor","sensor":"[ab].csv"},//' "$dir/data.jsonl" >"$dir/none.jsonl"
expect 3 'none.jsonl: no record has readings' "${new[@]}" --data "$dir/none.jsonl" --out "$dir/x.gguf"
expect 3 'x.gguf: a sensor encoder of impossible size' "${new[@]}" --data "$dir/data.jsonl" --out "$dir/x.gguf" --seconds 1e6
[ ! -e "$dir/x.gguf" ] || fail "a file that is refused is written"
started=("${text[@]}" --mmproj "$dir/mmproj.gguf" --mmproj "$dir/new.gguf")
"$tacit" train "${started[@]}" --data "$dir/data.jsonl" --epochs 2 --trainable projector --out "$dir/q.gguf" \
    --out-mmproj "$dir/t.gguf" >/dev/null 2>&1 || fail "a new sensor encoder cannot be trained"
[ "$("$tacit" embed "${text[@]}" --mmproj "$dir/t.gguf" --sensor "$dir/b.csv" | wc -l)" = 4 ] || fail "no rows after training"
