#include "client/snapshot.h"

#include "common/bytes.h"
#include "common/file.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/dataset.h"
#include "engine/example.h"
#include "engine/row_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1 << 20, COPY_BYTES = 1 << 18 };
#define ROW_BYTES ((size_t)64 << 20) /* encoder rows held by the row cache */
#define FILE_BYTES ((uint64_t)1 << 30)

/* One record, prepared at its first use and kept while there is room. */
typedef struct snapshot_record {
    tacit_record record;
    bool judged, usable;
    bool kept;
    tacit_input input;
} snapshot_record;

struct client_snapshot {
    snapshot_setup setup;
    snapshot_record *record;
    size_t count, capacity;
    size_t **unit; /* indices of each unit's records, ended by SIZE_MAX */
    size_t n_units;
    size_t *order; /* memory of the units */
    tacit_row_cache *rows;
    size_t kept_bytes;
    size_t held;              /* sets of examples that callers have */
    tacit_memory_tally taken; /* by records */
};

/* --- taking the copy --- */

/* Copies until the end or the cap; *readable is false when the source fails on the way. */
static tacit_status copy_bytes(int from, int to, const char *path, bool *readable, tacit_error *err)
{
    uint8_t *buffer = malloc(COPY_BYTES);
    uint64_t total = 0;
    tacit_status status = TACIT_OK;
    *readable = true;
    if (!buffer)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to copy the data", path);
    while (status == TACIT_OK && total < FILE_BYTES) {
        ssize_t n = read(from, buffer, COPY_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        *readable = n >= 0;
        if (n <= 0)
            break;
        total += (uint64_t)n;
        if (!tacit_file_write_all(to, buffer, (size_t)n))
            status = tacit_file_fail(err, path, "write the snapshot");
    }
    sodium_memzero(buffer, COPY_BYTES);
    free(buffer);
    return status;
}

tacit_status snapshot_take(const char *path, const char *data, local_log *log, tacit_error *err)
{
    bool readable = false;
    tacit_status status = TACIT_OK;
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (to < 0)
        return tacit_file_fail(err, path, "create");
    int from = open(data, O_RDONLY | O_CLOEXEC);
    if (from >= 0) {
        status = copy_bytes(from, to, path, &readable, err);
        close(from);
    }
    if (!readable)
        local_log_add(log, "%s: cannot be read: %s; this round sees no data", data,
                      strerror(errno));
    if (status == TACIT_OK && ((!readable && ftruncate(to, 0) != 0) || fsync(to) != 0))
        status = tacit_file_fail(err, path, "write the snapshot");
    close(to);
    if (status == TACIT_OK)
        status = tacit_file_sync_parent(path, err); /* without its name there would be no data */
    if (status != TACIT_OK)
        unlink(path);
    return status;
}

/* --- reading it --- */

static tacit_status add_line(client_snapshot *s, const char *line, size_t size, size_t number,
                             tacit_error *err)
{
    tacit_error why = {0};
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 64;
        snapshot_record *grown = realloc(s->record, capacity * sizeof *grown);
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu records", capacity);
        s->record = grown;
        s->capacity = capacity;
    }
    snapshot_record *r = &s->record[s->count];
    *r = (snapshot_record){0};
    /* Its texts, and as much for what is around them. */
    tacit_status status =
        tacit_memory_tally_add(&s->taken, sizeof *r + 2 * size, "the next records of the data",
                               "keep fewer, or less long ones", err);
    if (status != TACIT_OK)
        return status;
    status = size > LINE_BYTES
                 ? tacit_fail(&why, TACIT_BAD_INPUT, "longer than %d bytes", LINE_BYTES)
                 : tacit_record_parse(&r->record, line, size, s->setup.media_folder, &why);
    if (status == TACIT_NO_MEMORY) /* of this machine now, not a bad line for ever */
        return tacit_fail(err, status, "line %zu: %s", number, why.message);
    if (status != TACIT_OK) {
        local_log_add(s->setup.log, "line %zu: %s; skipped", number, why.message);
        return TACIT_OK;
    }
    r->record.line = number;
    s->count++;
    return TACIT_OK;
}

static bool is_blank(const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static tacit_status read_lines(client_snapshot *s, tacit_error *err)
{
    tacit_file_map map;
    tacit_status status = tacit_file_map_open(&map, s->setup.path, err);
    if (status == TACIT_NOT_FOUND || status == TACIT_BAD_INPUT)
        return TACIT_OK; /* missing or empty */
    if (status != TACIT_OK)
        return status;
    const char *at = (const char *)map.data, *end = at + map.size;
    for (size_t number = 1; at < end && status == TACIT_OK; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop ? stop : end) - at);
        if (!is_blank(at, size))
            status = add_line(s, at, size, number, err);
        at += size + 1;
    }
    tacit_file_map_close(&map);
    return status;
}

/* --- units --- */

static int compare_lines(const snapshot_record *a, const snapshot_record *b)
{
    return (a->record.line > b->record.line) - (a->record.line < b->record.line);
}

