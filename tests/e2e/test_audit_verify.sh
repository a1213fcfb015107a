#!/usr/bin/env bash
# tacit-audit verify as an auditor types it: report, JSON, exit codes 0, 2, 3 and 6.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
audit=$TACIT_BIN/tacit-audit
subject=("$audit")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$TACIT_BIN/test_export" "$work"

expect 0 'clean: ok' verify "$work/clean"
expect 0 'violations: 0' verify "$work/clean"
expect 0 'a log cannot prove' verify "$work/clean"
expect 0 '"audit":"ok"' verify "$work/clean" --json
expect 0 '"violations":\[\]' verify "$work/clean" --json
expect 0 'receipts held against it: 1' verify "$work/clean" --receipt "$work/good.receipt"
# The schedule of the log, b = 100000 on a grid of 2^16, as the field writes it.
sigma=$(awk 'BEGIN { printf "%.6g", 100000 / (sqrt(2 * log(2)) * 65536) }')
expect 0 "3 rounds of 10 steps, subsampled_gaussian, sigma $sigma, q 0.05, clip 0.5, unit record, add-remove" \
    verify "$work/clean"
expect 0 '"schedules":\[\{"entry":4,.*"accountant":"(rdp|pld)","schedule_rounds":3,"epsilon":1.[0-9]*,"rounds_planned":3,.*"rounds":3,.*"steps":10,"clip_norm":0.5\}\]' verify "$work/clean" --json
expect 0 'in all 3 rounds: epsilon 1.[0-9]* \((rdp|pld)\); as far as planned 1.[0-9]*' verify "$work/clean"
expect 0 'planned 3, reserved 3, summed 3, published 3, failed 0' verify "$work/clean"
expect 0 'in all 3 rounds: epsilon infinite' verify "$work/none" --allow-non-private
expect 0 '3 rounds of 10 steps, mechanism none' verify "$work/none" --allow-non-private
key=$(sed -n 's/^log //p' "$work/clean/keys.txt")
expect 0 'clean: ok' verify "$work/clean" --log-key "$key"
other=$(sed -n 's/^log //p' "$work/lying/keys.txt")
expect 6 'wrong_log_key' verify "$work/clean" --log-key "$other"

# A device that states a smaller epsilon than its events amount to.
expect 6 'epsilon_mismatch at entry [0-9]+: logged 0.25, recomputed' verify "$work/lying"
expect 6 '"kind":"epsilon_mismatch","entry":[0-9]+,"detail":' verify "$work/lying" --json
expect 6 '"audit":"violations"' verify "$work/lying" --json

# Rounds without noise.
expect 6 'non_private' verify "$work/none"
expect 0 'epsilon against the server infinite' verify "$work/none" --allow-non-private

# Every check has its line: what was looked at, what was not, and why.
expect 0 'checks: 25 passed, 0 failed, 11 skipped' verify "$work/clean"
expect 0 'pass +signatures +.*\(entries: 44\)' verify "$work/clean"
expect 0 'skipped +receipts +none given \(--receipt FILE\)' verify "$work/clean"
expect 0 'pass +receipts .*\(receipts: 1\)' verify "$work/clean" --receipt "$work/good.receipt"
expect 0 'skipped +log_key +none given' verify "$work/clean"
expect 0 'pass +log_key' verify "$work/clean" --log-key "$key"
expect 6 'fail +log_key +1 violation; expected' verify "$work/clean" --log-key "$other"
expect 6 'fail +epsilons +1 violation, first at entry [0-9]+; expected' verify "$work/lying"
expect 6 '"name":"epsilons","outcome":"fail",.*"failures":1,"first_entry":[0-9]+,"reason":null' verify "$work/lying" --json
expect 0 'skipped +non_private +allowed by --allow-non-private' verify "$work/none" --allow-non-private

# A receipt of another log; a log that lost its end; one that lost a byte.
expect 6 'bad_receipt' verify "$work/lying" --receipt "$work/good.receipt"
entries=tile/entries/000.p/$(sed -n 2p "$work/clean/checkpoint")
hashes=${entries/entries/0}
cp -r "$work/clean" "$work/short"
head -c -1 "$work/clean/$entries" >"$work/short/$entries"
expect 3 "$entries: entry" verify "$work/short"
rm "$work/short/$entries"
expect 6 'incomplete_export' verify "$work/short"
mkdir "$work/short/$entries"
expect 3 "$entries" verify "$work/short"
cp -r "$work/clean" "$work/flipped"
size=$(stat -c %s "$work/flipped/$entries")
printf '\xff\xff' | dd of="$work/flipped/$entries" bs=1 seek=$((size - 2)) conv=notrunc status=none
expect 6 'bad_signature' verify "$work/flipped"
expect 6 'root_mismatch' verify "$work/flipped"
expect 6 "tile_mismatch: $hashes" verify "$work/flipped"
cp -r "$work/clean" "$work/untiled"
rm "$work/untiled/$hashes"
expect 6 "tile_mismatch: .*$hashes" verify "$work/untiled"

expect 3 "keys.txt: cannot open: no such file, so .*nothing is no export; 'tacit-server ledger export' writes one" verify "$work/nothing"
expect 3 'keys.txt: Receipt' verify "$work/clean" --receipt "$work/clean/keys.txt"
expect 3 'missing.receipt' verify "$work/clean" --receipt "$work/missing.receipt"
expect 2 'EXPORT' verify
expect 2 '--log-key: key .x.: expected NAME' verify "$work/clean" --log-key x
expect 2 "unknown option '--html'" verify "$work/clean" --html x

# Every file of an export missing, unreadable as what it is, or garbage; no folder at all.
for file in keys.txt checkpoint; do
    cp -r "$work/clean" "$work/without-$file"
    rm "$work/without-$file/$file"
    expect 3 "$file" verify "$work/without-$file"
    mkdir "$work/without-$file/$file"
    expect 3 "$file" verify "$work/without-$file"
done
expect 3 'keys.txt' verify "$work/clean/$entries"
cp -r "$work/clean" "$work/garbage"
printf 'garbage' >"$work/garbage/$entries"
expect 3 "$entries: entry 0" verify "$work/garbage"
cp "$work/clean/$entries" "$work/garbage/$entries"
printf 'log garbage' >"$work/garbage/keys.txt"
expect 3 'keys.txt' verify "$work/garbage"
cp "$work/clean/keys.txt" "$work/garbage"
printf 'garbage' >"$work/garbage/checkpoint"
expect 3 'checkpoint' verify "$work/garbage"
sed 's/^[0-9][0-9]*$/0/' "$work/clean/checkpoint" >"$work/garbage/checkpoint"
expect 6 'wrong_start: the log has no entries' verify "$work/garbage"
expect 6 'bad_checkpoint' verify "$work/garbage"

# An export of before: all entries in one file, the length of each as u32 LE before it.
expect 0 'old: ok' verify "$work/old" --receipt "$work/good.receipt"
head -c -1 "$work/old/log.bin" >"$work/old/cut"
mv "$work/old/cut" "$work/old/log.bin"
expect 3 'log.bin: entry' verify "$work/old"
printf 'garbage' >"$work/old/log.bin"
expect 3 'log.bin: entry 0' verify "$work/old"
rm "$work/old/log.bin"
expect 3 'log.bin' verify "$work/old"

# The help lists the commands that exist, and those alone.
listed=$("$audit" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | tr '\n' ' ')
[ "$listed" = "epsilon calibrate verify witness report canary " ] || fail "--help lists '$listed'"
for command in $listed; do expect 0 "usage: tacit-audit $command" "$command" --help; done
echo "audit verify: ok"
