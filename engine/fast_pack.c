#include "engine/fast_pack.h"

#include "engine/kernels.h"

#include <stdatomic.h>
#include <string.h>

#define TASK_PANELS 8

const fast_form_traits fast_forms[FAST_FORMS] = {
    [FAST_8] = {8, 1, false, 0},     [FAST_4] = {4, 1, false, 8},
    [FAST_4M] = {4, 1, true, 0},     [FAST_5] = {5, 1, false, 16},
    [FAST_5M] = {5, 1, true, 0},     [FAST_6] = {6, 2, false, 32},
    [FAST_BF16] = {16, 0, false, 0}, [FAST_F16] = {16, 0, false, 0},
    [FAST_PAIR] = {32, 0, false, 0},
};

#define EVERY_BYTE 0x01010101u
#define GROUPS 8 /* of four columns in a block */

/* 32 values on their way: four quanta a word, and the scales as fp16. */
typedef struct block {
    uint32_t word[GROUPS];
    uint16_t d[2], m;
} block;

static uint16_t load_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static float half_value(const uint8_t *p)
{
    return tacit_f16_to_f32(load_half(p));
}

/* The low or high four bits of 4 * n bytes. */
static void read_nibbles(uint32_t *word, const uint8_t *q, size_t n, unsigned shift)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t four;
        memcpy(&four, q + 4 * i, sizeof four);
        word[i] = four >> shift & 15 * EVERY_BYTE;
    }
}

static void read_q8_0(block *o, const uint8_t *p, size_t part)
{
    (void)part;
    o->d[0] = load_half(p);
    memcpy(o->word, p + 2, sizeof o->word);
}

static void read_q4_0(block *o, const uint8_t *p, size_t part)
{
    (void)part;
    o->d[0] = load_half(p);
    read_nibbles(o->word, p + 2, 4, 0);
    read_nibbles(o->word + 4, p + 2, 4, 4);
}

static void read_q4_1(block *o, const uint8_t *p, size_t part)
{
    read_q4_0(o, p + 2, part);
    o->d[0] = load_half(p);
    o->m = load_half(p + 2);
}

/* Bit i of `high` is the fifth bit of value i. */
static void add_fifth_bits(block *o, const uint8_t *high)
{
    for (size_t g = 0; g < GROUPS; g++) {
        uint32_t four = high[g / 2] >> 4 * (g % 2) & 15;
        /* Spread four bits over four bytes. */
        o->word[g] |= (four * 0x00204081u & EVERY_BYTE) << 4;
    }
}

static void read_q5_0(block *o, const uint8_t *p, size_t part)
{
    read_q4_0(o, p + 4, part);
    o->d[0] = load_half(p);
    add_fifth_bits(o, p + 2);
}

static void read_q5_1(block *o, const uint8_t *p, size_t part)
{
    read_q4_0(o, p + 6, part);
    o->d[0] = load_half(p);
    o->m = load_half(p + 2);
    add_fifth_bits(o, p + 4);
}

/* Scale and minimum of 32 values: six bits each, packed in 12 bytes, times two fp16. */
static void read_k_scales(block *o, const uint8_t *p, size_t part)
{
    const uint8_t *s = p + 4;
    unsigned scale, least;
    if (part < 4) {
        scale = s[part] & 63;
        least = s[part + 4] & 63;
    } else {
        scale = (s[part + 4] & 15u) | (s[part - 4] >> 6) << 4;
        least = s[part + 4] >> 4 | (s[part] >> 6) << 4;
    }
    o->d[0] = tacit_f32_to_f16(half_value(p) * (float)scale);
    o->m = tacit_f32_to_f16(-half_value(p + 2) * (float)least);
}

static void read_q4_k(block *o, const uint8_t *p, size_t part)
{
    read_k_scales(o, p, part);
    read_nibbles(o->word, p + 16 + part / 2 * 32, 8, part % 2 * 4);
}

static void read_q5_k(block *o, const uint8_t *p, size_t part)
{
    read_k_scales(o, p, part);
    read_nibbles(o->word, p + 48 + part / 2 * 32, 8, part % 2 * 4);
    for (size_t g = 0; g < GROUPS; g++) {
        uint32_t four;
        memcpy(&four, p + 16 + 4 * g, sizeof four);
        o->word[g] |= (four >> part & EVERY_BYTE) << 4;
    }
}

static void read_q6_k(block *o, const uint8_t *p, size_t part)
{
    const uint8_t *low = p + part / 4 * 64 + part % 2 * 32, *high = p + 128 + part / 4 * 32;
    const int8_t *scale = (const int8_t *)p + 192 + 2 * part;
    read_nibbles(o->word, low, 8, part % 4 / 2 * 4);
    for (size_t g = 0; g < GROUPS; g++) {
        uint32_t four;
        memcpy(&four, high + 4 * g, sizeof four);
        o->word[g] |= (four >> 2 * (part % 4) & 3 * EVERY_BYTE) << 4;
    }
    for (size_t i = 0; i < 2; i++)
        o->d[i] = tacit_f32_to_f16(half_value(p + 208) * (float)scale[i]);
}

