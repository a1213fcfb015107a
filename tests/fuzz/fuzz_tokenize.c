/* Any bytes as text of fixed vocabularies that have every byte: it comes back unchanged, but for
 * normalizing and the spaces that SentencePiece puts after whole tokens. */
#include "fuzz_target.h"

#include "engine/tokenizer.h"

#include <stdio.h>
#include <string.h>

bool fuzz_accepted;

enum { BPE, NORMALIZING, SENTENCEPIECE };

static const struct {
    const char *file;
    int kind;
} files[] = {{"small_smollm", BPE},
             {"small_llama3", BPE},
             {"small_qwen2", NORMALIZING},
             {"small_spm", SENTENCEPIECE}};

enum { N_FILES = sizeof files / sizeof *files };

static const tacit_tokenizer *vocabulary(size_t index)
{
    static tacit_tokenizer *t[N_FILES]; /* live as long as the process */
    char path[512];
    gguf_file *f;
    tacit_error err;
    if (t[index])
        return t[index];
    snprintf(path, sizeof path, TACIT_SOURCE_DIR "/tests/golden/tokenizer/%s.gguf",
             files[index].file);
    FUZZ_CHECK(gguf_open(&f, path, &err) == TACIT_OK);
    FUZZ_CHECK(tacit_tokenizer_load(&t[index], f, &err) == TACIT_OK);
    gguf_close(f);
    return t[index];
}

static void check(size_t index, const uint8_t *data, size_t size, bool special)
{
    const tacit_tokenizer *t = vocabulary(index);
    tacit_tokens tokens = {0};
    tacit_buffer back = {0};
    tacit_error err;
    bool same = files[index].kind != NORMALIZING;
    FUZZ_CHECK(tacit_tokenize_more(t, (const char *)data, size, special, &tokens, &err) ==
               TACIT_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        FUZZ_CHECK(special || !tacit_tokenizer_is_end(t, tokens.id[i]));
        FUZZ_CHECK(tacit_detokenize(t, tokens.id[i], special, &back, &err) == TACIT_OK);
        if (files[index].kind == SENTENCEPIECE)
            same = same && !special && tokens.id[i] != tacit_tokenizer_find(t, "<u>");
    }
    /* U+2581 is SentencePiece's own spelling of a space. */
    if (files[index].kind == SENTENCEPIECE && size && memmem(data, size, "\xe2\x96\x81", 3))
        same = false;
    if (same)
        FUZZ_CHECK(back.size == size && (size == 0 || memcmp(back.data, data, size) == 0));
    tacit_buffer_free(&back);
    tacit_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t index = 0; index < N_FILES; index++)
        for (int special = 0; special < 2; special++)
            check(index, data, size, special);
    fuzz_accepted = true;
    return 0;
}
