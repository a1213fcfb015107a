/* A world (tests/privacy/world.h) that is the same in every process: keys from files, a clock that
 * stands still. Included after cmocka.h. */
#ifndef TACIT_TESTS_FAULT_KEYS_H
#define TACIT_TESTS_FAULT_KEYS_H

#include "common/clock.h"
#include "common/file.h"
#include "world.h"

#define FAULT_KEYS (WORLD_DEVICES + 4)

static inline uint64_t fault_time(void *ctx)
{
    (void)ctx;
    return 1700000000000;
}

static inline tacit_status fault_key_path(char path[512], const char *keys, int i, tacit_error *err)
{
    char name[16];
    snprintf(name, sizeof name, "%d.key", i);
    return tacit_file_join(path, 512, keys, name, err);
}

static inline tacit_status fault_make_keys(const char *keys, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (int i = 0; i < FAULT_KEYS && status == TACIT_OK; i++) {
        char path[512];
        tacit_identity *id = NULL;
        status = fault_key_path(path, keys, i, err);
        if (status == TACIT_OK)
            status = tacit_identity_create(&id, path, err);
        tacit_identity_free(id);
    }
    return status;
}

static inline tacit_status fault_key(tacit_identity **id, const char *keys, int i, tacit_error *err)
{
    char path[512];
    tacit_status status = fault_key_path(path, keys, i, err);
    tacit_identity_free(*id);
    *id = NULL;
    return status == TACIT_OK ? tacit_identity_load(id, path, err) : status;
}

static inline tacit_status fault_world(world *w, const char *keys, tacit_error *err)
{
    tacit_clock_inject(fault_time, NULL);
    world_init(w);
    tacit_status status = fault_key(&w->log, keys, 0, err);
    if (status == TACIT_OK)
        status = fault_key(&w->policy_key, keys, 1, err);
    if (status == TACIT_OK)
        status = fault_key(&w->stranger, keys, 2, err);
    if (status == TACIT_OK)
        status = fault_key(&w->operator_id, keys, 3 + WORLD_DEVICES, err);
    for (int d = 0; d < WORLD_DEVICES && status == TACIT_OK; d++)
        status = fault_key(&w->device[d].id, keys, 3 + d, err);
    if (status == TACIT_OK)
        world_plan_all(w);
    return status;
}

#endif
