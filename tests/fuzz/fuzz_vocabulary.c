/* Any bytes as a file with a tokenizer: what loads tokenizes, and ordinary text never yields a
 * token that steers the model. */
#include "fuzz_target.h"

#include "engine/tokenizer.h"

#include <string.h>

bool fuzz_accepted;

static void use(const tacit_tokenizer *t)
{
    static const char text[] = "It's  72 bpm,\n<|im_end|> 12\xff\xc3\xa9 aaaa";
    for (int special = 0; special < 2; special++) {
        tacit_tokens tokens = {0};
        tacit_buffer back = {0};
        tacit_error err;
        FUZZ_CHECK(tacit_tokenize(t, text, sizeof text - 1, special, &tokens, &err) == TACIT_OK);
        for (size_t i = 0; i < tokens.count; i++) {
            FUZZ_CHECK(tokens.id[i] >= 0 && (size_t)tokens.id[i] < tacit_tokenizer_vocab(t));
            FUZZ_CHECK(special || !tacit_tokenizer_is_end(t, tokens.id[i]));
            FUZZ_CHECK(tacit_detokenize(t, tokens.id[i], special, &back, &err) == TACIT_OK);
        }
        tacit_buffer_free(&back);
        tacit_tokens_free(&tokens);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *f;
    tacit_tokenizer *t = NULL;
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, data, size);
    tacit_status status = gguf_open_memory(&f, copy, size, "fuzz", &err);
    if (status == TACIT_OK)
        status = tacit_tokenizer_load(&t, f, &err);
    gguf_close(f);
    free(copy); /* the tokenizer keeps nothing of its file */
    fuzz_accepted = status == TACIT_OK;
    if (t)
        use(t);
    tacit_tokenizer_free(t);
    return 0;
}
