#!/usr/bin/env bash
# tacit-audit report as an auditor types it: the page, the table, JSON, exit codes.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
audit=$TACIT_BIN/tacit-audit
subject=("$audit")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/fleet"
"$TACIT_BIN/test_audit_tamper" "$work/fleet" # and device.receipt beside it
"$TACIT_BIN/test_export" "$work"

page=$work/report.html table=$work/devices.csv
holds() { grep -qE -- "$2" "$1" || fail "'$2' not in $1"; }
lacks() { if grep -qiE -- "$2" "$1"; then fail "'$2' in $1"; fi; }

expect 0 'violations: 0, devices: 3, rounds: 4' report "$work/fleet" --html "$page" --csv "$table"
holds "$page" '^<meta http-equiv="Content-Security-Policy" content="default-src .none.; style-src .sha256-'
holds "$page" 'No violation was found. Checks: 29 passed, 0 failed, 7 skipped'
holds "$page" 'no receipt of a device was held against the log'
holds "$page" 'worse in the field'
lacks "$page" '<script|<img|<link|<iframe|src=|href=|https?:|url\(|@import| style='
[ "$(tail -c 8 "$page")" = '</html>' ] || fail "the page is cut"

# A receipt is counted and its warning gone; the bytes are the same again, the date is the auditor's.
expect 0 'violations: 0' report "$work/fleet" --html "$page.2" --receipt "$work/device.receipt"
holds "$page.2" 'Checks: 31 passed, 0 failed, 5 skipped'
lacks "$page.2" 'no receipt of a device'
expect 0 'violations: 0' report "$work/fleet" --html "$page.3"
cmp "$page" "$page.3"
expect 0 'violations: 0' report "$work/fleet" --html "$page.3" --date '<b>today</b>'
holds "$page.3" '<dd>&lt;b&gt;today&lt;/b&gt;</dd>'

# A row for each device under a header of 17 columns, each ended by CR LF.
[ "$(grep -c $'\r$' "$table")" = 4 ] || fail "four records were expected"
[ "$(head -1 "$table" | tr ',' '\n' | wc -l)" = 17 ] || fail "17 columns were expected"
[ "$(sed -n 3p "$table" | cut -d, -f2)" = d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1 ] || fail "another device"
told=$("$audit" verify "$work/fleet" --json | grep -o '"device":"d1[^}]*"epsilon":[0-9.]*' | sed 's/.*://')
[ "$(sed -n 3p "$table" | cut -d, -f6)" = "$(printf %.12g "$told")" ] || fail "another epsilon than verify's"

# Whoever has the JSON computes a device's epsilon anew.
recompute() { # recompute PSEUDONYM: "its epsilon, what tacit-audit epsilon says", six digits each
    local object events order
    object=$("$audit" verify "$work/fleet" --json | grep -o "\"device\":\"$1[^]]*]")
    order=$(sed -E 's/.*"order":([0-9.a-z]+),.*/\1/' <<<"$object")
    mapfile -t events < <(grep -oE '"sigma":[^}]*' <<<"$object" |
        sed -E 's/"sigma":([^,]*),"q":([^,]*),"steps":([0-9]+)/--event=\1:\2:\3/')
    [ "$order" = null ] || events+=(--accountant rdp --orders "$order")
    printf '%.5g %.5g\n' "$(sed -E 's/.*"epsilon":([^,]*),.*/\1/' <<<"$object")" \
        "$("$audit" epsilon "${events[@]}" --delta 1e-5 | cut -d' ' -f2)"
}
for device in d0 d1 d2; do
    read -r told computed < <(recompute "$device")
    [ "$told" = "$computed" ] || fail "$device: $told, computed anew $computed"
done

# Schedules and rounds as tables of their own.
expect 0 'violations: 0' report "$work/fleet" --schedules-csv "$work/schedules.csv" --rounds-csv "$work/rounds.csv"
[ "$(wc -l <"$work/schedules.csv")" = 3 ] || fail "two schedules were expected"
[ "$(wc -l <"$work/rounds.csv")" = 5 ] || fail "four rounds were expected"
holds "$work/schedules.csv" ',(rdp|pld),1.[0-9]+,1.[0-9]+,2,2,2,2,0'
holds "$page" '<h2>Schedules</h2>'
expect 0 '"schedules":\[\{"entry":4,.*"schedule_rounds":3,"epsilon":1.[0-9]+,"rounds_planned":2,' report "$work/fleet" --json

# JSON holds what verify prints, and more.
expect 0 '"audit":"ok",.*"checks":\[.*"round_list":\[.*"events":\[.*"curves":\[\[\[[0-9]+,[0-9.]+\]' report "$work/fleet" --json
expect 0 '"statement":\{"claim":"Over its whole life.*"warnings":\["no receipt' report "$work/fleet" --json

# Violations come first and do not keep the files from being written.
expect 6 'lying: 1 violation, the first is epsilon_mismatch' report "$work/lying" --html "$page"
holds "$page" '1 violation was found.*'
[ "$(grep -n '<h2>' "$page" | sed -n 1p | sed 's/.*<h2>\(.*\)<\/h2>.*/\1/')" = Violations ] || fail "something comes first"
holds "$page" '<code>epsilon_mismatch</code>'
expect 6 'non_private' report "$work/none" --csv "$table"
expect 0 'violations: 0' report "$work/none" --csv "$table" --html "$page" --allow-non-private
holds "$page" 'whose epsilon is infinite: 3'
holds "$page" 'Of 3 devices nothing finite can be said'
lacks "$page" 'each of the [a-z0-9 ]*devices revealed'
[ "$(sed -n 2p "$table" | cut -d, -f6,7,9)" = infinite,0,infinite ] || fail "rounds without noise cost a number"

expect 2 'nothing to write; give --html' report "$work/fleet"
expect 2 'EXPORT' report
expect 3 'missing' report "$work/missing" --json
expect 3 'missing.receipt' report "$work/fleet" --json --receipt "$work/missing.receipt"
expect 1 'nowhere' report "$work/fleet" --html "$work/nowhere/report.html"
echo "audit report: ok"