static void put_word(uint8_t *to, uint32_t word)
{
    memcpy(to, &word, sizeof word);
}

/* The quanta of one row of a panel; `to` is where its first four bytes lie. */
static inline __attribute__((always_inline)) void put_quanta(uint8_t *to, const block *o,
                                                             const unsigned bits, size_t width)
{
    size_t stride = 4 * width;
    if (bits == 8) {
        for (size_t g = 0; g < GROUPS; g++)
            put_word(to + g * stride, o->word[g]);
        return;
    }
    for (size_t g = 0; g < 4; g++)
        put_word(to + g * stride,
                 (o->word[g] & 15 * EVERY_BYTE) | (o->word[g + 4] & 15 * EVERY_BYTE) << 4);
    unsigned high = bits - 4; /* upper bits of a value: 0, 1 or 2 */
    for (size_t plane = 0; plane < high; plane++) {
        uint32_t word = 0;
        size_t groups = GROUPS / high;
        for (size_t j = 0; j < groups; j++)
            word |= (o->word[plane * groups + j] >> 4 & (high == 1 ? 1 : 3) * EVERY_BYTE)
                    << high * j;
        put_word(to + (4 + plane) * stride, word);
    }
}

/* One row on its way from the file to a panel. */
typedef struct row_job {
    const fast_weight *w;
    const fast_kernels *k;
    const tacit_type_traits *type;
    uint8_t *panel;
    size_t r; /* of the panel */
    const uint8_t *from;
    bool too_large; /* a scale is beyond fp16 */
} row_job;

typedef void pack_row_function(row_job *job);
/* The part-th 32 values of a block. */
typedef void read_function(block *o, const uint8_t *p, size_t part);

static bool is_finite_half(uint16_t h)
{
    return (h & 0x7c00) != 0x7c00;
}

/* Compiled for each type by itself: the reader is a constant. */
static inline __attribute__((always_inline)) void pack_row(row_job *job, read_function *read,
                                                           const fast_form form, const bool rounds)
{
    const fast_form_traits *t = &fast_forms[form];
    size_t width = job->k->width, blocks = job->w->blocks;
    size_t parts = job->type->block_values / FAST_BLOCK, bytes = fast_block_bytes(form, width);
    size_t stride = fast_block_stride(form, width);
    uint32_t flip = form == FAST_8 && job->k->flips ? 0x80 * EVERY_BYTE : 0;
    for (size_t b = 0; b < blocks; b++) {
        block o;
        read(&o, job->from + b / parts * job->type->block_bytes, b % parts);
        for (size_t g = 0; form == FAST_8 && g < GROUPS; g++)
            o.word[g] ^= flip;
        uint8_t *to = job->panel + b * stride, *d = to + bytes + 2 * job->r;
        put_quanta(to + 4 * job->r, &o,
                   form == FAST_8   ? 8
                   : form == FAST_6 ? 6
                   : form >= FAST_5 ? 5
                                    : 4,
                   width);
        for (size_t i = 0; i < t->scales; i++) {
            memcpy(d + 2 * i * width, &o.d[i], sizeof o.d[i]);
            job->too_large |= rounds && !is_finite_half(o.d[i]);
        }
        if (!t->has_m)
            continue;
        memcpy(d + 2 * t->scales * width, &o.m, sizeof o.m);
        job->too_large |= rounds && !is_finite_half(o.m);
    }
}

