/* Choosing the next token from logits. Not for privacy: the generator (xoshiro256++, Blackman and
 * Vigna 2021) is seeded with 64 bits so that a run can be repeated. One thread at a time. */
#ifndef TACIT_ENGINE_SAMPLE_H
#define TACIT_ENGINE_SAMPLE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* What is left of the model's probabilities by top_k, then top_p, then min_p is drawn from at the
 * temperature, the order of llama.cpp: a high one brings nothing back that was too unlikely. */
typedef struct tacit_sampler_spec {
    double temperature; /* 0: the most likely token, always */
    size_t top_k;       /* only the k most likely; 0: all */
    double top_p;       /* only the most likely that together reach p; 0: the first; 1: all */
    double min_p;       /* only what is at least p times as likely as the first (Nguyen et al. 2024,
                         * arXiv 2407.01082); 0: all */
    uint64_t seed;
} tacit_sampler_spec;

typedef struct sample_candidate {
    int32_t id;
    float logit;
    float weight; /* the sampler's own: means nothing in what tacit_sampler_top gives */
} sample_candidate;

typedef struct tacit_sampler {
    tacit_sampler_spec spec;
    size_t vocab;
    sample_candidate *candidate; /* [vocab] */
    uint64_t state[4];
} tacit_sampler;

/* TACIT_USAGE when a number of the spec is out of range; TACIT_NO_MEMORY. */
tacit_status tacit_sampler_init(tacit_sampler *s, const tacit_sampler_spec *spec, size_t vocab,
                                tacit_error *err) TACIT_MUST_CHECK;
void tacit_sampler_fini(tacit_sampler *s);

#define TACIT_NOT_NUMBERS                                                                          \
    "a score of the model is not a number: its file, or the adapter, is damaged; get it anew"

/* One of logits[vocab]; ties go to the lower id. -1 when one of them is NaN: the model, or an
 * adapter, is damaged, and what the others say is worth nothing. */
int32_t tacit_sampler_next(tacit_sampler *s, const float *logits);

/* out[k]: the k most likely, most likely first; returns how many there are, 0 when a logit is NaN.
 */
size_t tacit_sampler_top(tacit_sampler *s, const float *logits, size_t k, sample_candidate *out);

/* The most likely token, or -1 as above. */
int32_t tacit_argmax(const float *logits, size_t vocab);

/* Why an answer ends. */
typedef enum tacit_finish {
    TACIT_FINISH_STOP,    /* by an end token, or a text that was to stop it */
    TACIT_FINISH_LENGTH,  /* as many tokens as were asked for at most */
    TACIT_FINISH_CONTEXT, /* the context is full */
    TACIT_FINISHES
} tacit_finish;

/* "stop", "length", "context". */
const char *tacit_finish_name(tacit_finish why);

#endif
