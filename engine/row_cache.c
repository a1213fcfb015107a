/* A hash table of entries whose rows are in memory, in the file, or both; those in memory form a
 * list from the least to the most recently used.
 *
 * The file: "TACITROW", u32 version, u32 row width, the base digest of the model (32 bytes); then
 * per entry the key (32 bytes), u32 number of rows, the rows (fp32, host order) and the first 8
 * bytes of SHA-256 over key and rows. */
#include "engine/row_cache.h"

#include "common/file.h"
#include "common/log.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/adapter_parts.h"
#include "engine/model_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_VERSION 2u
#define FILE_HEADER (8 + 2 * 4 + TACIT_DIGEST_BYTES)
#define ENTRY_HEADER (TACIT_DIGEST_BYTES + 4)
#define CHECK_BYTES 8
#define MAX_ENTRIES ((size_t)1 << 22)
#define MAX_ROWS 65536u /* of one medium */
#define SHARE 4         /* of the memory that is there, a cache takes one part of so many */

typedef struct cache_entry {
    uint8_t key[TACIT_DIGEST_BYTES];
    struct cache_entry *chain;         /* of its bucket */
    struct cache_entry *older, *newer; /* while rows is not NULL */
    float *rows;
    uint32_t n_rows;
    uint64_t at; /* in the file, 0: not there */
} cache_entry;

struct tacit_row_cache {
    const tacit_model *model;
    tacit_pool *pool;
    tacit_precision precision;
    void *pass[ENCODER_KINDS_MAX]; /* of each encoder of the model; made when a medium comes */
    encoder_adapter beside[ENCODER_KINDS_MAX]; /* of the adapter that is bound */
    uint8_t adapter[TACIT_DIGEST_BYTES];       /* its digest */
    size_t row_bytes;
    size_t max_bytes;
    cache_entry **bucket;
    size_t buckets, entries;
    cache_entry *oldest, *newest;
    int fd; /* -1: no file */
    char *path;
    uint64_t end;
    tacit_row_cache_stats stats;
};

static size_t bytes_of(const tacit_row_cache *c, const cache_entry *e)
{
    return e->n_rows * c->row_bytes;
}

static cache_entry **bucket_of(const tacit_row_cache *c, const uint8_t *key)
{
    return &c->bucket[tacit_load_u64(key) & (c->buckets - 1)];
}

static cache_entry *find(const tacit_row_cache *c, const uint8_t *key)
{
    cache_entry *e = *bucket_of(c, key);
    while (e && memcmp(e->key, key, sizeof e->key) != 0)
        e = e->chain;
    return e;
}

static void grow(tacit_row_cache *c)
{
    size_t old = c->buckets;
    cache_entry **from = c->bucket;
    cache_entry **to = calloc(2 * old, sizeof *to);
    if (!to)
        return; /* longer chains do no harm */
    c->bucket = to;
    c->buckets = 2 * old;
    for (size_t i = 0; i < old; i++)
        for (cache_entry *e = from[i], *next; e; e = next) {
            cache_entry **b = bucket_of(c, e->key);
            next = e->chain;
            e->chain = *b;
            *b = e;
        }
    free(from);
}

static cache_entry *add(tacit_row_cache *c, const uint8_t *key, uint32_t n_rows)
{
    cache_entry *e = c->entries < MAX_ENTRIES ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    if (++c->entries > c->buckets)
        grow(c);
    cache_entry **b = bucket_of(c, key);
    memcpy(e->key, key, sizeof e->key);
    e->n_rows = n_rows;
    e->chain = *b;
    *b = e;
    return e;
}

static void remove_entry(tacit_row_cache *c, cache_entry *e)
{
    cache_entry **at = bucket_of(c, e->key);
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    c->entries--;
    free(e);
}

static void unlink_rows(tacit_row_cache *c, cache_entry *e)
{
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    e->older = e->newer = NULL;
}

