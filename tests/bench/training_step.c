/* A step is what a device does (client/local_training.c): gradients of all units, and in the
 * private one noise, clipping and sum around them, then AdamW on the noised mean. The other one
 * adds the units' gradients up instead. Both are taken in turns, so that they compare; memory is
 * that of the process with both. The peak of anonymous memory is sampled at every unit's gradient,
 * when everything that a unit takes is there. */
#include "training_step.h"

#include "common/clock.h"
#include "engine/optimizer.h"
#include "privacy/dp_step.h"

#include "product_rate.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { UNITS_MAX = 64, UNITS_AT_ONCE = 16 };

typedef struct options {
    const char *file;
    tacit_trainable_spec spec;
    size_t length[UNITS_MAX], units, rows, trained, threads;
    double seconds;
    char targets[256], lengths[512];
} options;

/* Seconds by the clock and of the processor, summed over steps. */
typedef struct spent {
    double clock, cpu;
} spent;

typedef struct bench {
    options o;
    tacit_model *model;
    tacit_pool *pool;
    tacit_trainer *trainer;
    tacit_dp *dp;
    tacit_optimizer optimizer;
    tacit_input input[UNITS_MAX];
    const tacit_input *example[UNITS_MAX];
    tacit_unit unit[UNITS_MAX];
    float *mean;
    size_t values;
    double loss, first_loss; /* the latter of the values that training starts from */
    unsigned long peak_anon;
    spent noise, add, end, sum, update; /* parts: of the private step the first three */
    tacit_error err;
} bench;

static void must(bench *b, tacit_status status)
{
    if (status == TACIT_OK)
        return;
    fprintf(stderr, "bench_training: %s\n", b->err.message);
    exit(1);
}

static spent now(void)
{
    return (spent){tacit_clock_seconds(), processor_seconds()};
}

static void add_since(spent *to, spent start)
{
    spent end = now();
    to->clock += end.clock - start.clock;
    to->cpu += end.cpu - start.cpu;
}

/* ---- steps ---- */

static void note_unit(bench *b, double loss)
{
    unsigned long anon = status_bytes("RssAnon");
    b->peak_anon = anon > b->peak_anon ? anon : b->peak_anon;
    b->loss += loss;
}

static tacit_status add_privately(void *ctx, size_t unit, const float *grad, double loss)
{
    bench *b = ctx;
    (void)unit;
    note_unit(b, loss);
    spent start = now();
    tacit_status status = tacit_dp_add(b->dp, grad, &b->err);
    add_since(&b->add, start);
    return status;
}

static tacit_status add_plainly(void *ctx, size_t unit, const float *grad, double loss)
{
    bench *b = ctx;
    float share = 1.0f / (float)b->o.units;
    (void)unit;
    note_unit(b, loss);
    spent start = now();
    for (size_t i = 0; i < b->values; i++)
        b->mean[i] += share * grad[i];
    add_since(&b->sum, start);
    return TACIT_OK;
}

static void take_gradients(bench *b, tacit_gradient_sink sink)
{
    b->loss = 0;
    for (size_t i = 0; i < b->o.units; i += UNITS_AT_ONCE) {
        size_t left = b->o.units - i, n = left < UNITS_AT_ONCE ? left : UNITS_AT_ONCE;
        must(b, tacit_trainer_grads(b->trainer, b->unit + i, n, sink, b, &b->err));
    }
}

static void update(bench *b)
{
    spent start = now();
    tacit_optimizer_step(&b->optimizer, tacit_trainer_values(b->trainer), b->mean, 1);
    add_since(&b->update, start);
}

__attribute__((noinline)) static spent private_step(bench *b)
{
    const size_t *drawn;
    size_t n;
    spent whole = {0, 0}, start = now();
    must(b, tacit_dp_begin_step(b->dp, b->o.units, &drawn, &n, &b->err));
    add_since(&b->noise, start);
    take_gradients(b, add_privately);
    spent end = now();
    must(b, tacit_dp_end_step(b->dp, b->mean, &b->err));
    add_since(&b->end, end);
    update(b);
    add_since(&whole, start);
    return whole;
}

/* Not inlined: a profile tells the two apart by these names. */
__attribute__((noinline)) static spent plain_step(bench *b)
{
    spent whole = {0, 0}, start = now();
    memset(b->mean, 0, b->values * sizeof *b->mean);
    take_gradients(b, add_plainly);
    update(b);
    add_since(&whole, start);
    return whole;
}

/* ---- begin ---- */

