#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/kernels.h"
#include "engine/kv_cache.h"
#include "numbers.h"
#include "reference_mask.h"

#include <string.h>

#define LAYERS 2
#define DIM 8
#define HEADS 6
#define MAX_ROWS 260

typedef struct world {
    tacit_text_model m;
    tacit_text_layer layer[LAYERS];
    tacit_row row[MAX_ROWS];
    kv_cache cache;
    float *k[LAYERS], *v[LAYERS], *q[LAYERS], *out[LAYERS]; /* of MAX_ROWS rows */
} world;

static size_t width_of(const world *w, size_t layer)
{
    return w->layer[layer].n_kv_heads * DIM;
}

/* Layers of two kinds of groups; channels of keys of very unlike sizes, as real models have them.
 */
static void make(world *w, tacit_kv_type type, size_t max_chunk)
{
    tacit_error err = {0};
    memset(w, 0, sizeof *w);
    w->m.n_layers = LAYERS;
    w->m.head_dim = DIM;
    w->m.layer = w->layer;
    w->m.max_heads = HEADS;
    for (size_t i = 0; i < LAYERS; i++) {
        w->layer[i].n_heads = HEADS;
        w->layer[i].n_kv_heads = i == 0 ? 2 : 3;
        w->layer[i].scale = 0.3f;
        w->k[i] = numbers_new(MAX_ROWS * width_of(w, i), 1, 100 + i);
        w->v[i] = numbers_new(MAX_ROWS * width_of(w, i), 1, 200 + i);
        w->q[i] = numbers_new(MAX_ROWS * HEADS * DIM, 2, 300 + i);
        w->out[i] = calloc(MAX_ROWS * HEADS * DIM, sizeof(float));
        for (size_t r = 0; r < MAX_ROWS; r++)
            w->k[i][r * width_of(w, i) + 3] *= 20;
    }
    w->m.max_kv_heads = 3;
    reference_places(w->row, MAX_ROWS, false);
    if (kv_cache_init(&w->cache, &w->m, type, MAX_ROWS, max_chunk, &err) != TACIT_OK ||
        kv_cache_reserve(&w->cache, MAX_ROWS, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

static void drop(world *w)
{
    kv_cache_fini(&w->cache);
    for (size_t i = 0; i < LAYERS; i++) {
        free(w->k[i]);
        free(w->v[i]);
        free(w->q[i]);
        free(w->out[i]);
    }
}

/* Where the chunk that begins with row `at` ends: not within a mask group. */
static size_t chunk_end(const world *w, size_t at, size_t to, size_t chunk)
{
    size_t end = to - at < chunk ? to : at + chunk;
    while (end < to && w->row[end].group != 0 && w->row[end].group == w->row[end - 1].group)
        end--;
    return end;
}

/* Rows [from, to) in chunks, layer by layer as a model does it. */
static void run(world *w, size_t from, size_t to, size_t chunk, tacit_pool *pool)
{
    float *scratch = malloc(kv_cache_scratch(&w->m, tacit_pool_threads(pool)) * sizeof *scratch);
    for (size_t at = from, n; at < to; at += n) {
        n = chunk_end(w, at, to, chunk) - at;
        kv_cache_place(&w->cache, at, n, w->row + at);
        for (size_t i = 0; i < LAYERS; i++) {
            kv_cache_store(&w->cache, i, at, n, w->k[i] + at * width_of(w, i),
                           w->v[i] + at * width_of(w, i));
            kv_cache_attend(pool, &w->cache, i, at, n, w->out[i] + at * HEADS * DIM,
                            w->q[i] + at * HEADS * DIM, scratch);
        }
    }
    free(scratch);
}

/* What INT8 keeps of `n` values that are `step` apart, by its definition, `middle` being its zero.
 */
static void round_int8(double *x, const float *from, size_t n, size_t step, float middle)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(from[i * step] - middle));
    double scale = (double)(most / 127);
    for (size_t i = 0; i < n; i++) {
        double moved = (double)(from[i * step] - middle);
        x[i * step] = (double)middle + (scale > 0 ? rint(moved / scale) * scale : 0);
    }
}

static float middle_of(const float *x, size_t n, size_t step)
{
    float low = x[0], high = x[0];
    for (size_t i = 1; i < n; i++) {
        low = fminf(low, x[i * step]);
        high = fmaxf(high, x[i * step]);
    }
    return low / 2 + high / 2;
}

/* K and V of a layer as a row sees them that lies in another page: [MAX_ROWS, width] in double. */
static void keep(const world *w, size_t layer, double *k, double *v)
{
    size_t width = width_of(w, layer);
    for (size_t i = 0; i < MAX_ROWS * width; i++) {
        float half_k = tacit_f16_to_f32(tacit_f32_to_f16(w->k[layer][i]));
        float half_v = tacit_f16_to_f32(tacit_f32_to_f16(w->v[layer][i]));
        bool half = w->cache.form->type == TACIT_KV_F16;
        k[i] = (double)(half ? half_k : w->k[layer][i]);
        v[i] = (double)(half ? half_v : w->v[layer][i]);
    }
    if (w->cache.form->type != TACIT_KV_INT8)
        return;
    for (size_t row = 0; row + KV_PAGE_ROWS <= MAX_ROWS; row += KV_PAGE_ROWS)
        for (size_t c = 0; c < width; c++) {
            const float *channel = w->k[layer] + row * width + c;
            round_int8(k + row * width + c, channel, KV_PAGE_ROWS, width,
                       middle_of(channel, KV_PAGE_ROWS, width));
        }
    for (size_t at = 0; at < MAX_ROWS * width; at += DIM)
        round_int8(v + at, w->v[layer] + at, DIM, 1, 0);
}

/* Attention of one row and head by its definition; rows below `kept` are seen as they were kept. */
static void naive(const world *w, size_t layer, size_t row, size_t head, size_t kept,
                  const double *kept_k, const double *kept_v, double out[DIM])
{
    size_t width = width_of(w, layer), group = HEADS / w->layer[layer].n_kv_heads;
    size_t at = head / group * DIM;
    const float *q = w->q[layer] + row * HEADS * DIM + head * DIM;
    double total = 0;
    memset(out, 0, DIM * sizeof *out);
    for (size_t r = 0; r < MAX_ROWS; r++) {
        double score = 0;
        if (!reference_sees(w->row, row, r, w->layer[layer].window))
            continue;
        bool plain = r >= kept;
        for (size_t i = 0; i < DIM; i++)
            score += (double)q[i] *
                     (plain ? (double)w->k[layer][r * width + at + i] : kept_k[r * width + at + i]);
        double weight = exp(score * (double)w->layer[layer].scale);
        total += weight;
        for (size_t i = 0; i < DIM; i++)
            out[i] += weight * (plain ? (double)w->v[layer][r * width + at + i]
                                      : kept_v[r * width + at + i]);
    }
    for (size_t i = 0; i < DIM; i++)
        out[i] /= total;
}

/* Rows [from, to); those of the page of `from` that come before it are seen as they were kept when
 * `reopened`. */
static void assert_as_defined(const world *w, size_t from, size_t to, bool reopened)
{
    size_t values = MAX_ROWS * HEADS * DIM;
    double *k = malloc(values * sizeof *k), *v = malloc(values * sizeof *v), expected[DIM];
    for (size_t i = 0; i < LAYERS; i++) {
        keep(w, i, k, v);
        for (size_t r = from; r < to; r++)
            for (size_t h = 0; h < HEADS; h++) {
                size_t kept = reopened ? from : r / KV_PAGE_ROWS * KV_PAGE_ROWS;
                naive(w, i, r, h, kept, k, v, expected);
                const float *got = w->out[i] + r * HEADS * DIM + h * DIM;
                double d = numbers_distance_to(got, expected, DIM);
                if (!(d < 1e-5))
                    fail_msg("%s, layer %zu, row %zu, head %zu: off by %g", w->cache.form->name, i,
                             r, h, d);
            }
    }
    free(k);
    free(v);
}

static const tacit_kv_type types[] = {TACIT_KV_F32, TACIT_KV_F16, TACIT_KV_INT8};

/* Every row around the ends of pages, against the definition in double. */
static void test_attention_of_every_type(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 63, 64, 65, 127, 128, 129, MAX_ROWS};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            world w;
            make(&w, types[t], 128);
            run(&w, 0, rows[i], 128, NULL);
            assert_as_defined(&w, 0, rows[i], false);
            drop(&w);
        }
}

