/* A run's checkpoint: one header, four arrays, and the SHA-256 of all before it. */
#include "scenes/pretrain.h"

#include "common/digest.h"
#include "common/file.h"

#include <stdlib.h>
#include <string.h>

static const char magic[8] = "tacitpt1";

#define CHECKPOINT_CAP ((size_t)256 << 20)
#define ARRAYS 4

typedef struct checkpoint_header {
    char magic[8];
    uint64_t seed, step, steps, count, optimizer_step;
    double seconds;
} checkpoint_header;

static void list_arrays(const pretrain_state *s, float *list[ARRAYS])
{
    list[0] = s->values;
    list[1] = s->average;
    list[2] = s->optimizer.first;
    list[3] = s->optimizer.second;
}

tacit_status pretrain_state_save(const pretrain_state *s, const char *path, tacit_error *err)
{
    float *list[ARRAYS];
    tacit_buffer b = {.cap = CHECKPOINT_CAP};
    checkpoint_header h = {.seed = s->seed,
                           .step = s->step,
                           .steps = s->steps,
                           .count = s->count,
                           .optimizer_step = s->optimizer.step,
                           .seconds = s->seconds};
    uint8_t digest[TACIT_DIGEST_BYTES];
    tacit_status status = TACIT_OK;
    memcpy(h.magic, magic, sizeof magic);
    list_arrays(s, list);
    TACIT_TRY(tacit_buffer_append(&b, &h, sizeof h), out);
    for (int i = 0; i < ARRAYS; i++)
        TACIT_TRY(tacit_buffer_append(&b, list[i], s->count * sizeof(float)), out);
    tacit_digest(digest, b.data, b.size);
    TACIT_TRY(tacit_buffer_append(&b, digest, sizeof digest), out);
    status = tacit_file_write(path, b.data, b.size, 0644, err);
    tacit_buffer_free(&b);
    return status;
out:
    tacit_buffer_free(&b);
    return tacit_fail(err, status, "%s: no memory for a checkpoint of %zu values", path, s->count);
}

static tacit_status check(const pretrain_state *s, const checkpoint_header *h, const uint8_t *data,
                          size_t size, const char *path, tacit_error *err)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    size_t want = sizeof *h + ARRAYS * s->count * sizeof(float) + sizeof digest;
    if (size != want || memcmp(h->magic, magic, sizeof magic) != 0 || h->count != s->count)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: not a checkpoint of %zu values (%zu bytes, expected %zu): delete it "
                          "to start anew",
                          path, s->count, size, want);
    tacit_digest(digest, data, size - sizeof digest);
    if (memcmp(digest, data + size - sizeof digest, sizeof digest) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: its digest does not hold: delete it to start anew", path);
    if (h->seed != s->seed || h->steps != s->steps)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: of seed %llu and %llu steps, expected %llu and %llu: give those "
                          "options or delete it",
                          path, (unsigned long long)h->seed, (unsigned long long)h->steps,
                          (unsigned long long)s->seed, (unsigned long long)s->steps);
    return TACIT_OK;
}

tacit_status pretrain_state_load(pretrain_state *s, const char *path, tacit_error *err)
{
    float *list[ARRAYS];
    checkpoint_header h;
    uint8_t *data = NULL;
    size_t size = 0;
    tacit_status status = tacit_file_read(path, CHECKPOINT_CAP, &data, &size, err);
    if (status != TACIT_OK)
        return status;
    memset(&h, 0, sizeof h);
    memcpy(&h, data, size < sizeof h ? size : sizeof h);
    TACIT_TRY(check(s, &h, data, size, path, err), out);
    list_arrays(s, list);
    for (int i = 0; i < ARRAYS; i++)
        memcpy(list[i], data + sizeof h + (size_t)i * s->count * sizeof(float),
               s->count * sizeof(float));
    s->step = h.step;
    s->seconds = h.seconds;
    s->optimizer.step = h.optimizer_step;
out:
    free(data);
    return status;
}
