#!/usr/bin/env bash
# Where what `tacit` says and writes goes: terminals that no model and no data set steers, outputs
# that are full or closed, places that are no files.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
tacit=$TACIT_BIN/tacit
subject=("$tacit")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
nano=$TACIT_SOURCE/tests/nano/nano.gguf

# Control characters but for line ends, tabs and what a terminal itself puts before line ends.
steers() { LC_ALL=C grep -qaP '[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]' "$1"; }

# An answer of any tokens at all, those of control characters among them, and how many there were.
any=(run -m "$nano" -p x --temp 100 --seed 5 -n 400)
"$tacit" "${any[@]}" >"$dir/piped" 2>"$dir/log"
steers "$dir/piped" || fail "this answer has nothing in it that steers a terminal; take another seed"
script -qec "$(printf '%q ' "$tacit" "${any[@]}")" /dev/null >"$dir/shown" </dev/null
[ "$(wc -c <"$dir/shown")" -gt 400 ] || fail "nothing was shown: $(cat "$dir/shown")"
steers "$dir/shown" && fail "an answer steers the terminal"
# JSON lets U+009B and its like through: on a terminal it is ASCII, elsewhere UTF-8.
"$tacit" "${any[@]}" --json >"$dir/piped"
script -qec "$(printf '%q ' "$tacit" "${any[@]}" --json)" /dev/null >"$dir/shown" </dev/null
LC_ALL=C grep -qaP '[\x80-\xff]' "$dir/piped" || fail "this answer is ASCII alone; take another seed"
LC_ALL=C grep -qaP '[\x80-\xff]' "$dir/shown" && fail "JSON steers the terminal"
[ "$(tail -1 "$dir/shown" | sed 's/.*"text":"\([^"]*\)".*/\1/' | wc -c)" -gt 400 ] || fail "nothing was shown"

# A data set's ids and answers, to people.
cat >"$dir/d.jsonl" <<'D'
{"id":"\u001b[2Jkind:1","messages":[{"role":"user","content":"What is the speed?"},{"role":"assistant","content":"\u001b]0;x\u0007\r\u009b2J"}]}
D
expect 0 'kind' eval -m "$nano" --data "$dir/d.jsonl" --answers
"$tacit" eval -m "$nano" --data "$dir/d.jsonl" --answers >"$dir/eval" 2>&1
steers "$dir/eval" && fail "a data set steers the terminal: $(cat -v "$dir/eval")"
LC_ALL=C grep -qaP '\xc2\x9b|\r' "$dir/eval" && fail "a data set steers the terminal"

# What cannot be printed is a failure, whether it was buffered or not.
for command in "run -m $nano -p x -n 4" "run -m $nano -p x -n 4 --json" "inspect $nano" \
    "eval -m $nano --data $dir/d.jsonl" "tokenize -m $nano -p x"; do
    found=0
    # shellcheck disable=SC2086
    "$tacit" $command >/dev/full 2>"$dir/log" || found=$?
    [ "$found" = 1 ] || fail "$command to a full disk: exit $found"
    grep -q "cannot write to standard output" "$dir/log" || fail "$command: $(cat "$dir/log")"
    found=0
    # shellcheck disable=SC2086
    "$tacit" $command >&- 2>"$dir/log" || found=$?
    [ "$found" = 1 ] || fail "$command to a closed output: exit $found"
    grep -q "cannot write to standard output" "$dir/log" || fail "$command: $(cat "$dir/log")"
done
# An empty prompt is said to be one: whoever fed it may have failed.
expect 0 'standard input is empty' run -m "$nano" -f - -n 1 </dev/null

# Without standard files none of the program's own gets their numbers.
"$tacit" quantize "$nano" "$dir/whole.gguf" --type q4_0 >/dev/null 2>&1
code=0
"$tacit" quantize "$nano" "$dir/closed.gguf" --type q4_0 <&- >&- 2>&- || code=$?
[ "$code" = 1 ] || fail "nobody was told what was written, and nothing failed: exit $code"
cmp "$dir/whole.gguf" "$dir/closed.gguf" || fail "what was said went into the file"

# A device, a pipe, a folder: told before the work, and left as they are.
mkfifo "$dir/pipe"
ln -s /dev/null "$dir/device"
for target in "$dir/pipe" "$dir" "$dir/device"; do
    expect 2 'expected a regular file' quantize "$nano" "$target" --type q4_0
    expect 2 'expected a regular file' calibrate -m "$nano" --data "$dir/d.jsonl" -o "$target"
    expect 2 'expected a regular file' train -m "$nano" --data /nowhere --trainable lora -o "$target"
done
[ -p "$dir/pipe" ] || fail "the pipe is gone"
[ -c "$dir/device" ] || fail "the link to a device is gone"
expect 1 'No such file' train -m "$nano" --data /nowhere --trainable lora -o "$dir/no/a.gguf"

# A limit on the size of files is an error that names the file.
found=0
(ulimit -f 8 && "$tacit" quantize "$nano" "$dir/large.gguf" --type q4_0) >"$dir/log" 2>&1 || found=$?
[ "$found" = 1 ] || fail "beyond the largest file: exit $found: $(cat "$dir/log")"
grep -q "large.gguf: cannot write: File too large" "$dir/log" || fail "$(cat "$dir/log")"
[ ! -e "$dir/large.gguf" ] || fail "a part of the file is there"