/* Windows shorter than a page, of some pages, and none; mask groups within a page, across pages and
 * side by side: against the definition in double, and bit for bit whatever the chunks. A group has
 * 70 rows at most. */
static void test_windows_and_groups(void **state)
{
    (void)state;
    static const size_t window[] = {1, 20, 64, 130, 0};
    static const size_t chunk[] = {70, 100, 128, MAX_ROWS};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof window / sizeof window[0]; i++) {
            world first;
            for (size_t k = 0; k < sizeof chunk / sizeof chunk[0]; k++) {
                world w;
                make(&w, types[t], chunk[k]);
                w.layer[0].window = window[i];
                reference_places(w.row, MAX_ROWS, true);
                run(&w, 0, MAX_ROWS, chunk[k], NULL);
                assert_as_defined(&w, 0, MAX_ROWS, false);
                for (size_t l = 0; k > 0 && l < LAYERS; l++)
                    assert_memory_equal(w.out[l], first.out[l],
                                        MAX_ROWS * HEADS * DIM * sizeof(float));
                if (k == 0)
                    first = w;
                else
                    drop(&w);
            }
            drop(&first);
        }
}

/* Bit for bit, whatever the chunks and threads. */
static void test_chunks_and_threads_change_no_bit(void **state)
{
    (void)state;
    static const size_t chunk[] = {1, 3, 16, 63, 64, 65, 100, 200};
    tacit_error err = {0};
    tacit_pool *pool;
    assert_int_equal(tacit_pool_new(&pool, 3, &err), TACIT_OK);
    for (size_t t = 0; t < 3; t++) {
        world whole;
        make(&whole, types[t], MAX_ROWS);
        run(&whole, 0, MAX_ROWS, MAX_ROWS, NULL);
        for (size_t i = 0; i < sizeof chunk / sizeof chunk[0]; i++) {
            world cut;
            make(&cut, types[t], chunk[i]);
            run(&cut, 0, MAX_ROWS, chunk[i], i % 2 ? pool : NULL);
            for (size_t l = 0; l < LAYERS; l++)
                assert_memory_equal(cut.out[l], whole.out[l],
                                    MAX_ROWS * HEADS * DIM * sizeof(float));
            drop(&cut);
        }
        drop(&whole);
    }
    tacit_pool_free(pool);
}