/* Every unit is drawn in every step, so that all steps are of the same units. */
static tacit_mechanism mechanism_of(const bench *b)
{
    tacit_mechanism m = {.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                         .unit = TACIT_UNIT_RECORD,
                         .neighbours = TACIT_ADD_REMOVE,
                         .clip_norm = 1,
                         .q_num = TACIT_Q_ONE,
                         .steps = TACIT_STEPS_MAX,
                         .divisor = (double)b->o.units,
                         .unit_examples = 1};
    tacit_error none;
    if (tacit_b_for_noise_multiplier(&m.b, 1.0, &none) != TACIT_OK)
        exit(1);
    return m;
}

static void lay_units(bench *b)
{
    for (size_t i = 0; i < b->o.units; i++) {
        size_t rows = b->o.length[i], trained = b->o.trained;
        trained = trained < rows ? trained : rows / 2;
        b->input[i] = make_input(b->model, rows, 0, trained);
        b->example[i] = &b->input[i];
        b->unit[i] = (tacit_unit){&b->example[i], 1};
    }
}

static void begin(bench *b)
{
    static const uint8_t nonce[TACIT_DRBG_NONCE_BYTES];
    const tacit_optimizer_spec adamw = {.kind = TACIT_ADAMW,
                                        .learning_rate = 1e-3,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .epsilon = 1e-8,
                                        .weight_decay = 0.01};
    must(b, tacit_pool_new(&b->pool, b->o.threads, &b->err));
    b->model = open_model(b->o.file);
    must(b, tacit_trainer_new(&b->trainer, b->model, &b->o.spec, b->o.rows, b->pool, &b->err));
    b->values = tacit_trainer_layout(b->trainer)->values;
    tacit_mechanism mechanism = mechanism_of(b);
    must(b, tacit_dp_new(&b->dp, &mechanism, b->values, nonce, NULL, &b->err));
    must(b, tacit_optimizer_init(&b->optimizer, &adamw, b->values, &b->err));
    b->mean = calloc(b->values, sizeof *b->mean);
    if (!b->mean)
        exit(1);
    lay_units(b);
}

/* The first unit alone: weights are in memory, the workspace exists. */
static void warm_up(bench *b)
{
    must(b, tacit_trainer_grads(b->trainer, b->unit, 1, add_plainly, b, &b->err));
    b->sum = (spent){0, 0};
}

/* ---- answer ---- */

static double step_flops(const bench *b)
{
    double flops = 0;
    for (size_t i = 0; i < b->o.units; i++) {
        size_t rows = b->o.length[i], trained = b->o.trained;
        trained = trained < rows ? trained : rows / 2;
        flops += example_flops(b->model, b->o.spec.kind, rows, trained);
    }
    return flops;
}

/* What privacy takes beyond the plain sum of the same gradients, over a step without it. */
static double cost_of_privacy(const bench *b, double plain_cpu)
{
    return (b->noise.cpu + b->add.cpu + b->end.cpu - b->sum.cpu) / plain_cpu;
}

static void answer(bench *b, spent with, spent without, size_t steps)
{
    size_t rows = 0;
    unsigned long peak = status_bytes("VmHWM");
    double n = (double)steps, ms = 1000 / n, flops = step_flops(b);
    for (size_t i = 0; i < b->o.units; i++)
        rows += b->o.length[i];
    printf("{\"units\":%zu,\"rows\":%zu,\"values\":%zu,\"steps\":%zu,"
           "\"private_s\":%.5f,\"private_cpu_s\":%.5f,\"plain_s\":%.5f,\"plain_cpu_s\":%.5f,",
           b->o.units, rows, b->values, steps, with.clock / n, with.cpu / n, without.clock / n,
           without.cpu / n);
    printf("\"noise_ms\":%.3f,\"clip_and_sum_ms\":%.3f,\"mean_ms\":%.3f,\"plain_sum_ms\":%.3f,"
           "\"optimizer_ms\":%.3f,\"cost_of_privacy\":%.5f,",
           ms * b->noise.cpu, ms * b->add.cpu, ms * b->end.cpu, ms * b->sum.cpu,
           ms / 2 * b->update.cpu, cost_of_privacy(b, without.cpu));
    printf("\"peak_rss_bytes\":%lu,\"peak_rss_anon_bytes\":%lu,\"loss\":%.4f,", peak, b->peak_anon,
           b->first_loss);
    printf("\"of_product_rate\":%.4f}\n",
           flops / (without.cpu / n) / product_rate(b->pool, b->o.seconds / 4));
}

/* ---- options ---- */

