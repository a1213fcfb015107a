/* Element types of GGUF tensors and their conversion to and from fp32 rows.
 * Block layouts: Q8_0, Q4_0 and Q4_1 hold 32 values (formats of the ggml project). The types are a
 * table: a type is supported when its row has both functions. */
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
    TACIT_TYPE_Q8_0 = 8,
    TACIT_TYPE_BF16 = 30
} tacit_type; /* values are ggml's */

typedef struct tacit_type_traits {
    tacit_type type;
    const char *name;    /* "q8_0" */
    uint32_t file_type;  /* general.file_type of a file mostly of this type */
    size_t block_values; /* values in one block */
    size_t block_bytes;
    /* n is a multiple of block_values. Portable C; the fast twins are in the kernel table. */
    void (*to_f32)(float *out, const void *in, size_t n);
    void (*from_f32)(void *out, const float *in, size_t n);
} tacit_type_traits;

/* NULL when the type is not supported. */
const tacit_type_traits *tacit_type_find(uint32_t ggml_type);
const tacit_type_traits *tacit_type_by_name(const char *name);

/* Name of any ggml type number, also of those not supported ("q6_k"), or NULL. */
const char *tacit_type_ggml_name(uint32_t ggml_type);

/* Values and bytes of one block of any ggml type, also of those not supported; false when the
 * number names no type. */
bool tacit_type_ggml_block(uint32_t ggml_type, size_t *values, size_t *bytes);

float tacit_f16_to_f32(uint16_t h);
uint16_t tacit_f32_to_f16(float f); /* round to nearest even */
float tacit_bf16_to_f32(uint16_t h);
uint16_t tacit_f32_to_bf16(float f);

#endif
