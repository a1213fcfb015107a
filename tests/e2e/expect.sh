# shellcheck shell=bash
# What every test of a command line uses. Sourced. `subject` is what each command of `expect` begins
# with, for a test of one program; empty, each command names its program.
subject=()

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect CODE PATTERN WORDS...: exit code, and a pattern that both outputs together contain.
expect() {
    local code=$1 pattern=$2 found=0 text
    shift 2
    text=$("${subject[@]}" "$@" 2>&1) || found=$?
    [ "$found" = "$code" ] || fail "$*: exit $found, expected $code: $text"
    grep -qE -- "$pattern" <<<"$text" || fail "$*: '$pattern' not in: $text"
}
