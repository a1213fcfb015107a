# shellcheck shell=bash
# What every test of a command line uses. Sourced. `subject` is what each command of `expect` begins
# with, for a test of one program; empty, each command names its program.
subject=()

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# unknown_template MODEL OUT: the same model, but for a chat template that nobody knows.
unknown_template() {
    LC_ALL=C sed 's/capitalize/titlecased/g' "$1" >"$2"
    cmp -s "$1" "$2" && fail "$1 has another template than this test thinks"
    return 0
}

# below A B: both are numbers, and A is the smaller one. Words that are none are never below.
below() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        number = "^-?[0-9]+([.][0-9]*)?([eE][-+]?[0-9]+)?$"
        exit !(a ~ number && b ~ number && a + 0 < b + 0)
    }'
}

# expect CODE PATTERN WORDS...: exit code, and a pattern that both outputs together contain.
expect() {
    local code=$1 pattern=$2 found=0 text
    shift 2
    text=$("${subject[@]}" "$@" 2>&1) || found=$?
    [ "$found" = "$code" ] || fail "$*: exit $found, expected $code: $text"
    grep -qE -- "$pattern" <<<"$text" || fail "$*: '$pattern' not in: $text"
}
