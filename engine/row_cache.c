/* A hash table of entries whose rows are in memory, in the file, or both; those in memory form a
 * list from the least to the most recently used.
 *
 * The file: "TACITROW", u32 version, u32 row width, u32 rows a frame, the base digest of the model
 * (32 bytes); then per entry the key (32 bytes), the rows (fp32, host order) and the first 8 bytes
 * of SHA-256 over key and rows. */
#include "engine/row_cache.h"

#include "common/file.h"
#include "common/log.h"
#include "common/secret.h"
#include "engine/model_parts.h"
#include "engine/vision.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_VERSION 1u
#define FILE_HEADER (8 + 3 * 4 + TACIT_DIGEST_BYTES)
#define CHECK_BYTES 8
#define MAX_ENTRIES ((size_t)1 << 22)

typedef struct cache_entry {
    uint8_t key[TACIT_DIGEST_BYTES];
    struct cache_entry *chain;         /* of its bucket */
    struct cache_entry *older, *newer; /* while rows is not NULL */
    float *rows;
    uint64_t at; /* in the file, 0: not there */
} cache_entry;

struct tacit_row_cache {
    const tacit_model *model;
    vision_pass *pass;
    size_t row_bytes; /* of one frame */
    size_t max_bytes;
    cache_entry **bucket;
    size_t buckets, entries;
    cache_entry *oldest, *newest;
    int fd; /* -1: no file */
    char *path;
    uint64_t end;
    tacit_row_cache_stats stats;
};

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

static cache_entry *add(tacit_row_cache *c, const uint8_t *key)
{
    cache_entry *e = c->entries < MAX_ENTRIES ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    if (++c->entries > c->buckets)
        grow(c);
    cache_entry **b = bucket_of(c, key);
    memcpy(e->key, key, sizeof e->key);
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
    c->stats.bytes -= c->row_bytes;
    if (e->at == 0)
        remove_entry(c, e);
}

/* Takes `rows`; whatever does not fit is dropped from the old end. */
static void hold(tacit_row_cache *c, cache_entry *e, float *rows)
{
    e->rows = rows;
    link_rows(c, e);
    c->stats.bytes += c->row_bytes;
    while (c->stats.bytes > c->max_bytes) {
        c->stats.evicted++;
        drop_rows(c, c->oldest);
    }
}

static void checksum(uint8_t out[CHECK_BYTES], const tacit_row_cache *c, const uint8_t *key,
                     const float *rows)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    const tacit_span parts[] = {{key, TACIT_DIGEST_BYTES}, {(const uint8_t *)rows, c->row_bytes}};
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
    uint8_t check[CHECK_BYTES];
    if (c->fd < 0)
        return;
    checksum(check, c, e->key, rows);
    uint64_t at = c->end, rows_at = at + TACIT_DIGEST_BYTES, check_at = rows_at + c->row_bytes;
    if (!tacit_file_write_at(c->fd, e->key, TACIT_DIGEST_BYTES, at) ||
        !tacit_file_write_at(c->fd, rows, c->row_bytes, rows_at) ||
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
    uint64_t rows_at = e->at + TACIT_DIGEST_BYTES;
    if (c->fd < 0 || !tacit_file_read_at(c->fd, rows, c->row_bytes, rows_at) ||
        !tacit_file_read_at(c->fd, check, CHECK_BYTES, rows_at + c->row_bytes))
        return false;
    checksum(expected, c, e->key, rows);
    return memcmp(check, expected, CHECK_BYTES) == 0;
}

static void make_header(uint8_t out[FILE_HEADER], const tacit_row_cache *c)
{
    const vision_shape *s = vision_get_shape(c->model->vision);
    memcpy(out, "TACITROW", 8);
    tacit_store_u32(out + 8, FILE_VERSION);
    tacit_store_u32(out + 12, s->out_width);
    tacit_store_u32(out + 16, s->rows);
    memcpy(out + 20, c->model->base_digest, TACIT_DIGEST_BYTES);
}

