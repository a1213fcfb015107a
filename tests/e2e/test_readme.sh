#!/usr/bin/env bash
# What engine/README.md shows runs as it stands there: every line of its fenced blocks that is a
# command, from the tree, with /tmp put aside; where a comment behind it is a number, that is what it
# prints. So does every command that it names exist, and every option of its comparison.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
readme=$TACIT_SOURCE/engine/README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$TACIT_SOURCE/tests" "$work/tests"
mkdir "$work/build"
ln -s "$TACIT_BIN" "$work/build/bin"
cd "$work"

# shellcheck disable=SC2016
sed -n '/^```/,/^```/{/^```/!p}' "$readme" | sed "s|/tmp/|$work/|g" >lines
[ "$(grep -c '^tacit\|tacit run' lines)" -ge 18 ] || fail "the lines of $readme were not found"
# All records show nothing here that fewer would not.
# shellcheck disable=SC2016
sed -i 's|\$D/data.jsonl|$D/few.jsonl|; s|\$D/heldout.jsonl|$D/few.jsonl|' lines
while IFS= read -r line; do
    if ! eval "$line" >out 2>err; then
        fail "$line: $(cat err)"
    fi
    case $line in
    *'tacit-scenes fleet'*) head -n 8 "$work/fleet/device-1/data.jsonl" >"$work/fleet/device-1/few.jsonl" ;;
    esac
    shown=$(sed -n 's/.*  # \([0-9][0-9]*\)$/\1/p' <<<"$line")
    [ -z "$shown" ] || [ "$(tr -d ' ' <out)" = "$shown" ] || fail "$line: printed $(cat out)"
done <lines

# Commands and options that the tables name.
commands=$("$TACIT_BIN/tacit" --help)
for command in run inspect eval quantize calibrate bench tokenize logits embed train 'adapter info' 'adapter export' \
    'adapter import' 'sensor new'; do
    grep -q "^  $command " <<<"$commands" || fail "tacit has no $command"
    grep -q "tacit $command" "$readme" || fail "$readme says nothing of tacit $command"
done
help=$("$TACIT_BIN/tacit" run --help)
for option in -m -p -f -n -c -t --temp --top-k --top-p --seed --system --adapter --kv --mmproj --image --audio \
    --sensor --form --raw; do
    grep -qE -- "^ .*${option}[, ]" <<<"$help" || fail "tacit run has no $option"
    grep -q -- "$option" "$readme" || fail "$readme says nothing of $option"
done
# The types that it lists are those that there are.
types=$("$TACIT_BIN/tacit" quantize --help | sed -n 's/.*--type T  *\(.*\) (required)/\1/p' | sed 's/ or /, /')
grep -qF "| types of weights | $types," "$readme" || fail "types are '$types'; $readme lists others"
echo "the README holds"
