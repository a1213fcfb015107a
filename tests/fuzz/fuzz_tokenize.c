/* Any bytes as text of a fixed vocabulary that has every byte: it comes back unchanged. */
#include "fuzz_target.h"

#include "engine/tokenizer.h"

#include <string.h>

bool fuzz_accepted;

static const tacit_tokenizer *vocabulary(void)
{
    static tacit_tokenizer *t; /* lives as long as the process */
    gguf_file *f;
    tacit_error err;
    if (t)
        return t;
    FUZZ_CHECK(gguf_open(&f, TACIT_SOURCE_DIR "/tests/golden/tokenizer/small_smollm.gguf", &err) ==
               TACIT_OK);
    FUZZ_CHECK(tacit_tokenizer_load(&t, f, &err) == TACIT_OK);
    gguf_close(f);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tacit_tokenizer *t = vocabulary();
    for (int special = 0; special < 2; special++) {
        tacit_tokens tokens = {0};
        tacit_buffer back = {0};
        tacit_error err;
        FUZZ_CHECK(tacit_tokenize(t, (const char *)data, size, special, &tokens, &err) == TACIT_OK);
        for (size_t i = 0; i < tokens.count; i++) {
            FUZZ_CHECK(special || !tacit_tokenizer_is_end(t, tokens.id[i]));
            FUZZ_CHECK(tacit_detokenize(t, tokens.id[i], special, &back, &err) == TACIT_OK);
        }
        FUZZ_CHECK(back.size == size && (size == 0 || memcmp(back.data, data, size) == 0));
        tacit_buffer_free(&back);
        tacit_tokens_free(&tokens);
    }
    fuzz_accepted = true;
    return 0;
}