/* Going back to the end of a page, or into the open one, forgets nothing that counts. */
static void test_truncation_continues(void **state)
{
    (void)state;
    static const size_t back_to[] = {0, 64, 128, 192, 195, 200};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof back_to / sizeof back_to[0]; i++) {
            world w;
            make(&w, types[t], 70);
            run(&w, 0, 210, 70, NULL);
            kv_cache_truncate(&w.cache, back_to[i]);
            run(&w, back_to[i], MAX_ROWS, 33, NULL);
            assert_as_defined(&w, 0, MAX_ROWS, false);
            drop(&w);
        }
}

/* Going back into a full page, what continues there sees its rows as they were kept. */
static void test_truncation_reopens_a_page(void **state)
{
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        world w;
        make(&w, types[t], 70);
        run(&w, 0, MAX_ROWS, 70, NULL);
        kv_cache_truncate(&w.cache, 100);
        run(&w, 100, 128, 7, NULL);
        assert_as_defined(&w, 100, 128, true);
        drop(&w);
    }
}

/* Zeros stay zeros, what is not finite is never hidden, and the widest values survive. */
static void test_values_at_the_edges(void **state)
{
    (void)state;
    static const float edge[] = {0, 1e-42f, 3e38f, INFINITY, NAN};
    for (size_t t = 1; t < 3; t++)
        for (size_t i = 0; i < sizeof edge / sizeof edge[0]; i++) {
            const kv_form *form = kv_form_of(types[t]);
            float x[2 * DIM * KV_PAGE_ROWS], y[2 * DIM * KV_PAGE_ROWS];
            float *values = y + DIM * KV_PAGE_ROWS;
            void *page = malloc(form->bytes(DIM));
            for (size_t j = 0; j < 2 * DIM * KV_PAGE_ROWS; j++)
                x[j] = 0;
            x[5] = edge[i];
            x[DIM * KV_PAGE_ROWS + 9] = edge[i];
            form->encode(page, x, x + DIM * KV_PAGE_ROWS, DIM);
            form->decode(y, values, page, DIM);
            bool finite = isfinite(edge[i]) && !(types[t] == TACIT_KV_F16 && edge[i] > 65504);
            assert_true(isfinite(y[5]) == finite && isfinite(values[9]) == finite);
            assert_true(!finite || fabsf(y[5] - edge[i]) <= 1e-2f * edge[i] + 1e-40f);
            assert_true(y[KV_PAGE_ROWS] == 0 && values[DIM * 2] == 0);
            free(page);
        }
}

