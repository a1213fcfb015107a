#!/usr/bin/env bash
# The accountants beside dp-accounting, which it installs from PyPI into build/bench the first time.
# Called by `./run bench`, and `./run bench --only accounting` runs it alone.
#
# usage: bench_accounting.sh [BIN]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${1:-$root/build/bin}
venv=$root/build/bench/venv
log=$root/build/bench/install.log

mkdir -p "$root/build/bench"
if ! "$venv/bin/python" -c 'import dp_accounting' 2>/dev/null; then
    { python3 -m venv "$venv" && "$venv/bin/pip" install dp-accounting==0.6.0; } >"$log" 2>&1 || {
        echo "bench_accounting.sh: dp-accounting could not be installed ($(tail -1 "$log" | cut -c1-200)):" \
            "see $log; it needs python3-venv and the package index" >&2
        exit 1
    }
fi
exec "$venv/bin/python" "$here/bench_accounting.py" "$bin"