/* Notes the keys of whole entries; a torn one at the end is overwritten by the next. */
static tacit_status scan_file(tacit_row_cache *c, uint64_t size, tacit_error *err)
{
    uint8_t key[TACIT_DIGEST_BYTES];
    uint64_t entry = TACIT_DIGEST_BYTES + c->row_bytes + CHECK_BYTES;
    for (c->end = FILE_HEADER; size - c->end >= entry; c->end += entry) {
        if (!tacit_file_read_at(c->fd, key, sizeof key, c->end))
            return tacit_fail(err, TACIT_IO, "%s: cannot read: %s", c->path, strerror(errno));
        cache_entry *e = find(c, key);
        if (!e && !(e = add(c, key)))
            return tacit_fail(err, TACIT_NO_MEMORY, "%s: too many pictures", c->path);
        e->at = c->end;
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

tacit_status tacit_row_cache_new(tacit_row_cache **out, const tacit_model *model, size_t max_bytes,
                                 const char *path, tacit_pool *pool, tacit_error *err)
{
    tacit_status status;
    tacit_row_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a row cache");
    *c = (tacit_row_cache){.model = model, .max_bytes = max_bytes, .buckets = 1024, .fd = -1};
    c->bucket = calloc(c->buckets, sizeof *c->bucket);
    if (!c->bucket) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a row cache");
        goto fail;
    }
    if (model->vision) {
        const vision_shape *s = vision_get_shape(model->vision);
        c->row_bytes = (size_t)s->rows * s->out_width * sizeof(float);
        TACIT_TRY(vision_pass_new(&c->pass, model->vision, 1, false, pool, err), fail);
        if (path)
            TACIT_TRY(open_file(c, path, err), fail);
    }
    *out = c;
    return TACIT_OK;
fail:
    tacit_row_cache_free(c);
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
    vision_pass_free(c->pass);
    free(c->bucket);
    free(c->path);
    free(c);
}

static void key_of(uint8_t key[TACIT_DIGEST_BYTES], const tacit_row_cache *c,
                   const tacit_media *media)
{
    const tacit_span parts[] = {{media->digest, sizeof media->digest},
                                {c->model->base_digest, TACIT_DIGEST_BYTES}};
    tacit_digest_parts(key, "tacit-row-key-1", parts, 2);
}

/* Rows of one frame into `rows`, from memory, the file or the encoder. */
static tacit_status obtain(tacit_row_cache *c, const tacit_media *media, float *rows,
                           tacit_error *err)
{
    uint8_t key[TACIT_DIGEST_BYTES];
    const float *pixels = media->pixels;
    key_of(key, c, media);
    cache_entry *e = find(c, key);
    if (e && e->rows) {
        memcpy(rows, e->rows, c->row_bytes);
        unlink_rows(c, e);
        link_rows(c, e);
        c->stats.hits++;
        return TACIT_OK;
    }
    bool stored = e && load(c, e, rows);
    c->stats.hits += stored;
    if (!stored && !pixels)
        return tacit_fail(err, TACIT_USAGE, "a picture has neither pixels nor rows");
    if (!stored) {
        vision_forward(c->pass, NULL, &pixels, 1, rows);
        c->stats.encoded++;
    }
    if (!e && !(e = add(c, key)))
        return TACIT_OK; /* full: not remembered */
    if (!stored)
        store(c, e, rows);
    float *copy = c->row_bytes <= c->max_bytes ? malloc(c->row_bytes) : NULL;
    if (copy)
        hold(c, e, memcpy(copy, rows, c->row_bytes));
    else if (e->at == 0)
        remove_entry(c, e);
    return TACIT_OK;
}

tacit_status tacit_row_cache_fill(tacit_row_cache *c, tacit_input *input, tacit_error *err)
{
    for (size_t i = 0; i < input->n_media; i++) {
        tacit_media *media = &input->media[i];
        if (media->rows)
            continue;
        if (!c->pass || media->n_rows != vision_get_shape(c->model->vision)->rows)
            return tacit_fail(err, TACIT_USAGE, "picture %zu does not fit the model's tower", i);
        media->rows = malloc(c->row_bytes);
        if (!media->rows)
            return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the rows of a picture");
        tacit_status status = obtain(c, media, media->rows, err);
        if (status != TACIT_OK) {
            tacit_wipe_free(media->rows);
            media->rows = NULL;
            return status;
        }
        tacit_wipe_free(media->pixels);
        media->pixels = NULL;
    }
    return TACIT_OK;
}

tacit_row_cache_stats tacit_row_cache_get_stats(const tacit_row_cache *c)
{
    return c->stats;
}
