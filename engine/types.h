/* Element types of GGUF tensors and their conversion to and from fp32 rows.
 * Block layouts are those of the ggml project: 32 values, or 256 ("_K"). The types are a table: a
 * type is supported when its row has both functions. Stateless; thread-safe. */
#ifndef TACIT_ENGINE_TYPES_H
#define TACIT_ENGINE_TYPES_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tacit_type {
    TACIT_TYPE_F32 = 0,
    TACIT_TYPE_F16 = 1,
    TACIT_TYPE_Q4_0 = 2,
    TACIT_TYPE_Q4_1 = 3,
    TACIT_TYPE_Q5_0 = 6,
    TACIT_TYPE_Q5_1 = 7,
    TACIT_TYPE_Q8_0 = 8,
    TACIT_TYPE_Q4_K = 12,
    TACIT_TYPE_Q5_K = 13,
    TACIT_TYPE_Q6_K = 14,
    TACIT_TYPE_BF16 = 30
} tacit_type; /* values are ggml's */

typedef struct tacit_type_traits {
    tacit_type type;
    const char *name;    /* "q8_0" */
    uint32_t file_type;  /* general.file_type of a file mostly of this type */
    size_t block_values; /* values in one block */
    size_t block_bytes;
    /* n is a multiple of block_values. Portable C; the fast twins of to_f32 are in dequant.h.
     * from_f32 gives types of 32 values the bytes of the ecosystem's reference. Blocks read back
     * finite: NaN is written as 0, what a scale cannot hold as the largest that it can. */
    void (*to_f32)(float *out, const void *in, size_t n);
    void (*from_f32)(void *out, const float *in, size_t n);
    /* Searches for scales that keep sum importance[i] (in[i] - read[i])^2 small. importance [n]
     * holds finite numbers, none negative; NULL: large values count more, by the measure of
     * types_parts.h. fit is NULL where nothing is to be chosen. */
    void (*fit)(void *out, const float *in, const float *importance, size_t n);
} tacit_type_traits;

/* NULL when the type is not supported. */
const tacit_type_traits *tacit_type_find(uint32_t ggml_type);
const tacit_type_traits *tacit_type_by_name(const char *name);

/* The supported types one by one, from the most to the fewest bits; NULL from the end on. */
const tacit_type_traits *tacit_type_at(size_t i);
/* "f32, f16, ... or q4_0" for errors and help; out[160] is enough. Returns `out`. */
const char *tacit_type_list(char *out, size_t size);

/* Name of any ggml type number, also of those not supported ("q2_k"), or NULL. */
const char *tacit_type_ggml_name(uint32_t ggml_type);

/* "q2_k", or "type 77" for a number that names none; the text lies in `out` then. */
#define TACIT_TYPE_TEXT 24
const char *tacit_type_text(char out[TACIT_TYPE_TEXT], uint32_t ggml_type);

/* TACIT_BAD_INPUT: a tensor of `file` (NULL: the caller names it) has a type without a row here,
 * and which types have one. */
tacit_status tacit_type_refuse(const char *file, const char *tensor, uint32_t ggml_type,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Values and bytes of one block of any ggml type, also of those not supported; false when the
 * number names no type. */
bool tacit_type_ggml_block(uint32_t ggml_type, size_t *values, size_t *bytes);

float tacit_f16_to_f32(uint16_t h);
uint16_t tacit_f32_to_f16(float f); /* round to nearest even */
float tacit_bf16_to_f32(uint16_t h);
uint16_t tacit_f32_to_bf16(float f);

#endif