/* Records without a subject come first: they are one subject. */
static int compare_subjects(const void *x, const void *y)
{
    const snapshot_record *a = x, *b = y;
    if (!a->record.subject || !b->record.subject) {
        int order = (a->record.subject != NULL) - (b->record.subject != NULL);
        return order ? order : compare_lines(a, b);
    }
    int order = strcmp(a->record.subject, b->record.subject);
    return order ? order : compare_lines(a, b);
}

static int compare_ids(const void *x, const void *y)
{
    const snapshot_record *a = x, *b = y;
    int order = strcmp(a->record.id, b->record.id);
    return order ? order : compare_lines(a, b);
}

static int compare_subject_ids(const void *x, const void *y)
{
    const char *a = ((const snapshot_record *)x)->record.subject;
    const char *b = ((const snapshot_record *)y)->record.subject;
    int order = a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
    return order ? order : compare_ids(x, y);
}

static bool same_subject(const snapshot_record *a, const snapshot_record *b)
{
    const char *x = a->record.subject, *y = b->record.subject;
    return x && y ? strcmp(x, y) == 0 : x == y;
}

/* The first record of an id stays, others are refused: within a unit alone, because a record of one
 * unit that displaced one of another would change two units at once. An id is a unit's own where
 * the units are records, and a record of one subject leaves those of others be. */
static void drop_duplicates(client_snapshot *s)
{
    size_t kept = 0;
    bool subjects = s->setup.unit == TACIT_UNIT_SUBJECT;
    if (s->count)
        qsort(s->record, s->count, sizeof *s->record, subjects ? compare_subject_ids : compare_ids);
    for (size_t i = 0; i < s->count; i++) {
        if (kept && strcmp(s->record[kept - 1].record.id, s->record[i].record.id) == 0 &&
            (!subjects || same_subject(&s->record[kept - 1], &s->record[i]))) {
            local_log_add(s->setup.log, "line %zu: its id was used before; skipped",
                          s->record[i].record.line);
            tacit_record_free(&s->record[i].record);
            continue;
        }
        s->record[kept++] = s->record[i];
    }
    s->count = kept;
}

static bool begins_unit(const client_snapshot *s, size_t i)
{
    if (i == 0 || s->setup.unit == TACIT_UNIT_RECORD)
        return true;
    if (s->setup.unit == TACIT_UNIT_DEVICE)
        return false;
    return !same_subject(&s->record[i - 1], &s->record[i]);
}

/* `order` holds each unit's record indices and a SIZE_MAX after them. */
static tacit_status make_units(client_snapshot *s, tacit_error *err)
{
    size_t at = 0;
    drop_duplicates(s);
    if (s->count)
        qsort(s->record, s->count, sizeof *s->record, compare_subjects);
    s->order = malloc((2 * s->count + 1) * sizeof *s->order);
    s->unit = malloc((s->count + 1) * sizeof *s->unit);
    if (!s->order || !s->unit)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu units", s->count);
    for (size_t i = 0; i < s->count; i++) {
        if (begins_unit(s, i)) {
            if (s->n_units)
                s->order[at++] = SIZE_MAX;
            s->unit[s->n_units++] = s->order + at;
        }
        s->order[at++] = i;
    }
    s->order[at] = SIZE_MAX;
    return TACIT_OK;
}

static tacit_status new_rows(const client_snapshot *s, tacit_row_cache **out, tacit_error *err)
{
    size_t bytes = s->setup.memory < ROW_BYTES ? s->setup.memory : ROW_BYTES;
    return tacit_row_cache_new(out, s->setup.model, bytes, s->setup.row_file, s->setup.pool, err);
}

tacit_status snapshot_open(client_snapshot **out, const snapshot_setup *setup, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    client_snapshot *s = calloc(1, sizeof *s);
    if (!s)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a snapshot");
    s->setup = *setup;
    TACIT_TRY(read_lines(s, err), fail);
    TACIT_TRY(make_units(s, err), fail);
    TACIT_TRY(new_rows(s, &s->rows, err), fail);
    local_log_add(setup->log, "snapshot: %zu records in %zu units", s->count, s->n_units);
    *out = s;
    return TACIT_OK;
fail:
    snapshot_close(s);
    return status;
}

void snapshot_close(client_snapshot *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++) {
        tacit_record_free(&s->record[i].record);
        if (s->record[i].kept)
            tacit_input_free(&s->record[i].input);
    }
    tacit_row_cache_free(s->rows);
    tacit_wipe_free(s->record);
    free(s->unit);
    free(s->order);
    free(s);
}

size_t snapshot_units(const client_snapshot *s)
{
    return s->n_units;
}

/* Records without a subject are a subject of their own, told apart from any name. */
uint64_t snapshot_unit_tag(const client_snapshot *s, size_t unit, const uint8_t key[32])
{
    const tacit_record *r = &s->record[s->unit[unit][0]].record;
    const char *name = s->setup.unit == TACIT_UNIT_RECORD ? r->id : r->subject;
    uint8_t hash[32], kind = name != NULL;
    crypto_generichash_state h;
    crypto_generichash_init(&h, key, 32, sizeof hash);
    crypto_generichash_update(&h, &kind, 1);
    if (name)
        crypto_generichash_update(&h, (const uint8_t *)name, strlen(name));
    crypto_generichash_final(&h, hash, sizeof hash);
    return tacit_load_u64(hash);
}

