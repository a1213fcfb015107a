/* Time of a tower in nano's shape (96 pixels, 144 patches, width 128, 4 blocks) and, with "large",
 * in that of SigLIP-B/16 at 512 pixels (1024 patches, width 768, 12 blocks; SmolVLM's), its weights
 * in Q8_0 and in F16: bench_vision [THREADS [SECONDS [large]]]. One line of JSON a case: processor
 * milliseconds a picture, GFLOP/s, and the share of the rate of one large fp32 product of the same
 * machine and run, everything but products counted as loss. Of fast precision also how far its rows
 * are from the exact ones (relative, L2).
 *
 * bench_vision write q8_0|f16 OUT.gguf: the large tower as a file, for comparisons with others. */
#include "../engine/reference_vision.h"
#include "product_rate.h"

typedef struct bench {
    const char *name;
    reference_spec spec;
} bench;

/* Outputs of a product vary as its inputs do, as those of trained towers nearly do. */
#define SIGLIP(type)                                                                               \
    {                                                                                              \
        .image = 512, .patch = 16, .width = 768, .ff = 3072, .heads = 12, .layers = 12,            \
        .scale = 4, .out = 576, .linears = (type), .gain = 0.125f                                  \
    }

static const bench cases[] = {
    {"nano",
     {.image = 96,
      .patch = 8,
      .width = 128,
      .ff = 512,
      .heads = 4,
      .layers = 4,
      .scale = 3,
      .out = 128,
      .linears = TACIT_TYPE_Q8_0}},
    {"SigLIP-B/16-512, q8_0", SIGLIP(TACIT_TYPE_Q8_0)},
    {"SigLIP-B/16-512, f16", SIGLIP(TACIT_TYPE_F16)},
};

/* Multiplications and additions of one forward. */
static double forward_flops(const vision_shape *s)
{
    double n = s->patches, d = s->width, ff = s->ff;
    double block = 2 * n * (4 * d * d + 2 * d * ff) + 4 * n * n * d;
    return s->layers * block + 2 * n * d * 3 * s->patch_size * s->patch_size +
           2 * n * d * s->out_width;
}

static tacit_vision *load(const reference_spec *spec, uint8_t **bytes, gguf_file **file)
{
    size_t size;
    tacit_vision *v = NULL;
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    reference_keys(w, spec);
    reference_tensors(w, spec);
    if (gguf_write_memory(w, bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(file, *bytes, size, "tower", &err) != TACIT_OK ||
        vision_load(&v, *file, &err) != TACIT_OK)
        fprintf(stderr, "bench_vision: %s\n", err.message);
    gguf_writer_free(w);
    return v;
}

typedef struct run {
    vision_pass *pass;
    const float *pixels;
    float *rows;
    float **grads;
} run;

/* Processor seconds of one forward, or of one forward and backward. */
static double measure(const run *r, bool backward, double seconds)
{
    double start = processor_seconds(), taken;
    size_t times = 0;
    do {
        vision_forward(r->pass, NULL, &r->pixels, 1, r->rows);
        if (backward)
            vision_backward(r->pass, r->rows, r->grads);
        times++;
        taken = processor_seconds() - start;
    } while (taken < seconds);
    return taken / (double)times;
}

static const struct {
    const char *name;
    pass_use use;
} uses[] = {
    {"exact", PASS_EXACT},
    {"fast", PASS_FAST},
    {"forward and backward", PASS_TRAIN},
};

/* |a - b| / |b| */
static double distance(const float *a, const float *b, size_t n)
{
    double difference = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        length += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / length);
}

static void report(const char *name, const char *what, double seconds, double flops, double rate,
                   double off)
{
    printf("{\"tower\":\"%s\",\"what\":\"%s\",\"processor_ms\":%.3f,\"gflops\":%.1f,"
           "\"of_product_rate\":%.3f,\"off\":%.2e}\n",
           name, what, 1e3 * seconds, 1e-9 * flops / seconds, flops / seconds / rate, off);
    fflush(stdout);
}

static int run_case(const bench *b, tacit_pool *pool, double seconds)
{
    uint8_t *bytes = NULL;
    gguf_file *file = NULL;
    tacit_vision *v = load(&b->spec, &bytes, &file);
    if (!v)
        return 1;
    const vision_shape *s = vision_get_shape(v);
    size_t count = vision_tensor_count(v), pixels = (size_t)3 * s->image_size * s->image_size;
    size_t values = (size_t)s->rows * s->out_width;
    float *planes = malloc(pixels * sizeof *planes), *exact = malloc(values * sizeof *exact);
    run r = {.pixels = planes, .grads = calloc(count, sizeof *r.grads)};
    r.rows = malloc(values * sizeof *r.rows);
    for (size_t i = 0; i < pixels; i++)
        planes[i] = reference_uniform(2, (uint32_t)i);
    for (size_t i = 0; i < count; i++)
        r.grads[i] =
            calloc(vision_tensor_at(v, i)->rows * vision_tensor_at(v, i)->cols, sizeof(float));
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        bool train = uses[i].use == PASS_TRAIN;
        if (train && s->width > 128)
            break; /* minutes */
        double rate = product_rate(pool, seconds / 2);
        if (vision_pass_new(&r.pass, v, 1, uses[i].use, pool, NULL) != TACIT_OK)
            return 1;
        double taken = measure(&r, train, seconds);
        if (uses[i].use == PASS_EXACT)
            memcpy(exact, r.rows, values * sizeof *exact);
        report(b->name, uses[i].name, taken, forward_flops(s) * (train ? 3 : 1), rate,
               distance(r.rows, exact, values));
        vision_pass_free(r.pass);
    }
    for (size_t i = 0; i < count; i++)
        free(r.grads[i]);
    free(r.grads);
    free(r.rows);
    free(exact);
    free(planes);
    vision_free(v);
    gguf_close(file);
    free(bytes);
    return 0;
}

static int write_tower(const char *type, const char *path)
{
    const reference_spec *spec = &cases[strcmp(type, "f16") == 0 ? 2 : 1].spec;
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    reference_keys(w, spec);
    reference_tensors(w, spec);
    bool failed = gguf_write(w, path, &err) != TACIT_OK;
    if (failed)
        fprintf(stderr, "bench_vision: %s\n", err.message);
    gguf_writer_free(w);
    return failed;
}

int main(int argc, char **argv)
{
    tacit_pool *pool;
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return write_tower(argv[2], argv[3]);
    size_t threads = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 1;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;
    bool large = argc > 3 && strcmp(argv[3], "large") == 0;
    int failed = 0;
    if (tacit_pool_new(&pool, threads, NULL) != TACIT_OK)
        return 1;
    for (size_t i = 0; i < (large ? 3u : 1u); i++)
        failed |= run_case(&cases[i], pool, seconds);
    tacit_pool_free(pool);
    return failed;
}
