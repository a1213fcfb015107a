/* Reading keys and small tensors of a text model's file: what text_model.c, text_rope.c and the
 * architectures share while a model is loaded. Every failure names file, key, expected and found.
 */
#ifndef TACIT_ENGINE_TEXT_LOADER_H
#define TACIT_ENGINE_TEXT_LOADER_H

#include "engine/text_arch.h"

/* What loading keeps beside the model: the tensors it has taken, so that one it did not take (and
 * which would change the answers) is noticed. */
typedef struct text_loader {
    tacit_text_model *m;
    const text_arch *arch;
    const gguf_file *file;
    const gguf_tensor **taken;
    size_t n_taken;
    char key[128]; /* of text_key */
    tacit_error *err;
} text_loader;

/* "ARCHITECTURE.name", valid until the next call. */
const char *text_key(text_loader *t, const char *name);
bool text_has_key(text_loader *t, const char *name);

/* Keys by their name without the architecture. Integers from 1 to `max`; a key that is not there is
 * an error in the first, `absent` in the others. */
tacit_status text_get_size(text_loader *t, const char *name, size_t max,
                           size_t *out) TACIT_MUST_CHECK;
tacit_status text_get_optional_size(text_loader *t, const char *name, size_t max, size_t absent,
                                    size_t *out) TACIT_MUST_CHECK;
tacit_status text_get_real(text_loader *t, const char *name, double absent, double min, double max,
                           double *out) TACIT_MUST_CHECK;
/* A number for all layers or an array of one a layer, into out[n_layers]; `absent` (or NULL:
 * required) where the key is not. */
tacit_status text_get_per_layer(text_loader *t, const char *name, size_t min, size_t max,
                                const size_t *absent, size_t *out) TACIT_MUST_CHECK;

/* The tensor of that name, noted as taken, or NULL. */
const gguf_tensor *text_take_tensor(text_loader *t, const char *name);
/* A small tensor of `rows` rows of `n` values as fp32 of the model's own; *out is NULL when there
 * is none. */
tacit_status text_own_vector(text_loader *t, const char *name, size_t rows, size_t n,
                             text_presence presence, const float **out) TACIT_MUST_CHECK;
/* One linear [n_in -> n_out] of a layer with its bias, one norm of a layer, as the architecture has
 * them. */
tacit_status text_load_linear(text_loader *t, size_t layer, text_linear which, size_t n_in,
                              size_t n_out) TACIT_MUST_CHECK;
tacit_status text_load_norm(text_loader *t, size_t layer, text_norm which) TACIT_MUST_CHECK;
/* A linear [n_in -> n_out] over the tensor of that name. */
tacit_status text_take_linear(text_loader *t, tacit_linear *l, const char *name, const float *bias,
                              size_t n_in, size_t n_out) TACIT_MUST_CHECK;
/* TACIT_BAD_INPUT: the tensor is missing. */
tacit_status text_missing(text_loader *t, const char *name) TACIT_MUST_CHECK;
/* Refuses a file with a tensor that was not taken. */
tacit_status text_check_all_taken(text_loader *t) TACIT_MUST_CHECK;

/* Sets the model's first rotation from the file: base, scaling (none, linear, YaRN), divisors,
 * axes. */
tacit_status text_read_rope(text_loader *t) TACIT_MUST_CHECK;
/* One more rotation, of that base and not scaled; at most TEXT_ROPES in all. */
tacit_status text_add_rope(text_loader *t, double base) TACIT_MUST_CHECK;

#endif