static void usage(const char *what, const char *found)
{
    fprintf(stderr,
            "bench_training: step: %s '%s'\n"
            "usage: bench_training step --model TEXT.gguf [--kind lora|ffa] [--rank R]\n"
            "    [--targets P,..] [--lengths N,..] [--trained N] [--threads N] [--seconds S]\n"
            "    [--rows N]   a unit has one example; there are as many as lengths\n",
            what, found);
    exit(2);
}

static size_t number(const char *name, const char *text, size_t most)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || v < 1 || v > most)
        usage(name, text);
    return v;
}

static void set_lengths(options *o, const char *text)
{
    char *rest;
    o->units = 0;
    snprintf(o->lengths, sizeof o->lengths, "%s", text);
    for (char *part = strtok_r(o->lengths, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        if (o->units == UNITS_MAX)
            usage("too many --lengths", text);
        size_t rows = number("--lengths", part, 1u << 20);
        if (rows < 2)
            usage("--lengths below 2", part);
        o->length[o->units++] = rows;
        o->rows = rows > o->rows ? rows : o->rows;
    }
}

static void set_targets(options *o, const char *text)
{
    char *rest;
    o->spec.n_targets = 0;
    snprintf(o->targets, sizeof o->targets, "%s", text);
    for (char *part = strtok_r(o->targets, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        if (o->spec.n_targets == TACIT_TRAINABLE_TARGETS_MAX)
            usage("too many --targets", text);
        o->spec.target[o->spec.n_targets++] = part;
    }
}

static void set_option(options *o, int option, const char *value)
{
    switch (option) {
    case 'm':
        o->file = value;
        break;
    case 'k':
        if (strcmp(value, "lora") != 0 && strcmp(value, "ffa") != 0)
            usage("--kind", value);
        o->spec.kind = *value == 'f' ? TACIT_TRAIN_LORA_FFA : TACIT_TRAIN_LORA;
        break;
    case 'r':
        o->spec.rank = (uint32_t)number("--rank", value, TACIT_TRAINABLE_RANK_MAX);
        break;
    case 'g':
        set_targets(o, value);
        break;
    case 'l':
        set_lengths(o, value);
        break;
    case 'a':
        o->trained = number("--trained", value, 1u << 20);
        break;
    case 't':
        o->threads = number("--threads", value, 1024);
        break;
    case 's':
        o->seconds = (double)number("--seconds", value, 86400);
        break;
    case 'w':
        o->rows = number("--rows", value, 1u << 20);
        break;
    default:
        usage("unknown option", "");
    }
}

static void read_options(options *o, int argc, char **argv)
{
    static const struct option known[] = {
        {"model", required_argument, NULL, 'm'},   {"kind", required_argument, NULL, 'k'},
        {"rank", required_argument, NULL, 'r'},    {"targets", required_argument, NULL, 'g'},
        {"lengths", required_argument, NULL, 'l'}, {"trained", required_argument, NULL, 'a'},
        {"threads", required_argument, NULL, 't'}, {"seconds", required_argument, NULL, 's'},
        {"rows", required_argument, NULL, 'w'},    {NULL, 0, NULL, 0}};
    *o = (options){.spec = {.kind = TACIT_TRAIN_LORA, .rank = 8}, .trained = 32, .threads = 1};
    set_lengths(o, "256");
    set_targets(o, "attn_*");
    o->rows = 0;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        set_option(o, option, optarg);
    if (!o->file || optind != argc)
        usage(o->file ? "unexpected argument" : "expected --model, found",
              o->file ? argv[optind] : "");
    for (size_t i = 0; i < o->units; i++)
        o->rows = o->length[i] > o->rows ? o->length[i] : o->rows;
    o->spec.alpha = 2.0 * o->spec.rank;
}

int training_step_main(int argc, char **argv)
{
    static bench b;
    spent with = {0, 0}, without = {0, 0};
    size_t steps = 0;
    read_options(&b.o, argc, argv);
    begin(&b);
    warm_up(&b);
    double start = tacit_clock_seconds();
    do {
        spent one = plain_step(&b);
        b.first_loss = steps ? b.first_loss : b.loss / (double)b.o.units;
        spent other = private_step(&b);
        without = (spent){without.clock + one.clock, without.cpu + one.cpu};
        with = (spent){with.clock + other.clock, with.cpu + other.cpu};
        steps++;
    } while (tacit_clock_seconds() - start < b.o.seconds);
    answer(&b, with, without, steps);
    tacit_dp_free(b.dp);
    tacit_optimizer_fini(&b.optimizer);
    tacit_trainer_free(b.trainer);
    tacit_pool_free(b.pool);
    free(b.mean);
    return 0;
}
