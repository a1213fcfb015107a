/* The data of one round: a copy of the data file taken at the reservation, its records grouped into
 * the plan's units. A restart of the agent reads the same copy. Media stay where they are; one that
 * cannot be read any more makes its example unusable.
 *
 * Whatever is wrong with the data (no file, bad lines, unreadable pictures, examples that are too
 * long) is written to the local log and changes nothing else: a unit without a usable example is a
 * unit with a zero gradient. */
#ifndef TACIT_CLIENT_SNAPSHOT_H
#define TACIT_CLIENT_SNAPSHOT_H

#include "client/local_log.h"
#include "engine/trainer.h"
#include "privacy/mechanism.h"

typedef struct client_snapshot client_snapshot;

/* Copies `data` to `path` durably (0600). A missing or unreadable file is an empty one; only a
 * failure to write is an error (TACIT_IO). */
tacit_status snapshot_take(const char *path, const char *data, local_log *log,
                           tacit_error *err) TACIT_MUST_CHECK;

typedef struct snapshot_setup {
    const char *path;         /* the copy */
    const char *media_folder; /* that media in it are relative to */
    const tacit_model *model; /* outlives the snapshot */
    tacit_pool *pool;         /* of the encoder; may be NULL */
    tacit_privacy_unit unit;
    size_t max_rows;      /* a longer example is unusable */
    size_t memory;        /* most bytes of prepared examples kept between steps, and of rows */
    const char *row_file; /* encoder rows are kept there too; NULL: in memory alone */
    bool encodes;         /* encoders are trained: examples keep the values of their media */
    const tacit_trainable_spec *spec; /* whose soft prompts examples get; NULL: none */
    local_log *log;
} snapshot_setup;

/* A missing copy is an empty one. TACIT_NO_MEMORY and TACIT_IO are of this machine and this moment:
 * the caller may try again later. */
tacit_status snapshot_open(client_snapshot **out, const snapshot_setup *setup,
                           tacit_error *err) TACIT_MUST_CHECK;
void snapshot_close(client_snapshot *s);

size_t snapshot_units(const client_snapshot *s);

/* 64 bits that follow from who the unit is (a record's id, a subject's name) and the key alone: the
 * same whatever else the store holds. */
uint64_t snapshot_unit_tag(const client_snapshot *s, size_t unit, const uint8_t key[32]);

/* At most `most` examples of a unit, chosen anew each time, uniformly, when it has more. Prepares
 * them; unusable ones are left out. Valid until snapshot_release.
 *
 * What a unit gives must not depend on other units, and memory is shared with them. So lack of it
 * is an error, TACIT_NO_MEMORY, only while other sets of examples are held: release them and ask
 * again. With none held everything that is kept between steps is given back first, and an example
 * for which there is no memory even then is left out like one that cannot be decoded, this time
 * alone. */
typedef struct snapshot_examples {
    const tacit_input **example; /* [count] */
    size_t count;
    tacit_input *own; /* prepared for this call alone */
    size_t n_own;
    client_snapshot *of;
} snapshot_examples;

tacit_status snapshot_prepare(client_snapshot *s, size_t unit, uint32_t most,
                              snapshot_examples *out, tacit_error *err) TACIT_MUST_CHECK;
void snapshot_release(snapshot_examples *e);

#endif
