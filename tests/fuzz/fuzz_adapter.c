/* Any bytes as an adapter file for a tiny model: what loads is finite and of the model's shapes. */
#include "fuzz_target.h"

#include "common/log.h"
#include "engine/adapter_parts.h"
#include "engine/lora_sites.h"
#include "engine/model_parts.h"

#include <math.h>

bool fuzz_accepted;

static const tacit_model *tiny(void)
{
    static tacit_model m;
    tacit_error err;
    if (m.text_file)
        return &m;
    tacit_log_init("fuzz_adapter", TACIT_LOG_ERROR);
    FUZZ_CHECK(gguf_open(&m.text_file, TACIT_SOURCE_DIR "/tests/golden/tiny-tied.gguf", &err) ==
               TACIT_OK);
    FUZZ_CHECK(text_model_load(&m.text, m.text_file, &err) == TACIT_OK);
    return &m;
}

static void check_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(isfinite(x[i]));
}

static void check_pair(const tacit_model *m, const adapter_pair *p)
{
    lora_site s;
    FUZZ_CHECK(lora_site_find(&s, m, p->tensor));
    FUZZ_CHECK(p->n_in == s.n_in && p->n_out == s.n_out && p->rank > 0 && isfinite(p->scale));
    check_finite(p->a, p->rank * p->n_in);
    check_finite(p->b, p->rank * p->n_out);
    check_finite(p->core, p->core ? p->rank * p->rank : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tacit_model *m = tiny();
    gguf_file *f;
    tacit_adapter *a = NULL;
    tacit_error err;
    fuzz_accepted = false;
    if (gguf_open_memory(&f, data, size, "fuzz", &err) != TACIT_OK)
        return 0;
    fuzz_accepted = adapter_from_file(&a, m, f, &err) == TACIT_OK;
    for (size_t i = 0; fuzz_accepted && i < adapter_pair_count(a); i++)
        check_pair(m, adapter_pair_at(a, i));
    tacit_adapter_free(a);
    gguf_close(f);
    return 0;
}
