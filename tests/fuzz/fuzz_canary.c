/* Any bytes as a scores file: what is accepted is written back to what reads alike, and is judged
 * without harm. */
#include "fuzz_target.h"

#include "privacy/canary_bound.h"

#include <math.h>
#include <string.h>

bool fuzz_accepted;

static void check_same(const tacit_canary_scores *a, const tacit_canary_scores *b)
{
    FUZZ_CHECK(memcmp(a->reserve, b->reserve, sizeof a->reserve) == 0);
    FUZZ_CHECK(tacit_mechanism_equal(&a->mechanism, &b->mechanism));
    FUZZ_CHECK(a->values == b->values && a->delta == b->delta && a->epsilon == b->epsilon);
    FUZZ_CHECK(a->count == b->count);
    FUZZ_CHECK(memcmp(a->included, b->included, a->count * sizeof *a->included) == 0);
    for (size_t i = 0; i < a->count; i++)
        FUZZ_CHECK(a->score[i] == b->score[i] && isfinite(a->score[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_canary_scores scores, again;
    tacit_canary_finding finding;
    tacit_buffer written = {.cap = TACIT_CANARY_FILE_MAX};
    tacit_error err;
    fuzz_accepted = tacit_canary_scores_read(&scores, data, size, &err) == TACIT_OK;
    if (!fuzz_accepted)
        return 0;
    FUZZ_CHECK(tacit_canary_scores_write(&written, &scores, &err) == TACIT_OK);
    FUZZ_CHECK(tacit_canary_scores_read(&again, written.data, written.size, &err) == TACIT_OK);
    check_same(&scores, &again);
    FUZZ_CHECK(tacit_canary_test(&finding, &scores, 0.95, &err) == TACIT_OK);
    FUZZ_CHECK(finding.epsilon >= 0 && isfinite(finding.epsilon));
    tacit_canary_scores_free(&again);
    tacit_canary_scores_free(&scores);
    tacit_buffer_free(&written);
    return 0;
}