static void link_rows(tacit_row_cache *c, cache_entry *e)
{
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void drop_rows(tacit_row_cache *c, cache_entry *e)
{
    unlink_rows(c, e);
    tacit_wipe_free(e->rows);
    e->rows = NULL;
    c->stats.bytes -= bytes_of(c, e);
    if (e->at == 0)
        remove_entry(c, e);
}

/* Takes `rows`; whatever does not fit is dropped from the old end. */
static void hold(tacit_row_cache *c, cache_entry *e, float *rows)
{
    e->rows = rows;
    link_rows(c, e);
    c->stats.bytes += bytes_of(c, e);
    while (c->stats.bytes > c->max_bytes) {
        c->stats.evicted++;
        drop_rows(c, c->oldest);
    }
}

static void checksum(uint8_t out[CHECK_BYTES], const tacit_row_cache *c, const cache_entry *e,
                     const float *rows)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    const tacit_span parts[] = {{e->key, TACIT_DIGEST_BYTES},
                                {(const uint8_t *)rows, bytes_of(c, e)}};
    tacit_digest_parts(digest, "tacit-rows-1", parts, 2);
    memcpy(out, digest, CHECK_BYTES);
}

static void stop_using_file(tacit_row_cache *c)
{
    tacit_log_warn("%s: cannot write: %s; encoder rows are kept in memory only", c->path,
                   strerror(errno));
    close(c->fd);
    c->fd = -1;
}

/* The file is a convenience: a full disk ends its use, not the work. */
static void store(tacit_row_cache *c, cache_entry *e, const float *rows)
{
    uint8_t check[CHECK_BYTES], header[ENTRY_HEADER];
    if (c->fd < 0)
        return;
    checksum(check, c, e, rows);
    memcpy(header, e->key, TACIT_DIGEST_BYTES);
    tacit_store_u32(header + TACIT_DIGEST_BYTES, e->n_rows);
    uint64_t at = c->end, rows_at = at + ENTRY_HEADER, check_at = rows_at + bytes_of(c, e);
    if (!tacit_file_write_at(c->fd, header, sizeof header, at) ||
        !tacit_file_write_at(c->fd, rows, bytes_of(c, e), rows_at) ||
        !tacit_file_write_at(c->fd, check, CHECK_BYTES, check_at)) {
        stop_using_file(c);
        return;
    }
    e->at = at;
    c->end = check_at + CHECK_BYTES;
}

/* Rows of an entry from the file; false when they are damaged. */
static bool load(tacit_row_cache *c, const cache_entry *e, float *rows)
{
    uint8_t check[CHECK_BYTES], expected[CHECK_BYTES];
    uint64_t rows_at = e->at + ENTRY_HEADER;
    if (c->fd < 0 || !tacit_file_read_at(c->fd, rows, bytes_of(c, e), rows_at) ||
        !tacit_file_read_at(c->fd, check, CHECK_BYTES, rows_at + bytes_of(c, e)))
        return false;
    checksum(expected, c, e, rows);
    return memcmp(check, expected, CHECK_BYTES) == 0;
}

static void make_header(uint8_t out[FILE_HEADER], const tacit_row_cache *c)
{
    memcpy(out, "TACITROW", 8);
    tacit_store_u32(out + 8, FILE_VERSION);
    tacit_store_u32(out + 12, (uint32_t)c->model->text.embedding);
    memcpy(out + 16, tacit_model_base_digest(c->model), TACIT_DIGEST_BYTES);
}

/* Notes the keys of whole entries; a torn one at the end is overwritten by the next. */
static tacit_status scan_file(tacit_row_cache *c, uint64_t size, tacit_error *err)
{
    uint8_t header[ENTRY_HEADER];
    c->end = FILE_HEADER;
    while (size - c->end >= ENTRY_HEADER) {
        if (!tacit_file_read_at(c->fd, header, sizeof header, c->end))
            return tacit_fail(err, TACIT_IO, "%s: cannot read: %s", c->path, strerror(errno));
        uint32_t n_rows = tacit_load_u32(header + TACIT_DIGEST_BYTES);
        if (n_rows == 0 || n_rows > MAX_ROWS)
            break;
        uint64_t bytes = ENTRY_HEADER + n_rows * (uint64_t)c->row_bytes + CHECK_BYTES;
        if (bytes > size - c->end)
            break;
        cache_entry *e = find(c, header);
        if (!e && !(e = add(c, header, n_rows)))
            return tacit_fail(err, TACIT_NO_MEMORY, "%s: too many media", c->path);
        if (e->n_rows == n_rows)
            e->at = c->end;
        c->end += bytes;
    }
    return TACIT_OK;
}