/* The kernel of every instruction set against its definition, at lengths no vector divides. */
static void test_widening(void **state)
{
    (void)state;
    static const char *const names[] = {"generic", "avx2", "avx512", "amx", "neon", "i8mm"};
    int8_t q[131];
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (int8_t)(i * 37);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        const tacit_kernels *table = kernels_by_name(names[k]);
        for (size_t n = 0; table && n <= sizeof q; n++) {
            float y[132];
            y[n] = 7;
            table->widen(y, 0.25f, q, n);
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == 0.25f * (float)q[i]);
            assert_true(y[n] == 7);
        }
    }
}

static void test_bytes(void **state)
{
    (void)state;
    world w;
    make(&w, TACIT_KV_INT8, 128);
    size_t pages = (MAX_ROWS + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
    size_t page = 5 * (2 * DIM * KV_PAGE_ROWS + 4 * (2 * DIM + KV_PAGE_ROWS)); /* of five heads */
    page += KV_PAGE_ROWS * sizeof(text_place);
    size_t floats = 5 * 2 * DIM * KV_PAGE_ROWS + 3 * 3 * 2 * DIM * KV_PAGE_ROWS;
    assert_int_equal(kv_cache_bytes(&w.m, TACIT_KV_INT8, MAX_ROWS, 128), pages * page + 4 * floats);
    assert_int_equal(kv_cache_bytes(&w.m, TACIT_KV_F32, MAX_ROWS, 128),
                     pages * KV_PAGE_ROWS * (5 * 2 * DIM * 4 + sizeof(text_place)));
    assert_int_equal(kv_cache_bytes(&w.m, TACIT_KV_F32, SIZE_MAX, 128), UINT64_MAX);
    drop(&w);
}

/* How many rows fit counts the pages that are there and those that memory has room for. */
static void test_rows_that_fit(void **state)
{
    (void)state;
    world w;
    make(&w, TACIT_KV_F32, 8);
    kv_cache whole = w.cache, c;
    tacit_error err;
    assert_int_equal(kv_cache_rows_that_fit(&whole, 0), MAX_ROWS); /* all pages are there */
    assert_int_equal(kv_cache_init(&c, &w.m, TACIT_KV_F32, MAX_ROWS, 8, &err), TACIT_OK);
    assert_int_equal(kv_cache_rows_that_fit(&c, c.page_bytes - 1), 0);
    assert_int_equal(kv_cache_rows_that_fit(&c, c.page_bytes), KV_PAGE_ROWS);
    assert_int_equal(kv_cache_reserve(&c, 1, &err), TACIT_OK);
    assert_int_equal(kv_cache_rows_that_fit(&c, c.page_bytes - 1), KV_PAGE_ROWS);
    assert_int_equal(kv_cache_rows_that_fit(&c, UINT64_MAX), MAX_ROWS);
    kv_cache_fini(&c);
    drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_of_every_type),
        cmocka_unit_test(test_windows_and_groups),
        cmocka_unit_test(test_chunks_and_threads_change_no_bit),
        cmocka_unit_test(test_truncation_continues),
        cmocka_unit_test(test_truncation_reopens_a_page),
        cmocka_unit_test(test_values_at_the_edges),
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_rows_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
