"""A picture of 512 pixels through a tower of SigLIP-B/16's shape (random weights, idefics3's
projector, one frame), beside llama.cpp and ik_llama.cpp on the same files: used by
bench_inference.py, whose head tells how figures are to be read.

ik_llama.cpp tells milliseconds by the clock alone.
"""
import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import time
import zlib

SIDE = 512
FRAMES = 4  # pictures of one run: Tacit's mean counts, of the peers the best
SLICE = re.compile(r"slice encoded in (\d+) ms")


def pixels(seed):
    """Noise, the same in every run."""
    state, out = seed, bytearray()
    for _ in range(SIDE * SIDE * 3):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(state >> 16 & 255)
    return bytes(out)


def write_picture(path, seed):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    plane, width = pixels(seed), SIDE * 3
    lines = b"".join(b"\0" + plane[at:at + width] for at in range(0, len(plane), width))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def files(options):
    """{type of the tower: its file}, the text model, pictures that differ (equal ones are encoded once)."""
    text = os.path.join(options.dir, "smollm2-135m-q8_0.gguf")
    pictures = [os.path.join(options.dir, f"noise-512-{i}.png") for i in range(FRAMES)]
    if not os.path.exists(text):
        subprocess.run([os.path.join(options.bin, "write_shape"), "smollm2-135m", text, "--type", "q8_0"], check=True)
    for seed, picture in enumerate(pictures, 1):
        write_picture(picture, seed)
    towers = {kind: os.path.join(options.dir, f"siglip-b16-512-{kind}.gguf") for kind in ("q8_0", "f16")}
    for kind, path in towers.items():
        if not os.path.exists(path):
            subprocess.run([os.path.join(options.bin, "bench_vision"), "write", kind, path], check=True)
    return towers, text, pictures


def tacit(run, program, text, tower, pictures, threads):
    images = [part for picture in pictures for part in ("--image", picture)]
    answer = json.loads(run([program, "bench", "-m", text, "--mmproj", tower, *images, "--form", "mtmd", "-t",
                             str(threads), "-p", "1", "-n", "1", "-r", "2", "-c", "512", "--json"], threads)[0])
    return [answer[key] / answer["frames"] for key in ("encode_seconds", "encode_cpu_seconds")]


def ik_llama_cpp(run, build, text, tower, pictures, threads):
    best = None
    for picture in pictures:
        out = run([os.path.join(build, "bin", "llama-mtmd-cli"), "-m", text, "--mmproj", tower, "--image", picture,
                   "-p", "a", "-n", "1", "-c", "2048", "-t", str(threads), "--log-disable"], threads, both=True)[0]
        times = [float(ms) / 1e3 for ms in SLICE.findall(out.decode("utf-8", "replace"))]
        if not times:
            sys.exit("ik_llama.cpp told no time of a slice")
        best = min(times + ([best] if best else []))
    return [best, float("nan")]


def llama_cpp(run, script, text, tower, threads):
    return json.loads(run([sys.executable, script, "--tower-child", text, tower, str(threads)], threads)[0])


def llama_cpp_child(text, tower, threads):
    """In a process of its own, so that pinning and processor time are its own."""
    import llama_cpp as peer
    from llama_cpp import mtmd_cpp as mtmd
    quiet = peer.llama_log_callback(lambda _level, _text, _data: None)
    peer.llama_backend_init()
    peer.llama_log_set(quiet, None)
    mtmd.mtmd_helper_log_set(quiet, None)
    model = peer.llama_model_load_from_file(text.encode(), peer.llama_model_default_params())
    options = mtmd.mtmd_context_params_default()
    options.use_gpu, options.print_timings, options.n_threads, options.warmup = False, False, threads, False
    context = mtmd.mtmd_init_from_file(tower.encode(), model, options)
    if not context:
        sys.exit(f"llama.cpp cannot load {tower}")
    plane = (ctypes.c_uint8 * (SIDE * SIDE * 3)).from_buffer_copy(pixels(1))
    bitmap = mtmd.mtmd_bitmap_init(SIDE, SIDE, plane)
    raw = mtmd.mtmd_default_marker()
    prompt = mtmd.mtmd_input_text(text=raw, text_len=len(raw), add_special=False, parse_special=True)
    chunks = mtmd.mtmd_input_chunks_init()
    if mtmd.mtmd_tokenize(context, chunks, ctypes.byref(prompt), (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap), 1) != 0:
        sys.exit("llama.cpp cannot cut the picture")
    parts = [mtmd.mtmd_input_chunks_get(chunks, i) for i in range(mtmd.mtmd_input_chunks_size(chunks))]
    frames = [part for part in parts if mtmd.mtmd_input_chunk_get_type(part) == mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE]
    best = [float("inf")] * 2
    for _ in range(FRAMES):
        for frame in frames:
            start = time.perf_counter(), time.process_time()
            if mtmd.mtmd_encode_chunk(context, frame) != 0:
                sys.exit("llama.cpp cannot encode the picture")
            end = time.perf_counter(), time.process_time()
            best = [min(b, e - s) for b, s, e in zip(best, start, end)]
    print(json.dumps(best))