static tacit_status open_file(tacit_row_cache *c, const char *path, tacit_error *err)
{
    uint8_t header[FILE_HEADER], found[FILE_HEADER];
    struct stat st;
    c->path = strdup(path);
    c->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (!c->path || c->fd < 0 || fstat(c->fd, &st) != 0)
        return tacit_file_fail(err, path, "open");
    make_header(header, c);
    if (st.st_size >= FILE_HEADER && tacit_file_read_at(c->fd, found, sizeof found, 0) &&
        memcmp(found, header, sizeof header) == 0)
        return scan_file(c, (uint64_t)st.st_size, err);
    if (st.st_size > 0)
        tacit_log_warn("%s: rows of another model or not a row cache; starting anew", path);
    c->end = FILE_HEADER;
    if (ftruncate(c->fd, 0) != 0 || !tacit_file_write_at(c->fd, header, sizeof header, 0))
        stop_using_file(c);
    return TACIT_OK;
}

static size_t least(size_t max_bytes, uint64_t available)
{
    return max_bytes < available ? max_bytes : (size_t)available;
}

tacit_status tacit_row_cache_new(tacit_row_cache **out, const tacit_model *model, size_t max_bytes,
                                 const char *path, tacit_pool *pool, tacit_error *err)
{
    tacit_status status;
    tacit_row_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a row cache");
    *c = (tacit_row_cache){.model = model, .pool = pool, .fd = -1};
    c->max_bytes = least(max_bytes, tacit_memory_available() / SHARE);
    c->row_bytes = model->text.embedding * sizeof(float);
    c->buckets = 1024;
    c->bucket = calloc(c->buckets, sizeof *c->bucket);
    if (!c->bucket) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a row cache");
        goto fail;
    }
    if (model->n_encoders > 0 && path)
        TACIT_TRY(open_file(c, path, err), fail);
    *out = c;
    return TACIT_OK;
fail:
    tacit_row_cache_free(c);
    return status;
}

static void drop_passes(tacit_row_cache *c)
{
    for (size_t k = 0; k < c->model->n_encoders; k++) {
        if (c->pass[k])
            c->model->encoder[k].kind->pass_free(c->pass[k]);
        c->pass[k] = NULL;
    }
}

void tacit_row_cache_use(tacit_row_cache *c, tacit_precision precision)
{
    if (precision != c->precision)
        drop_passes(c);
    c->precision = precision;
}

static void drop_adapter(tacit_row_cache *c)
{
    for (size_t k = 0; k < c->model->n_encoders; k++) {
        free((void *)(uintptr_t)c->beside[k].pair);
        c->beside[k] = (encoder_adapter){0};
    }
}

tacit_status tacit_row_cache_bind(tacit_row_cache *c, const tacit_adapter *adapter,
                                  tacit_error *err)
{
    tacit_status status = TACIT_OK;
    drop_passes(c);
    drop_adapter(c);
    if (!adapter)
        return TACIT_OK;
    memcpy(c->adapter, adapter_digest(adapter), sizeof c->adapter);
    for (size_t k = 0; k < c->model->n_encoders && status == TACIT_OK; k++)
        status = adapter_beside(&c->beside[k], adapter, &c->model->encoder[k], err);
    if (status != TACIT_OK)
        drop_adapter(c);
    return status;
}

void tacit_row_cache_free(tacit_row_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->bucket && i < c->buckets; i++)
        for (cache_entry *e = c->bucket[i], *next; e; e = next) {
            next = e->chain;
            tacit_wipe_free(e->rows);
            free(e);
        }
    if (c->fd >= 0)
        close(c->fd);
    drop_passes(c);
    drop_adapter(c);
    free(c->bucket);
    free(c->path);
    free(c);
}

static void key_of(uint8_t key[TACIT_DIGEST_BYTES], const tacit_row_cache *c,
                   const tacit_media *media)
{
    const tacit_span parts[] = {{media->digest, sizeof media->digest},
                                {tacit_model_base_digest(c->model), TACIT_DIGEST_BYTES},
                                {c->adapter, sizeof c->adapter}};
    const char *label = c->precision == TACIT_FAST ? "tacit-row-key-fast-1" : "tacit-row-key-1";
    const model_encoder *e = model_encoder_of(c->model, media->modality);
    bool adapted = c->beside[e - c->model->encoder].max_rank > 0;
    tacit_digest_parts(key, label, parts, adapted ? 3 : 2);
}

