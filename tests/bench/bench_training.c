/* Time of training steps on a random model in nano's shape, per record and in tokens a second:
 *   bench_training [THREADS [SECONDS [TEXT.gguf]]]
 *   bench_training step OPTIONS      (training_step.c: an optimizer step, private and not)
 * FFA-LoRA (rank 8 on o and down, 16 picture rows and 25 of text, 4 of them trained), LoRA on all
 * linears, and full training of batches of 32 sequences of 200 rows; with a model file adapters
 * alone, on 256 rows. One line of JSON each, with the anonymous memory after it, and how much of
 * the rate of one large fp32 product of the same machine and run the step reaches by processor
 * time: recomputation, attention and everything but the products of forward and backward counted as
 * loss. */
#include "common/clock.h"

#include "product_rate.h"
#include "training_step.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 128, LAYERS = 4, HEADS = 4, KV_HEADS = 2, FF = 512, VOCAB = 768, PICTURE = 16 };

static float noise(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static void put(gguf_writer *w, const char *name, uint64_t n_in, uint64_t n_out, tacit_type type,
                float scale)
{
    const uint64_t ne[2] = {n_in, n_out};
    float *values = malloc(n_in * n_out * sizeof *values);
    for (size_t i = 0; i < n_in * n_out; i++)
        values[i] = n_out == 1 ? 1.0f : scale * noise();
    gguf_put_tensor(w, name, n_out == 1 ? 1 : 2, ne, type, values);
    free(values);
}

static void put_layer(gguf_writer *w, int layer)
{
    static const struct {
        const char *name;
        uint64_t n_in, n_out;
    } linears[] = {{"attn_q", WIDTH, WIDTH},     {"attn_k", WIDTH, WIDTH / 2},
                   {"attn_v", WIDTH, WIDTH / 2}, {"attn_output", WIDTH, WIDTH},
                   {"ffn_gate", WIDTH, FF},      {"ffn_up", WIDTH, FF},
                   {"ffn_down", FF, WIDTH}};
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    put(w, name, WIDTH, 1, TACIT_TYPE_F32, 1);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    put(w, name, WIDTH, 1, TACIT_TYPE_F32, 1);
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, linears[i].name);
        put(w, name, linears[i].n_in, linears[i].n_out, TACIT_TYPE_Q8_0, 0.1f);
    }
}

static tacit_model *make_model(void)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"llama.context_length", 2048},
                {"llama.embedding_length", WIDTH},
                {"llama.block_count", LAYERS},
                {"llama.feed_forward_length", FF},
                {"llama.attention.head_count", HEADS},
                {"llama.attention.head_count_kv", KV_HEADS},
                {"llama.vocab_size", VOCAB}};
    gguf_writer *w = gguf_writer_new();
    tacit_model *m = calloc(1, sizeof *m);
    uint8_t *bytes;
    size_t size;
    tacit_error err;
    gguf_put_string(w, "general.architecture", "llama", 5);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        gguf_put_u32(w, keys[i].key, keys[i].value);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put(w, "token_embd.weight", WIDTH, VOCAB, TACIT_TYPE_Q8_0, 1);
    put(w, "output_norm.weight", WIDTH, 1, TACIT_TYPE_F32, 1);
    for (int i = 0; i < LAYERS; i++)
        put_layer(w, i);
    if (gguf_write_memory(w, &bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(&m->text_file, bytes, size, "nano", &err) != TACIT_OK ||
        text_model_load(&m->text, m->text_file, &err) != TACIT_OK) {
        fprintf(stderr, "bench_training: %s\n", err.message);
        exit(1);
    }
    gguf_writer_free(w);
    return m;
}

tacit_model *open_model(const char *path)
{
    tacit_error err;
    tacit_model *m = calloc(1, sizeof *m);
    if (gguf_open(&m->text_file, path, &err) == TACIT_OK &&
        text_model_load(&m->text, m->text_file, &err) == TACIT_OK)
        return m;
    fprintf(stderr, "bench_training: %s\n", err.message);
    exit(1);
}

unsigned long status_bytes(const char *name)
{
    char line[128];
    unsigned long kib = 0;
    size_t size = strlen(name);
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, size) == 0 && sscanf(line + size, ": %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return 1024 * kib;
}

tacit_input make_input(const tacit_model *m, size_t rows, size_t picture, size_t trained)
{
    size_t width = m->text.embedding;
    tacit_input in = {.count = rows, .n_media = picture > 0};
    in.row = calloc(rows, sizeof *in.row);
    in.media = calloc(1, sizeof *in.media);
    in.media->n_rows = picture;
    in.media->rows = calloc((picture + 1) * width, sizeof(float));
    for (size_t i = 0; i < picture * width; i++)
        in.media->rows[i] = noise();
    for (size_t i = 0; i < rows; i++) {
        bool image = i >= 4 && i < 4 + picture;
        int32_t token = (int32_t)(i * 7919 % m->text.vocab);
        in.row[i] = (tacit_row){.token = image ? (int32_t)(i - 4) : token,
                                .modality = image ? TACIT_MODALITY_IMAGE : TACIT_MODALITY_TOKEN,
                                .trained = i + trained >= rows,
                                .position = (uint32_t)i};
    }
    return in;
}

