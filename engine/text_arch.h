/* The text architectures that are computed, a row each: what distinguishes one family's files from
 * another's. The layers themselves (text_model.h) know no names: loading turns a row into fields of
 * the model, and forward and backward read those alone. To add an architecture of these layers: an
 * arch_X.c with its row, and a line in text_arch.c; where layers differ from each other, `layers`
 * says how. */
#ifndef TACIT_ENGINE_TEXT_ARCH_H
#define TACIT_ENGINE_TEXT_ARCH_H

#include "engine/text_model.h"

struct text_loader;

/* Whether a file of the architecture has a tensor. */
typedef enum text_presence { TEXT_ABSENT, TEXT_OPTIONAL, TEXT_REQUIRED } text_presence;

typedef struct text_arch {
    const char *name; /* general.architecture, and the prefix of the file's keys */
    ops_rope_form rope;
    const ops_gated *activation;
    text_presence bias[TEXT_LINEARS];
    text_presence norm[TEXT_NORMS];
    text_presence rope_divisors; /* rope_freqs.weight */
    text_presence rope_sections; /* rope.dimension_sections: pairs of each number of a position */
    const char *output_norm;     /* its tensor; NULL: output_norm.weight */
    bool convolves;              /* layers without key-value heads are short convolutions */
    bool windows;                /* `layers` reads attention.sliding_window; else it is refused */
    /* Sets what of the model and its layers is not as usual: one rotation, no windows, scores times
     * 1 / sqrt(head_dim), embeddings as they are, attention. Called when all numbers are read and
     * before tensors are. NULL: everything is. */
    tacit_status (*layers)(struct text_loader *t);
} text_arch;

extern const text_arch arch_gemma3, arch_lfm2, arch_llama, arch_qwen2, arch_qwen2vl, arch_qwen3;

/* The row of that name (`size` bytes), or NULL. */
const text_arch *text_arch_find(const char *name, size_t size);
/* "gemma3, lfm2, llama, qwen2, qwen2vl, qwen3" */
void text_arch_names(char *out, size_t size);

#endif