static tacit_status encode(tacit_row_cache *c, const tacit_media *media, float *rows,
                           tacit_error *err)
{
    const model_encoder *e = model_encoder_of(c->model, media->modality);
    void **pass = &c->pass[e - c->model->encoder];
    pass_use use = c->precision == TACIT_FAST ? PASS_FAST : PASS_EXACT;
    tacit_status status = TACIT_OK;
    if (!media->values)
        return tacit_fail(err, TACIT_USAGE, "an %s has neither values nor rows", e->kind->word);
    if (!*pass) {
        const encoder_adapter *beside = &c->beside[e - c->model->encoder];
        status = e->kind->pass_new(pass, e->self, 1, use, c->pool, err);
        if (status == TACIT_OK && beside->max_rank > 0)
            status = e->kind->pass_adapt(*pass, beside, err);
        if (status != TACIT_OK && *pass) {
            e->kind->pass_free(*pass); /* one without the adapter must not stay */
            *pass = NULL;
        }
    }
    if (status != TACIT_OK)
        return status;
    e->kind->forward(*pass, NULL, &media, 1, &rows);
    c->stats.encoded++;
    return TACIT_OK;
}

/* Rows of one medium into `rows`, from memory, the file or the encoder. */
static tacit_status obtain(tacit_row_cache *c, const tacit_media *media, float *rows,
                           tacit_error *err)
{
    uint8_t key[TACIT_DIGEST_BYTES];
    size_t bytes = media->n_rows * c->row_bytes;
    key_of(key, c, media);
    cache_entry *e = find(c, key);
    if (e && e->n_rows != media->n_rows)
        return encode(c, media, rows, err); /* a stranger under this key */
    if (e && e->rows) {
        memcpy(rows, e->rows, bytes);
        unlink_rows(c, e);
        link_rows(c, e);
        c->stats.hits++;
        return TACIT_OK;
    }
    bool stored = e && load(c, e, rows);
    c->stats.hits += stored;
    tacit_status status = stored ? TACIT_OK : encode(c, media, rows, err);
    if (status != TACIT_OK)
        return status;
    if (!e && !(e = add(c, key, (uint32_t)media->n_rows)))
        return TACIT_OK; /* full: not remembered */
    if (!stored)
        store(c, e, rows);
    float *copy = bytes <= c->max_bytes ? malloc(bytes) : NULL;
    if (copy)
        hold(c, e, memcpy(copy, rows, bytes));
    else if (e->at == 0)
        remove_entry(c, e);
    return TACIT_OK;
}

static tacit_status check(const tacit_row_cache *c, const tacit_media *media, tacit_error *err)
{
    const model_encoder *e = model_encoder_of(c->model, media->modality);
    if (!e)
        return model_encoder_missing(media->modality, "a medium", err);
    if (media->n_rows > MAX_ROWS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%zu rows of a medium: expected at most %u",
                          media->n_rows, MAX_ROWS);
    return e->kind->check(e->self, media, err);
}

tacit_status tacit_row_cache_fill(tacit_row_cache *c, tacit_input *input, tacit_error *err)
{
    for (size_t i = 0; i < input->n_media; i++) {
        tacit_media *media = &input->media[i];
        if (media->rows || media->modality == TACIT_MODALITY_PROMPT)
            continue;
        tacit_status status = check(c, media, err);
        if (status != TACIT_OK)
            return status;
        status = media_rows_alloc(&media->rows, media, c->model->text.embedding, err);
        if (status == TACIT_OK)
            status = obtain(c, media, media->rows, err);
        if (status != TACIT_OK) {
            tacit_wipe_free(media->rows);
            media->rows = NULL;
            return status;
        }
        tacit_wipe_free(media->values);
        media->values = NULL;
    }
    return TACIT_OK;
}

tacit_row_cache_stats tacit_row_cache_get_stats(const tacit_row_cache *c)
{
    return c->stats;
}
