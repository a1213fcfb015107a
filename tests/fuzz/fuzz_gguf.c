/* Any bytes as a model file: what opens can be read whole, written again, and reads the same. */
#include "fuzz_target.h"

#include "engine/gguf.h"

#include <string.h>

bool fuzz_accepted;

static size_t sink; /* keeps reads from being optimised away */

static void read_key(const gguf_file *f, const char *key)
{
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    gguf_string s = {0};
    size_t count = 0;
    gguf_value_type element;
    sink += gguf_get_u64(f, key, 0, UINT64_MAX, &u, NULL) == TACIT_OK;
    sink += gguf_get_i64(f, key, &i, NULL) == TACIT_OK;
    sink += gguf_get_f64(f, key, &d, NULL) == TACIT_OK;
    sink += gguf_get_bool(f, key, &b, NULL) == TACIT_OK;
    if (gguf_get_string(f, key, &s, NULL) == TACIT_OK)
        for (size_t k = 0; k < s.size; k++)
            sink += (uint8_t)s.data[k];
    if (!gguf_array_info(f, key, &element, &count))
        return;
    FUZZ_CHECK(gguf_get_array(f, key, element, &count, NULL) == TACIT_OK);
    for (size_t k = 0; k <= count && k < 1000; k++) {
        s = gguf_array_string(f, key, k);
        sink += s.size ? (uint8_t)s.data[s.size - 1] : 0;
        sink += gguf_array_number(f, key, k) > 0;
    }
}

static void read_tensor(const gguf_tensor *t)
{
    float row[1024];
    for (size_t k = 0; k < t->bytes; k++)
        sink += t->data[k];
    if (t->traits && t->ne[0] <= 1024)
        t->traits->to_f32(row, t->data + (t->rows - 1) * t->row_bytes, (size_t)t->ne[0]);
}

static void write_again(const gguf_file *f)
{
    gguf_writer *w = gguf_writer_new();
    uint8_t *data;
    size_t size;
    gguf_file *again;
    tacit_error err;
    gguf_put_keys_of(w, f);
    for (size_t i = 0; i < gguf_tensor_count(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        gguf_put_tensor_bytes(w, t->name, t->n_dims, t->ne, t->type, t->data, t->bytes);
    }
    FUZZ_CHECK(gguf_write_memory(w, &data, &size, &err) == TACIT_OK);
    FUZZ_CHECK(gguf_open_memory(&again, data, size, "again", &err) == TACIT_OK);
    FUZZ_CHECK(gguf_tensor_count(again) == gguf_tensor_count(f));
    FUZZ_CHECK(gguf_key_count(again) + gguf_has_key(f, "general.alignment") == gguf_key_count(f));
    for (size_t i = 0; i < gguf_tensor_count(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        const gguf_tensor *same = gguf_tensor_find(again, t->name);
        FUZZ_CHECK(same && same->bytes == t->bytes && memcmp(same->data, t->data, t->bytes) == 0);
    }
    gguf_close(again);
    gguf_writer_free(w);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *f;
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1); /* aligned, and exactly as large */
    if (size)
        memcpy(copy, data, size);
    tacit_status status = gguf_open_memory(&f, copy, size, "fuzz", &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (f) {
        for (size_t i = 0; i < gguf_key_count(f); i++)
            read_key(f, gguf_key_at(f, i, NULL));
        for (size_t i = 0; i < gguf_tensor_count(f); i++)
            read_tensor(gguf_tensor_at(f, i));
        write_again(f);
    }
    gguf_close(f);
    free(copy);
    return 0;
}
