#!/usr/bin/env bash
# One root takes the place of another: the new one is handed out beside the old one, then issues
# while the old one is trusted still. A real device follows; one that was away does not.
set -euo pipefail
# shellcheck source=tests/e2e/federation.sh
source "$TACIT_SOURCE/tests/e2e/federation.sh"

make_federation
cp "$work/server/ca/ca.pem" "$work/old.pem"
"$bin/tacit-server" init "$work/next" --host 127.0.0.1 --port 0 --enrol-port 0 --model "$work/text.gguf" >/dev/null
new=$work/next/ca
start_server
for name in cart van; do make_data "$work/$name.jsonl" 1; done
enrol cart "$(token)" >/dev/null
once() { "$bin/tacit-client" run --dir "$work/$1" --once; }
expect 0 '' once cart
expect 0 'certificate  until [0-9-]+.*, renewed from [0-9-]+' "$bin/tacit-client" status --dir "$work/cart"

# The new root joins ca.pem behind the own one.
stop_server
cat "$work/old.pem" "$new/ca.pem" >"$work/server/ca/ca.pem"
start_server
enrol van "$(token)" >/dev/null
grep -qF "$(sed -n 2p "$new/ca.pem")" "$work/van/identity/root.pem" || fail "van was not told the new root"
expect 0 '' once van
expect 0 '' once cart

# It issues; certificates of the old one are taken still.
stop_server
cat "$new/ca.pem" "$work/old.pem" >"$work/server/ca/ca.pem"
cp "$new/ca.key" "$work/server/ca/ca.key"
start_server
expect 0 '' once van
expect 5 'certificate' once cart

# A key that is not the first certificate's is found at the start.
stop_server
cat "$work/old.pem" "$new/ca.pem" >"$work/server/ca/ca.pem"
expect 6 'ca.pem and ca.key do not belong together' "$bin/tacit-server" run --dir "$work/server"
echo "roots overlap"
