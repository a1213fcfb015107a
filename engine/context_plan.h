/* Whether a context fits into memory, and what would. */
#ifndef TACIT_ENGINE_CONTEXT_PLAN_H
#define TACIT_ENGINE_CONTEXT_PLAN_H

#include "engine/context.h"
#include "engine/text_model.h"

/* `spec` is complete: no zeros stand for defaults. `rows` of keys and values must fit beside the
 * rest into `available` bytes; else TACIT_NO_MEMORY says what is needed for what, and what would
 * fit. */
tacit_status context_plan_check(const tacit_model *model, const tacit_context_spec *spec,
                                size_t rows, tacit_pool *pool, uint64_t available,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Bytes of weights that are in memory once they were all used; *mapped of them are pages of the
 * file, the others panels. */
uint64_t context_plan_weights(const tacit_text_model *m, tacit_precision precision,
                              uint64_t *mapped);

#define CONTEXT_CHUNK 128 /* rows of a chunk where a spec says nothing */
#define CONTEXT_LOGIT_ROWS 8

/* The spec with its defaults filled in; `spec` may be NULL. */
tacit_context_spec context_plan_complete(const tacit_model *model, const tacit_context_spec *spec);

#endif