static tacit_status ignore(void *ctx, size_t unit, const float *grad, double loss)
{
    (void)unit, (void)loss;
    *(double *)ctx += (double)grad[0];
    return TACIT_OK;
}

typedef struct work {
    const char *name;
    tacit_trainable_spec spec;
    size_t rows, picture, trained, examples, units;
} work;

double example_flops(const tacit_model *m, tacit_trainable_kind kind, size_t rows, size_t trained)
{
    const tacit_text_model *text = &m->text;
    double layers = 0, output = (double)text->output.n_in * (double)text->output.n_out;
    for (size_t l = 0; l < text->n_layers; l++)
        for (int i = 0; i < TEXT_LINEARS; i++)
            layers +=
                (double)text->layer[l].linear[i].n_in * (double)text->layer[l].linear[i].n_out;
    double products = kind == TACIT_TRAIN_ALL ? 3 : 2;
    return 2 * products * (layers * (double)rows + output * (double)trained);
}

static void measure(const tacit_model *m, const work *w, tacit_pool *pool, double seconds)
{
    tacit_trainer *t;
    tacit_error err;
    double sum = 0, start, cpu, spent;
    size_t rounds = 0;
    tacit_input in = make_input(m, w->rows, w->picture, w->trained);
    const tacit_input *example[32];
    tacit_unit unit[64];
    for (size_t i = 0; i < 32; i++)
        example[i] = &in;
    for (size_t i = 0; i < w->units; i++)
        unit[i] = (tacit_unit){example, w->examples};
    if (tacit_trainer_new(&t, m, &w->spec, 256, pool, &err) != TACIT_OK ||
        tacit_trainer_grads(t, unit, w->units, ignore, &sum, &err) != TACIT_OK) {
        fprintf(stderr, "bench_training: %s\n", err.message);
        exit(1);
    }
    start = tacit_clock_seconds();
    cpu = processor_seconds();
    do {
        if (tacit_trainer_grads(t, unit, w->units, ignore, &sum, &err) != TACIT_OK)
            exit(1);
        rounds++;
        spent = tacit_clock_seconds() - start;
    } while (spent < seconds);
    double examples = (double)(rounds * w->units * w->examples);
    cpu = (processor_seconds() - cpu) / examples;
    printf(
        "{\"work\":\"%s\",\"threads\":%zu,\"values\":%zu,\"ms_per_example\":%.3f,"
        "\"cpu_ms_per_example\":%.3f,\"train_tokens_per_s\":%.0f,\"train_tokens_per_cpu_s\":%.0f,"
        "\"of_product_rate\":%.3f,\"rss_anon_bytes\":%lu}\n",
        w->name, tacit_pool_threads(pool), tacit_trainer_layout(t)->values, 1000 * spent / examples,
        1000 * cpu, examples * (double)w->rows / spent, (double)w->rows / cpu,
        example_flops(m, w->spec.kind, w->rows, w->trained) / cpu / product_rate(pool, seconds / 4),
        status_bytes("RssAnon"));
    fflush(stdout);
    tacit_trainer_free(t);
}

int main(int argc, char **argv)
{
    static const work works[] = {
        {"ffa o,down r8, 41 rows",
         {.kind = TACIT_TRAIN_LORA_FFA,
          .target = {"attn_output", "ffn_down"},
          .n_targets = 2,
          .rank = 8,
          .alpha = 16},
         41,
         PICTURE,
         4,
         1,
         32},
        {"lora all r8, 41 rows",
         {.kind = TACIT_TRAIN_LORA,
          .target = {"attn_*", "ffn_*"},
          .n_targets = 2,
          .rank = 8,
          .alpha = 16},
         41,
         PICTURE,
         4,
         1,
         32},
        {"all, batch of 32, 200 rows", {.kind = TACIT_TRAIN_ALL}, 200, 0, 60, 32, 1},
    };
    static const work model_works[] = {
        {"ffa q,k,v,o r8, 256 rows",
         {.kind = TACIT_TRAIN_LORA_FFA,
          .target = {"attn_*"},
          .n_targets = 1,
          .rank = 8,
          .alpha = 16},
         256,
         0,
         32,
         1,
         1},
        {"lora q,k,v,o r8, 256 rows",
         {.kind = TACIT_TRAIN_LORA, .target = {"attn_*"}, .n_targets = 1, .rank = 8, .alpha = 16},
         256,
         0,
         32,
         1,
         1},
    };
    tacit_pool *pool;
    if (argc > 1 && strcmp(argv[1], "step") == 0)
        return training_step_main(argc - 1, argv + 1);
    bool file = argc > 3;
    tacit_model *m = file ? open_model(argv[3]) : make_model();
    const work *chosen = file ? model_works : works;
    if (tacit_pool_new(&pool, argc > 1 ? strtoul(argv[1], NULL, 10) : 1, NULL) != TACIT_OK)
        return 1;
    for (size_t i = 0; i < (file ? sizeof model_works : sizeof works) / sizeof works[0]; i++)
        measure(m, &chosen[i], pool, argc > 2 ? strtod(argv[2], NULL) : 2);
    tacit_pool_free(pool);
    return 0;
}
