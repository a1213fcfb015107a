/* nano's vocabulary: byte-level BPE (Sennrich et al. 2016; GPT-2's byte alphabet) of exactly 768
 * tokens, learned on the public question templates and answers. Deterministic: ties between pairs
 * go to the smaller pair of texts. Order: 256 bytes, merges, then the control tokens. */
#ifndef TACIT_SCENES_VOCABULARY_H
#define TACIT_SCENES_VOCABULARY_H

#include "common/status.h"
#include "engine/gguf.h"

#include <stddef.h>
#include <stdint.h>

#define SCENE_VOCABULARY_TOKENS 768

typedef struct scene_vocabulary {
    char **token;  /* [count], in GPT-2's alphabet */
    int32_t *type; /* 1 normal, 3 control */
    size_t count;
    char **merge; /* "left right" */
    size_t n_merges;
} scene_vocabulary;

tacit_status scene_vocabulary_make(scene_vocabulary *out, tacit_error *err) TACIT_MUST_CHECK;
void scene_vocabulary_free(scene_vocabulary *v);
/* The id of exactly this token text, or -1. */
int32_t scene_vocabulary_find(const scene_vocabulary *v, const char *text);

/* Writes every tokenizer.ggml.* key and tokenizer.chat_template. */
void scene_vocabulary_put(const scene_vocabulary *v, gguf_writer *w);

#endif
