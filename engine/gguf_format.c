#include "common/text.h"
#include "engine/gguf_private.h"

#include <string.h>

static const struct value_type {
    const char *name;
    size_t bytes;
} value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

#define N_VALUE_TYPES (sizeof value_types / sizeof *value_types)

const char *gguf_value_type_name(gguf_value_type type)
{
    return (size_t)type < N_VALUE_TYPES ? value_types[type].name : "unknown type";
}

size_t gguf_value_bytes(uint32_t type)
{
    return type < N_VALUE_TYPES ? value_types[type].bytes : 0;
}

tacit_status gguf_check_name(const char *what, const char *data, size_t size, size_t most,
                             tacit_error *err)
{
    if (size == 0 || size > most)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a name of 1 to %zu bytes, found %zu",
                          what, most, size);
    if (!tacit_text_is_plain(data, size))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected a name in UTF-8 without control characters, found '%.*s'",
                          what, (int)size, data);
    return TACIT_OK;
}

static tacit_status check_dims(const gguf_tensor *t, const char *what, tacit_error *err)
{
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected 1 to %d dimensions, found %u", what,
                          GGUF_MAX_DIMS, t->n_dims);
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (t->ne[d] == 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: expected dimension %u to be at least 1, found 0", what, d);
    return TACIT_OK;
}

tacit_status gguf_measure(gguf_tensor *t, const char *what, bool any_type, tacit_error *err)
{
    size_t values = 1, block = 0;
    char types[160];
    tacit_status status = check_dims(t, what, err);
    if (status != TACIT_OK)
        return status;
    if (!tacit_type_ggml_block(t->type, &values, &block) && !any_type)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: type %u is unknown, so is its size; expected %s", what, t->type,
                          tacit_type_list(types, sizeof types));
    if (t->ne[0] % values)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected a row of %s to be a multiple of %zu values, found %llu",
                          what, tacit_type_ggml_name(t->type), values,
                          (unsigned long long)t->ne[0]);
    uint64_t row_bytes, bytes, rows = 1;
    for (uint32_t d = t->n_dims; d < GGUF_MAX_DIMS; d++)
        t->ne[d] = 1;
    if (!tacit_mul_u64(t->ne[0] / values, block, &row_bytes) ||
        !tacit_mul_u64(t->ne[1], t->ne[2], &rows) || !tacit_mul_u64(rows, t->ne[3], &rows) ||
        !tacit_mul_u64(rows, row_bytes, &bytes) || bytes > SIZE_MAX / 2)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: the product of its dimensions is too large for any file", what);
    t->rows = rows;
    t->row_bytes = (size_t)row_bytes;
    t->bytes = (size_t)bytes;
    t->traits = tacit_type_find(t->type);
    return TACIT_OK;
}
