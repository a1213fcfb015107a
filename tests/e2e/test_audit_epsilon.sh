#!/usr/bin/env bash
# tacit-audit epsilon and calibrate as a person types them: output, JSON and exit codes.
set -euo pipefail
# shellcheck source=tests/e2e/expect.sh
source "$TACIT_SOURCE/tests/e2e/expect.sh"
audit=$TACIT_BIN/tacit-audit
subject=("$audit")

# Values of the reference (dp-accounting) to the digits printed.
expect 0 '^epsilon 2\.10137' epsilon --event 1:0.01:1000 --delta 1e-5 --accountant rdp
expect 0 '"epsilon":3\.54869668' epsilon --event 1.2:1:1 --delta 1e-5 --accountant analytic --json
expect 0 '"epsilon":4\.77974472' epsilon --event 1.2:0.05:100 --event 1:0.01:400 --event 4:1:10 --delta 1e-5 --accountant rdp --json
expect 0 '"epsilon":4\.77975533' epsilon --event 1.2:0.05:100 --event 1:0.01:400 --event 4:1:10 --delta 1e-5 --accountant rdp-compat --json
expect 0 '^epsilon 6\.1877' epsilon --event 1:0.01:10000 --delta 1e-5 --accountant pld
expect 0 '^epsilon 6\.1877' epsilon --event 1:0.01:10000 --delta 1e-5
expect 0 '"epsilon":3\.54869668[12]' epsilon --event 1.2:1:1 --delta 1e-5 --accountant pld --pld-interval 1e-4 --json
expect 0 '^epsilon [0-9.]+ at delta 1e-05 \(pld, replace-one' epsilon --event 1:0.01:100 --delta 1e-5 --accountant pld --neighbours replace-one
expect 0 'sigma 3\.7306316' calibrate --epsilon 1 --delta 1e-5 --q 1 --steps 1 --accountant analytic
expect 0 '"b":[0-9]+,"executed_sigma":' calibrate --epsilon 8 --delta 1e-5 --q 0.08 --steps 100 --json
expect 0 'usage: tacit-audit epsilon' epsilon --help

expect 2 'event is missing' epsilon --delta 1e-5
expect 2 'expected SIGMA:Q:STEPS' epsilon --event 1:0.1 --delta 1e-5
expect 2 'expected one of pld, rdp' epsilon --event 1:0.1:1 --delta 1e-5 --accountant moments
expect 2 'delta' epsilon --event 1:0.1:1 --delta 1,5
expect 2 'has no interval; leave it out, or take pld' epsilon --event 1:0.1:1 --delta 1e-5 --accountant rdp --pld-interval 1e-4
expect 3 'between 0 and 1' epsilon --event 1:0.1:1 --delta 0
expect 4 'replace-one' epsilon --event 1:0.5:1 --delta 1e-5 --accountant rdp --neighbours replace-one
expect 4 'exact for q = 1 only' epsilon --event 1:0.5:1 --delta 1e-5 --accountant analytic
echo "audit epsilon: ok"
