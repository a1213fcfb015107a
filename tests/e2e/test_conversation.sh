#!/usr/bin/env bash
# tacit chat: turns of one conversation, of which each computes only what is new. The oracle is
# `tacit eval`, which computes every turn from its begin: the same answers at every turn.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
nano=$TACIT_SOURCE/tests/nano
model=(-m "$nano/nano.gguf" --mmproj "$nano/mmproj-nano.gguf" --mmproj "$nano/mmproj-nano-audio.gguf"
    --mmproj "$nano/mmproj-nano-sensor.gguf")
chat() { "$tacit" chat "${model[@]}" --exact --json -n 12 "$@"; }
# number NAME: that of each line of JSON.
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

"$TACIT_BIN/tacit-scenes" senses --split P --count 30 --seed 5 --out "$dir" >/dev/null 2>&1
image=$(cd "$dir" && echo img/* | cut -d' ' -f1) audio=$(cd "$dir" && echo snd/* | cut -d' ' -f1)
sensor=$(cd "$dir" && echo csv/* | cut -d' ' -f1)

# Media of the command line stand before the first turn, others before the next one; an empty line
# says nothing; two slashes are one of the text.
printf '%s\n' 'What is the heart rate?' 'Which alarm?' "/audio $dir/$audio" '//which alarm?' '' \
    "/sensor $dir/$sensor" "/image $dir/$image" 'Do they agree?' 'What is the heart rate?' >"$dir/lines"
chat --system 'Answer shortly.' --image "$dir/$image" <"$dir/lines" >"$dir/answers"
mapfile -t said < <(sed -n 's/^{"text":"\([^"\\]*\)".*/\1/p' "$dir/answers")
[ ${#said[@]} = 5 ] || fail "five turns, found: $(cat "$dir/answers")"

text() { printf '{"type":"text","text":"%s"}' "$1"; }
media() { printf '{"type":"%s","%s":"%s"},' "$1" "$1" "${!1}"; }
turn() { printf ',{"role":"user","content":[%s]},{"role":"assistant","content":"%s"}' "$1" "$2"; }
{
    printf '{"id":"c","messages":[{"role":"system","content":"Answer shortly."}'
    turn "$(media image)$(text 'What is the heart rate?')" "${said[0]}"
    turn "$(text 'Which alarm?')" "${said[1]}"
    turn "$(media audio)$(text '/which alarm?')" "${said[2]}"
    turn "$(media sensor)$(media image)$(text 'Do they agree?')" "${said[3]}"
    turn "$(text 'What is the heart rate?')" "${said[4]}"
    printf ']}\n'
} >"$dir/record.jsonl"
found=$("$tacit" eval "${model[@]}" --data "$dir/record.jsonl" --json -n 12 --strict)
grep -q '"accuracy":1\.0*,.*"examples":5,' <<<"$found" || fail "eval answers otherwise: $found; chat: ${said[*]}"

# Every turn keeps at least the rows of the turn before, less the opening that its answer followed.
mapfile -t rows < <(number prompt_rows <"$dir/answers") && mapfile -t kept < <(number kept_rows <"$dir/answers")
[ "${kept[0]}" = 0 ] || fail "the first turn keeps ${kept[0]} rows"
for i in 1 2 3 4; do
    [ "${kept[i]}" -ge "${rows[i - 1]}" ] || fail "turn $i keeps ${kept[i]} of ${rows[i - 1]} rows"
done

# What a text stopped is what was said: the next turn is answered as eval answers behind the cut one.
stop=${said[0]: -1}
printf '%s\n' 'What is the heart rate?' 'Which alarm?' |
    chat --system 'Answer shortly.' --image "$dir/$image" --stop "$stop" >"$dir/stopped"
mapfile -t cut < <(sed -n 's/^{"text":"\([^"\\]*\)".*/\1/p' "$dir/stopped")
[ "${cut[0]}" = "${said[0]%%"$stop"*}" ] || fail "'$stop' stops '${said[0]}' as '${cut[0]}'"
[[ ${cut[1]} != *"$stop"* && -n ${cut[1]} ]] || fail "'$stop' stops the second answer, too; take another"
{
    printf '{"id":"c","messages":[{"role":"system","content":"Answer shortly."}'
    turn "$(media image)$(text 'What is the heart rate?')" "${cut[0]}"
    turn "$(text 'Which alarm?')" "${cut[1]}"
    printf ']}\n'
} >"$dir/record.jsonl"
found=$("$tacit" eval "${model[@]}" --data "$dir/record.jsonl" --json -n 12 --strict)
grep -q '"accuracy":0\.50*,.*"examples":2,' <<<"$found" || fail "eval answers otherwise: $found; chat: ${cut[*]}"

# A new conversation answers as a first one does; what a failed turn said is forgotten.
printf '%s\n' 'Which alarm?' /new 'Which alarm?' | chat >"$dir/anew"
[ "$(sed 's/,"tokens".*//' "$dir/anew" | uniq | wc -l)" = 1 ] || fail "anew: $(cat "$dir/anew")"
[ "$(number prompt_rows <"$dir/anew" | uniq | wc -l)" = 1 ] || fail "not anew: $(cat "$dir/anew")"

# Where nobody sits at the other end an error ends it.
refused() {
    local code=$1 pattern=$2 lines=$3 status=0 text
    shift 3
    text=$(printf '%b' "$lines" | "$tacit" chat "${model[@]}" "$@" 2>&1) || status=$?
    [ "$status" = "$code" ] || fail "${lines:0:60}: exit $status, expected $code: $text"
    grep -qE -- "$pattern" <<<"$text" || fail "${lines:0:60}: '$pattern' not in: $text"
}
refused 2 "'/help': expected /image FILE" '/help\n'
refused 3 'No such file' '/image /nowhere.jpg\nwhat?\n'
refused 3 'a NUL' 'a\0b\n'
refused 3 'more than 1048576 bytes' "$(head -c 1100000 /dev/zero | tr '\0' a)\\nx\\n"
refused 3 'rows: at most 8 are taken here' 'one two three\n' --context 8
refused 0 '^$' ''
refused 0 '^$' '/quit\nwhat?\n'

# To a person an error is told, and the conversation goes on without that turn; a file that is not
# there is told at once, before a question is asked about it.
printf '%s\n' '/image /nowhere.jpg' "/image $dir/lines" 'what?' 'Which alarm?' /quit >"$dir/typed"
script -qec "$(printf '%q ' "$tacit" chat "${model[@]}" --exact -n 12)" /dev/null <"$dir/typed" >"$dir/shown" 2>&1
answer=$(head -1 "$dir/anew" | sed 's/^{"text":"\([^"]*\)".*/\1/')
grep -q 'nowhere.jpg' "$dir/shown" || fail "the missing picture is not named: $(cat "$dir/shown")"
grep -q 'lines: expected a JPEG or PNG' "$dir/shown" || fail "no picture, and nobody says so: $(cat "$dir/shown")"
grep -qF "$answer" "$dir/shown" || fail "'$answer' not in: $(cat "$dir/shown")"
subject=("$tacit")
expect 0 'usage: tacit chat' chat --help
expect 2 'unknown option' chat "${model[@]}" --nonsense
echo "tacit chat answers as tacit eval does, and keeps what it has computed"
