/* adapter_config.json: what PEFT (github.com/huggingface/peft) keeps beside an adapter's tensors.
 *
 * Read as hostile: at most PEFT_CONFIG_MAX bytes of JSON without repeated keys. What of PEFT a
 * low-rank pair beside a linear cannot say is refused by the name of its key: other kinds than
 * LORA, DoRA, biases, transposed weights, whole modules or tokens that were trained, starts that
 * changed the base (PiSSA, OLoRA, LoftQ, ...), and keys that nobody here knows, unless they are
 * null, false, 0 or empty. */
#ifndef TACIT_ENGINE_PEFT_CONFIG_H
#define TACIT_ENGINE_PEFT_CONFIG_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define PEFT_CONFIG_NAME "adapter_config.json"
#define PEFT_TENSORS_NAME "adapter_model.safetensors"
#define PEFT_CONFIG_MAX ((size_t)1 << 20)
#define PEFT_PATTERNS_MAX 2048 /* of rank_pattern, and of alpha_pattern */

typedef struct peft_config peft_config;

/* TACIT_BAD_INPUT says which key, what was expected and found; TACIT_NOT_FOUND, TACIT_IO,
 * TACIT_NO_MEMORY. `name` is what errors call the text. */
tacit_status peft_config_parse(peft_config **out, const void *text, size_t size, const char *name,
                               tacit_error *err) TACIT_MUST_CHECK;
tacit_status peft_config_read(peft_config **out, const char *path,
                              tacit_error *err) TACIT_MUST_CHECK;
void peft_config_free(peft_config *c);

/* The pair beside `module` counts as B A x times weight / rank: the weight is lora_alpha, or by
 * rsLoRA (arXiv 2312.03732) lora_alpha sqrt(rank). rank_pattern and alpha_pattern are tried in
 * their order as PEFT does: a key is a regular expression for the module's name or an end of it
 * that begins behind a dot. Of PCRE2, which Python's differ little from; a key that needs more than
 * some thousand steps is TACIT_BAD_INPUT. */
tacit_status peft_config_pair(const peft_config *c, const char *module, uint32_t *rank,
                              double *weight, tacit_error *err) TACIT_MUST_CHECK;
/* The weight of pairs that no pattern is about. */
double peft_config_weight(const peft_config *c);

/* What is to be written: an ordinary LoRA, each pair scaled by alpha / rank. */
typedef struct peft_config_pair_row {
    char *module;
    uint32_t rank;
    double alpha;
} peft_config_pair_row;

typedef struct peft_config_new {
    const char *base;          /* base_model_name_or_path; NULL: null */
    const char *const *target; /* target_modules */
    size_t n_targets;
    const peft_config_pair_row
        *pair; /* at least one; r and lora_alpha are what most of them have */
    size_t n_pairs;
} peft_config_new;

tacit_status peft_config_write(const char *path, const peft_config_new *n,
                               tacit_error *err) TACIT_MUST_CHECK;

#endif