#define DEFINE(TYPE, FORM, ROUNDS)                                                                 \
    static void pack_##TYPE(row_job *job)                                                          \
    {                                                                                              \
        pack_row(job, read_##TYPE, FORM, ROUNDS);                                                  \
    }
DEFINE(q8_0, FAST_8, false)
DEFINE(q4_0, FAST_4, false)
DEFINE(q4_1, FAST_4M, false)
DEFINE(q5_0, FAST_5, false)
DEFINE(q5_1, FAST_5M, false)
DEFINE(q4_k, FAST_4M, true)
DEFINE(q5_k, FAST_5M, true)
DEFINE(q6_k, FAST_6, true)

/* Pairs of columns side by side; the file's bytes are the processor's. */
static void pack_halves(row_job *job)
{
    size_t pairs = job->w->blocks * FAST_BLOCK / 2;
    for (size_t i = 0; i < pairs; i++)
        memcpy(job->panel + 4 * (i * job->k->width + job->r), job->from + 4 * i, 4);
}

/* The bf16 of each, then those of what they leave. */
static void pack_split(row_job *job)
{
    size_t pairs = job->w->blocks * FAST_BLOCK / 2, width = job->k->width;
    const tacit_type_traits *bf16 = tacit_type_find(TACIT_TYPE_BF16);
    for (size_t i = 0; i < pairs; i++) {
        float value[2], rounded[2];
        uint16_t high[2], low[2];
        memcpy(value, job->from + i * sizeof value, sizeof value);
        bf16->from_f32(high, value, 2);
        bf16->to_f32(rounded, high, 2);
        for (size_t j = 0; j < 2; j++)
            value[j] -= rounded[j];
        bf16->from_f32(low, value, 2);
        memcpy(job->panel + 4 * (i * width + job->r), high, sizeof high);
        memcpy(job->panel + 4 * ((pairs + i) * width + job->r), low, sizeof low);
    }
}

typedef struct source {
    tacit_type type;
    fast_form form;
    pack_row_function *pack_row;
} source;

static const source sources[] = {
    {TACIT_TYPE_Q8_0, FAST_8, pack_q8_0},      {TACIT_TYPE_Q4_0, FAST_4, pack_q4_0},
    {TACIT_TYPE_Q4_1, FAST_4M, pack_q4_1},     {TACIT_TYPE_Q5_0, FAST_5, pack_q5_0},
    {TACIT_TYPE_Q5_1, FAST_5M, pack_q5_1},     {TACIT_TYPE_Q4_K, FAST_4M, pack_q4_k},
    {TACIT_TYPE_Q5_K, FAST_5M, pack_q5_k},     {TACIT_TYPE_Q6_K, FAST_6, pack_q6_k},
    {TACIT_TYPE_BF16, FAST_BF16, pack_halves}, {TACIT_TYPE_F16, FAST_F16, pack_halves},
    {TACIT_TYPE_F32, FAST_PAIR, pack_split},
};

static const source *source_of(const tacit_linear *l)
{
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (sources[i].type == l->type->type)
            return &sources[i];
    return NULL;
}

size_t fast_weight_plan(fast_weight *w, const fast_kernels *k, const tacit_linear *l)
{
    const source *s = source_of(l);
    *w = (fast_weight){.n_out = l->n_out};
    if (!s || l->n_in % FAST_BLOCK != 0)
        return 0;
    if (fast_needs_tiles(s->form) && !fast_takes_tiles(k, s->form))
        return 0;
    w->form = s->form;
    w->blocks = l->n_in / FAST_BLOCK;
    w->panel_bytes = fast_panel_bytes(w->form, k->width, w->blocks);
    return (l->n_out + k->width - 1) / k->width * w->panel_bytes;
}

typedef struct pack_job {
    const fast_weight *w;
    const fast_kernels *k;
    const tacit_linear *l;
    const source *s;
    uint8_t *panels;
    size_t first, end; /* rows */
    atomic_bool *too_large;
} pack_job;

static void pack_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const pack_job *job = ctx;
    row_job r = {.w = job->w, .k = job->k, .type = job->l->type};
    size_t width = job->k->width, n_out = job->w->n_out;
    size_t first = job->first + i * TASK_PANELS * width;
    size_t end = first + TASK_PANELS * width;
    for (size_t row = first; row < end && row / width * width < job->end; row++) {
        uint8_t *panel = job->panels + row / width * job->w->panel_bytes;
        if (row % width == 0)
            memset(panel + job->w->panel_bytes - 64, 0, 64);
        /* Past the end the last row is repeated; those results are dropped. */
        size_t from = row < n_out ? row : n_out - 1;
        r.panel = panel;
        r.r = row % width;
        r.from = (const uint8_t *)job->l->weight + from * job->l->row_bytes;
        job->s->pack_row(&r);
    }
    if (r.too_large)
        atomic_store(job->too_large, true);
}

bool fast_weight_pack(tacit_pool *pool, const fast_weight *w, const fast_kernels *k,
                      const tacit_linear *l, uint8_t *panels, size_t first, size_t end)
{
    atomic_bool too_large = false;
    pack_job job = {w, k, l, source_of(l), panels, first, end, &too_large};
    size_t rows = TASK_PANELS * k->width;
    tacit_pool_run(pool, (end - first + rows - 1) / rows, pack_task, &job);
    return !atomic_load(&too_large);
}

#define SLICE_BYTES ((size_t)4 << 20)

void fast_weight_move(fast_weight *w, const tacit_linear *l, const gguf_file *file,
                      tacit_pool *pool, uint8_t *panels)
{
    const fast_kernels *k = kernels()->fast;
    size_t rows = k->width + SLICE_BYTES / (l->row_bytes * k->width + 1) * k->width;
    bool holds = true;
    for (size_t row = 0; holds && row < l->n_out; row += rows) {
        size_t end = l->n_out - row < rows ? l->n_out : row + rows;
        holds = fast_weight_pack(pool, w, k, l, panels, row, end);
        if (file)
            gguf_forget(file, (const uint8_t *)l->weight + row * l->row_bytes,
                        (end - row) * l->row_bytes);
    }
    w->panels = holds ? panels : NULL;
    /* And the pages that two slices shared. */
    if (file)
        gguf_forget(file, l->weight, l->n_out * l->row_bytes);
}
