#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/file.h"
#include "engine/context.h"
#include "engine/model_parts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL TACIT_SOURCE_DIR "/tests/nano/nano.gguf"

static tacit_model *load(void)
{
    tacit_model *m;
    tacit_error err;
    if (tacit_model_load(&m, MODEL, NULL, 0, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

typedef struct getter {
    const tacit_model *m;
    const fast_model *got;
} getter;

/* Leaves `got` NULL on failure. */
static void *get(void *arg)
{
    getter *g = arg;
    tacit_error err;
    if (fast_packing_get(g->m->packing, &g->got, &g->m->text, g->m->text_file, NULL, &err) !=
        TACIT_OK)
        g->got = NULL;
    return NULL;
}

static void test_threads_share_one_packing(void **state)
{
    (void)state;
    tacit_model *m = load();
    getter g[4];
    pthread_t id[4];
    for (size_t i = 0; i < 4; i++) {
        g[i] = (getter){.m = m};
        assert_int_equal(pthread_create(&id[i], NULL, get, &g[i]), 0);
    }
    for (size_t i = 0; i < 4; i++)
        pthread_join(id[i], NULL);
    for (size_t i = 0; i < 4; i++)
        assert_true(g[i].got && g[i].got == g[0].got);
    tacit_model_free(m);
}

/* KiB of the model's map that this process holds, by the system's own count. */
static size_t resident(void)
{
    char line[1024];
    size_t sum = 0, kib;
    bool ours = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strstr(line, " r"))
            ours = strstr(line, "/nano.gguf") != NULL;
        if (ours && sscanf(line, "Rss: %zu kB", &kib) == 1)
            sum += kib;
    }
    fclose(f);
    return sum;
}

static void touch_weights(const tacit_text_model *m, size_t *bytes)
{
    unsigned sum = 0;
    *bytes = 0;
    for (size_t i = 0; i < m->n_layers * TEXT_LINEARS; i++) {
        const tacit_linear *l = &m->layer[i / TEXT_LINEARS].linear[i % TEXT_LINEARS];
        const uint8_t *at = l->weight;
        for (size_t j = 0; j < l->n_out * l->row_bytes; j += 512)
            sum += at[j];
        *bytes += l->n_out * l->row_bytes;
    }
    volatile unsigned kept = sum;
    (void)kept;
}

static float *logits_of(const tacit_model *m, tacit_precision precision)
{
    tacit_context *c;
    tacit_error err;
    const tacit_context_spec spec = {.precision = precision, .max_rows = 8};
    size_t bytes = tacit_model_vocab(m) * sizeof(float);
    float *out = malloc(bytes);
    if (tacit_context_new(&c, m, &spec, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(tacit_context_feed_token(c, 7 * i + 3, &err), TACIT_OK);
    memcpy(out, tacit_context_logits(c), bytes);
    tacit_context_free(c);
    return out;
}

static void test_the_file_leaves_memory_and_comes_back(void **state)
{
    (void)state;
    tacit_model *m = load();
    size_t weights, bytes = tacit_model_vocab(m) * sizeof(float);
    float *before = logits_of(m, TACIT_EXACT);
    touch_weights(&m->text, &weights);
    size_t full = resident();
    assert_true(full * 1024 >= weights / 2);
    getter g = {.m = m};
    get(&g);
    assert_non_null(g.got);
    size_t left = resident();
    if (!(left + weights / 2048 < full))
        fail_msg("%zu KiB of the file before, %zu after packing %zu bytes", full, left, weights);
    float *fast = logits_of(m, TACIT_FAST), *after = logits_of(m, TACIT_EXACT);
    assert_memory_equal(before, after, bytes);
    assert_memory_not_equal(before, fast, bytes);
    free(before);
    free(after);
    free(fast);
    tacit_model_free(m);
}

/* Whoever asks which model this is reads the whole file, and holds nothing of it afterwards. */
static void test_a_digest_leaves_nothing_behind(void **state)
{
    (void)state;
    uint8_t *file, expected[TACIT_DIGEST_BYTES], found[TACIT_DIGEST_BYTES];
    size_t size;
    tacit_error err;
    tacit_model *m = load();
    getter g = {.m = m};
    get(&g);
    assert_non_null(g.got);
    assert_int_equal(tacit_file_read(MODEL, (size_t)1 << 26, &file, &size, &err), TACIT_OK);
    tacit_digest(expected, file, size);
    free(file);
    size_t before = resident();
    gguf_digest(m->text_file, found);
    assert_memory_equal(found, expected, sizeof found);
    if (resident() > before)
        fail_msg("%zu KiB of the file before, %zu after its digest", before, resident());
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_share_one_packing),
        cmocka_unit_test(test_the_file_leaves_memory_and_comes_back),
        cmocka_unit_test(test_a_digest_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
