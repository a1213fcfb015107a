/* Any bytes as a sound file: decoded within the caps, the same twice; or refused. */
#include "fuzz_target.h"

#include "common/secret.h"
#include "engine/audio_file.h"

#include <math.h>
#include <string.h>

#define LIMIT ((size_t)16000 * 4)

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float *samples, *again;
    size_t count, count_again;
    tacit_error err;
    tacit_status status = audio_file_decode(&samples, &count, data, size, "fuzz", LIMIT, &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (status != TACIT_OK) {
        FUZZ_CHECK(samples == NULL && count == 0);
        return 0;
    }
    FUZZ_CHECK(count >= 1 && count <= LIMIT);
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(isfinite(samples[i]));
    if (size <= 4096) {
        FUZZ_CHECK(audio_file_decode(&again, &count_again, data, size, "fuzz", LIMIT, &err) ==
                   TACIT_OK);
        FUZZ_CHECK(count == count_again);
        FUZZ_CHECK(memcmp(samples, again, count * sizeof *samples) == 0);
        tacit_wipe_free(again);
    }
    tacit_wipe_free(samples);
    return 0;
}