/* --- preparing examples --- */

static size_t input_bytes(const client_snapshot *s, const tacit_input *in)
{
    return (size_t)tacit_input_bytes(in, tacit_model_embedding(s->setup.model));
}

/* Gives back what is kept between steps. */
static void forget(client_snapshot *s)
{
    tacit_row_cache *fresh;
    for (size_t i = 0; i < s->count; i++) {
        if (s->record[i].kept)
            tacit_input_free(&s->record[i].input);
        s->record[i].kept = false;
    }
    s->kept_bytes = 0;
    if (new_rows(s, &fresh, NULL) != TACIT_OK)
        return;
    tacit_row_cache_free(s->rows);
    s->rows = fresh;
}

/* An example of the record, or a status and the local log's line why there is none, once. Lack of
 * memory is of this moment, so it is no judgement on the record. */
static tacit_status build(client_snapshot *s, snapshot_record *r, tacit_input *out)
{
    tacit_error why = {0};
    tacit_example_options options = {.max_rows = s->setup.max_rows};
    tacit_status status = tacit_example_build(out, s->setup.model, &r->record, &options, &why);
    if (status == TACIT_OK && s->setup.spec) {
        status = tacit_training_prepend(s->setup.model, s->setup.spec, out, &why);
        if (status != TACIT_OK)
            tacit_input_free(out);
    }
    if (status == TACIT_OK && !s->setup.encodes) {
        status = tacit_row_cache_fill(s->rows, out, &why);
        if (status != TACIT_OK)
            tacit_input_free(out);
    }
    if (status != TACIT_OK && !r->judged)
        local_log_add(s->setup.log, "line %zu: %s; counts as nothing", r->record.line, why.message);
    r->judged = status != TACIT_NO_MEMORY;
    r->usable = status == TACIT_OK;
    return status;
}

/* TACIT_NO_MEMORY alone matters to the caller: other examples that cannot be had are left out. */
static tacit_status add_example(client_snapshot *s, size_t index, snapshot_examples *out)
{
    snapshot_record *r = &s->record[index];
    tacit_input built;
    if (!r->kept && r->judged && !r->usable)
        return TACIT_BAD_INPUT;
    tacit_status status = r->kept ? TACIT_OK : build(s, r, &built);
    if (status != TACIT_OK)
        return status;
    if (!r->kept && s->kept_bytes + input_bytes(s, &built) <= s->setup.memory) {
        s->kept_bytes += input_bytes(s, &built);
        r->input = built;
        r->kept = true;
    }
    if (!r->kept)
        out->own[out->n_own] = built;
    out->example[out->count++] = r->kept ? &r->input : &out->own[out->n_own++];
    return TACIT_OK;
}

/* The first `n` of the list become a uniform choice of it. */
static void choose(size_t *list, size_t count, size_t n)
{
    for (size_t i = 0; i < n && i + 1 < count; i++) {
        size_t j = i + randombytes_uniform((uint32_t)(count - i));
        size_t kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }
}

/* The examples at list[0 .. n). `alone`: nothing more can be given back, so one that there is no
 * memory for is left out. */
static tacit_status prepare(client_snapshot *s, const size_t *list, size_t n, bool alone,
                            snapshot_examples *out)
{
    *out = (snapshot_examples){.example = calloc(n + 1, sizeof *out->example),
                               .own = calloc(n + 1, sizeof *out->own),
                               .of = s};
    s->held++;
    if (!out->example || !out->own)
        return TACIT_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (add_example(s, list[i], out) == TACIT_NO_MEMORY && !alone)
            return TACIT_NO_MEMORY;
    return TACIT_OK;
}

tacit_status snapshot_prepare(client_snapshot *s, size_t unit, uint32_t most,
                              snapshot_examples *out, tacit_error *err)
{
    size_t *list = s->unit[unit], count = 0;
    while (list[count] != SIZE_MAX)
        count++;
    size_t n = count < most ? count : most;
    if (count > most)
        choose(list, count, n);
    if (prepare(s, list, n, false, out) == TACIT_OK)
        return TACIT_OK;
    snapshot_release(out);
    if (s->held)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a unit beside those that are held");
    forget(s);
    if (prepare(s, list, n, true, out) == TACIT_OK)
        return TACIT_OK;
    snapshot_release(out); /* a unit without any example */
    local_log_add(s->setup.log, "no memory for a unit; it counts as nothing");
    return TACIT_OK;
}

void snapshot_release(snapshot_examples *e)
{
    if (e->of)
        e->of->held--;
    for (size_t i = 0; i < e->n_own; i++)
        tacit_input_free(&e->own[i]);
    free(e->own);
    free(e->example);
    *e = (snapshot_examples){0};
}
