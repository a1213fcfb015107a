/* Any bytes as an importance matrix: what is taken yields weights that are finite and not negative.
 */
#include "fuzz_target.h"

#include "engine/importance.h"

#include <math.h>

bool fuzz_accepted;

static void check_entry(const importance *m, const importance_entry *e)
{
    float *mean = calloc(e->columns, sizeof *mean);
    FUZZ_CHECK(mean && importance_find(m, e->name) == e && e->columns > 0 && e->matrices > 0);
    for (size_t i = 0; i < e->matrices; i++) {
        importance_mean(e, i, mean);
        for (size_t c = 0; c < e->columns; c++)
            FUZZ_CHECK(isfinite(mean[c]) && mean[c] >= 0);
    }
    free(mean);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *f;
    importance m;
    tacit_error err;
    fuzz_accepted = false;
    if (gguf_open_memory(&f, data, size, "fuzz", &err) != TACIT_OK)
        return 0;
    fuzz_accepted = importance_read(&m, f, &err) == TACIT_OK;
    for (size_t i = 0; fuzz_accepted && i < m.count; i++)
        check_entry(&m, &m.entry[i]);
    importance_free(&m);
    gguf_close(f);
    return 0;
}
