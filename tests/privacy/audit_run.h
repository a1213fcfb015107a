/* Running the auditor over a world's log. Each test program includes it once, after cmocka.h. */
#ifndef TACIT_TESTS_AUDIT_RUN_H
#define TACIT_TESTS_AUDIT_RUN_H

#include "privacy/audit.h"
#include "world.h"

typedef struct exported {
    tacit_export e;
    char note[TACIT_CHECKPOINT_MAX];
} exported;

static inline uint8_t *log_bytes(const world *w, size_t *size)
{
    tacit_buffer b = {0};
    for (size_t i = 0; i < w->count; i++) {
        uint8_t length[4];
        tacit_store_u32(length, (uint32_t)w->entry[i].size);
        OK(tacit_buffer_append(&b, length, sizeof length));
        OK(tacit_buffer_append(&b, w->entry[i].bytes, w->entry[i].size));
    }
    *size = b.size;
    return b.data;
}

static inline void export_of(world *w, exported *x)
{
    *x = (exported){0};
    x->e.log = log_bytes(w, &x->e.log_size);
    OK(tacit_export_split(x->e.log, x->e.log_size, &x->e.entries, &x->e.count, &w->err));
    assert_int_equal(x->e.count, w->count);
    world_checkpoint(w, w->count, x->note);
    x->e.checkpoint = x->note;
    x->e.checkpoint_size = strlen(x->note);
    x->e.log_key = world_log_key(w);
}

static inline void export_done(exported *x)
{
    free(x->e.log);
    free(x->e.entries);
}

static inline void run(const exported *x, const tacit_audit_options *options, tacit_audit *audit)
{
    static const tacit_audit_options plain;
    tacit_error err;
    tacit_status status = tacit_audit_run(audit, &x->e, options ? options : &plain, &err);
    if (status != TACIT_OK)
        print_error("%s\n", err.message);
    assert_int_equal(status, TACIT_OK);
}

static inline bool has(const tacit_audit *audit, const char *kind)
{
    for (size_t i = 0; i < audit->violation_count; i++)
        if (strcmp(audit->violations[i].kind, kind) == 0)
            return true;
    return false;
}

static inline void print_all(const char *what, const tacit_audit *audit)
{
    for (size_t i = 0; i < audit->violation_count; i++)
        print_error("%s: %s at %lld: %s\n", what, audit->violations[i].kind,
                    (long long)audit->violations[i].entry, audit->violations[i].detail);
    if (!audit->violation_count)
        print_error("%s: nothing was found\n", what);
}

static inline tacit_audit_device find_device(const tacit_audit *audit, const world *w, int d)
{
    size_t i = 0;
    while (i < audit->device_count &&
           memcmp(audit->devices[i].device, w->device[d].name, TACIT_DEVICE_BYTES) != 0)
        i++;
    assert_true(i < audit->device_count);
    return audit->devices[i];
}

#endif
