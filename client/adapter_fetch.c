/* Fetching an adapter's file in chunks into adapters/HEX.part, which a restart continues. */
#include "client/activation.h"

#include "common/file.h"
#include "common/log.h"
#include "common/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fetching {
    client_session *session;
    const uint8_t *digest;
    uint64_t size;
    char part[CLIENT_PATH_MAX];
    int fd;
} fetching;

static bool has_digest(const char *path, const uint8_t *digest)
{
    uint8_t found[TACIT_DIGEST_BYTES];
    return tacit_digest_file(found, path, NULL) == TACIT_OK &&
           memcmp(found, digest, sizeof found) == 0;
}

static tacit_status begin_anew(const fetching *f, uint64_t *offset, tacit_error *err)
{
    *offset = 0;
    return ftruncate(f->fd, 0) == 0 ? TACIT_OK : tacit_file_fail(err, f->part, "empty");
}

/* What an earlier fetch left; more than the file can have begins anew. */
static tacit_status open_part(fetching *f, uint64_t *offset, tacit_error *err)
{
    struct stat st;
    f->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return tacit_file_fail(err, f->part, "open");
    *offset = (uint64_t)st.st_size;
    return *offset > f->size ? begin_anew(f, offset, err) : TACIT_OK;
}

static tacit_status fetch_chunk(const fetching *f, uint64_t *offset, tacit_error *err)
{
    Tacit__AdapterChunkRequest request = TACIT__ADAPTER_CHUNK_REQUEST__INIT;
    Tacit__AdapterChunkReply *reply = NULL;
    request.file_digest = tacit_field_of(f->digest, TACIT_DIGEST_BYTES);
    request.offset = *offset;
    tacit_status status =
        client_session_call(f->session, TACIT__METHOD__METHOD_ADAPTER_CHUNK, &request,
                            &tacit__adapter_chunk_reply__descriptor, &reply, err);
    if (status != TACIT_OK)
        return status;
    if (reply->size != f->size || reply->data.len == 0 || reply->data.len > f->size - *offset)
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "adapter: the server sends %zu bytes at %llu of a file of %llu, its "
                            "manifest says %llu",
                            reply->data.len, (unsigned long long)*offset,
                            (unsigned long long)reply->size, (unsigned long long)f->size);
    else if (!tacit_file_write_at(f->fd, reply->data.data, reply->data.len, *offset))
        status = tacit_file_fail(err, f->part, "write");
    *offset += status == TACIT_OK ? reply->data.len : 0;
    tacit_message_free(reply);
    return status;
}

static tacit_status fetch_rest(const fetching *f, uint64_t offset, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    while (status == TACIT_OK && offset < f->size)
        status = fetch_chunk(f, &offset, err);
    return status;
}

/* Chunks of an earlier fetch are not fsynced, so a power cut may have damaged them: then the server
 * is asked for the whole file, once. What it sends in one go is its own. */
static tacit_status fetch_whole(fetching *f, tacit_error *err)
{
    uint64_t offset = 0;
    tacit_status status = open_part(f, &offset, err);
    bool resumed = status == TACIT_OK && offset > 0;
    if (status == TACIT_OK)
        status = fetch_rest(f, offset, err);
    if (status != TACIT_OK || !resumed || has_digest(f->part, f->digest))
        return status;
    tacit_log_warn("%s: what an earlier run fetched is damaged; fetching it anew", f->part);
    status = begin_anew(f, &offset, err);
    return status == TACIT_OK ? fetch_rest(f, offset, err) : status;
}

static tacit_status publish(const fetching *f, const char *path, const char *folder,
                            tacit_error *err)
{
    if (fsync(f->fd) != 0) {
        tacit_status status = tacit_file_fail(err, f->part, "fsync");
        unlink(f->part); /* a later fsync would say nothing about these bytes */
        return status;
    }
    if (!has_digest(f->part, f->digest)) {
        unlink(f->part);
        return tacit_fail(err, TACIT_INTEGRITY,
                          "adapter: the file that the server sent has another digest than its "
                          "manifest; dropped");
    }
    if (rename(f->part, path) != 0)
        return tacit_file_fail(err, f->part, "publish");
    return tacit_file_sync_dir(folder, err);
}

tacit_status adapter_fetch(client *c, client_session *s, const uint8_t digest[TACIT_DIGEST_BYTES],
                           uint64_t size, char path[CLIENT_PATH_MAX], tacit_error *err)
{
    fetching f = {.session = s, .digest = digest, .size = size, .fd = -1};
    char folder[CLIENT_PATH_MAX];
    tacit_status status;
    TACIT_TRY(client_hex_path(c, path, "adapters", digest, TACIT_DIGEST_BYTES, "gguf", err), done);
    if (has_digest(path, digest)) /* perhaps of a fetch whose last sync failed */
        return tacit_file_sync_parent(path, err);
    active_adapter_make_room(c, digest);
    TACIT_TRY(client_path(c, folder, NULL, "adapters", err), done);
    TACIT_TRY(client_hex_path(c, f.part, "adapters", digest, TACIT_DIGEST_BYTES, "part", err),
              done);
    TACIT_TRY(fetch_whole(&f, err), done);
    TACIT_TRY(publish(&f, path, folder, err), done);
    tacit_log_info("adapter fetched: %llu bytes", (unsigned long long)size);
done:
    if (f.fd >= 0)
        close(f.fd);
    return status;
}
