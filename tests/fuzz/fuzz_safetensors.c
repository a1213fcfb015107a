/* Any bytes as a safetensors file: what opens can be read through, and its tensors fill the data.
 */
#include "fuzz_target.h"

#include "engine/safetensors.h"

#include <string.h>

bool fuzz_accepted;
extern volatile uint8_t touched;
volatile uint8_t touched; /* so that all bytes are read */

static void read_tensor(const safetensors_file *f, const safetensors_tensor *t, const uint8_t *data,
                        size_t size)
{
    uint8_t sum = 0;
    FUZZ_CHECK(t->data >= data && t->bytes <= size && t->data + t->bytes <= data + size);
    for (size_t i = 0; i < t->bytes; i++)
        sum = (uint8_t)(sum + t->data[i]);
    touched = sum;
    FUZZ_CHECK(safetensors_find(f, t->name) != NULL);
    if (!t->traits)
        return;
    float value;
    for (size_t i = 0; i < t->values; i++)
        t->traits->to_f32(&value, t->data + i * t->traits->block_bytes, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    safetensors_file *f;
    tacit_error err;
    size_t bytes = 0;
    fuzz_accepted = safetensors_open_memory(&f, data, size, "fuzz", &err) == TACIT_OK;
    if (!fuzz_accepted)
        return 0;
    for (size_t i = 0; i < safetensors_count(f); i++) {
        read_tensor(f, safetensors_at(f, i), data, size);
        bytes += safetensors_at(f, i)->bytes;
    }
    FUZZ_CHECK(bytes < size);
    (void)safetensors_metadata(f, "format");
    safetensors_close(f);
    return 0;
}
