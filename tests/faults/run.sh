#!/usr/bin/env bash
# The full set of faults: every call of the scripts with every kind, a second kill during what
# follows the first, and real programs killed at every call of theirs (other kinds at every fourth
# or sixteenth).
# usage: tests/faults/run.sh [account|ledger|federation ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$PWD/build/release
export TACIT_BIN=$build/bin TACIT_SOURCE=$PWD
export TACIT_FAULT_LIBRARY=$build/tests/faults/libfault_calls.so
[ $# -gt 0 ] || set -- account ledger federation
failed=0
for name in "$@"; do
    case $name in
    account | ledger)
        "$TACIT_BIN/fault_$name" --stride 1 || failed=1
        "$TACIT_BIN/fault_$name" --stride 1 --kind kill --twice 1 || failed=1
        "$TACIT_BIN/fault_$name" --stride 1 --kind power --twice 1 || failed=1
        ;;
    federation) bash tests/faults/fault_federation.sh --stride 1 || failed=1 ;;
    *)
        echo "faults: unknown part '$name': expected account, ledger or federation" >&2
        exit 2
        ;;
    esac
done
exit $failed
