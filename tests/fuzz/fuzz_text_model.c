/* Any bytes as a text model: what loads computes logits, in both precisions. */
#include "fuzz_target.h"

#include "engine/context.h"
#include "engine/model_parts.h"

#include <string.h>

bool fuzz_accepted;

#define ROWS 5

static void compute(const tacit_model *m, tacit_precision precision)
{
    const tacit_context_spec spec = {
        .precision = precision,
        .max_rows = m->text.context_length < ROWS ? m->text.context_length : ROWS,
        .chunk = 2};
    tacit_context *c = NULL;
    tacit_error err;
    FUZZ_CHECK(tacit_context_new(&c, m, &spec, NULL, &err) == TACIT_OK);
    for (size_t i = 0; i < spec.max_rows; i++)
        FUZZ_CHECK(tacit_context_feed_token(c, (int32_t)(i % m->text.vocab), &err) == TACIT_OK);
    FUZZ_CHECK(tacit_context_rows(c) == spec.max_rows);
    FUZZ_CHECK(tacit_context_feed_token(c, (int32_t)m->text.vocab, &err) == TACIT_BAD_INPUT);
    tacit_context_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_model m = {0};
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1); /* aligned, and exactly as large */
    if (size)
        memcpy(copy, data, size);
    fuzz_accepted = false;
    if (gguf_open_memory(&m.text_file, copy, size, "fuzz", &err) == TACIT_OK) {
        tacit_status status = text_model_load(&m.text, m.text_file, &err);
        FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
        fuzz_accepted = status == TACIT_OK;
    }
    if (fuzz_accepted) {
        compute(&m, TACIT_EXACT);
        compute(&m, TACIT_FAST);
        text_model_unload(&m.text);
    }
    gguf_close(m.text_file);
    free(copy);
    return 0;
}
