/* ADAPTER_CHUNK: published files, by digest and offset. */
#include "server/methods.h"

#include "common/message.h"
#include "server/registry_store.h"
#include "server/round_terms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct adapter_look {
    server *server;
    const uint8_t *digest;
} adapter_look;

/* Only what was published is served. */
static tacit_status look_for_adapter(void *ctx, tacit_error *err)
{
    adapter_look *look = ctx;
    adapter_row row = {0};
    tacit_status status = registry_find(look->server->db, look->digest, &row, err);
    registry_row_free(&row);
    return status;
}

static tacit_status read_part(const char *path, uint64_t offset, uint8_t *data, size_t *n,
                              uint64_t *size, tacit_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return tacit_fail(err, TACIT_IO, "adapter: cannot read its file: %s", strerror(code));
    }
    *size = (uint64_t)st.st_size;
    ssize_t got = offset < *size ? pread(fd, data, SERVER_CHUNK_BYTES, (off_t)offset) : 0;
    int code = errno;
    close(fd);
    if (got < 0)
        return tacit_fail(err, TACIT_IO, "adapter: cannot read its file: %s", strerror(code));
    *n = (size_t)got;
    return TACIT_OK;
}

tacit_status method_adapter_chunk_prepare(gate_call *call, tacit_error *err)
{
    Tacit__AdapterChunkRequest *request = NULL;
    Tacit__AdapterChunkReply reply = TACIT__ADAPTER_CHUNK_REPLY__INIT;
    char path[SERVER_PATH_MAX];
    uint8_t *data = NULL;
    tacit_status status =
        TACIT_UNPACK(&request, tacit__adapter_chunk_request, call->received.request.body.data,
                     call->received.request.body.size, 1024, err);
    TACIT_TRY(status, done);
    if (request->file_digest.len != TACIT_DIGEST_BYTES) {
        status = tacit_fail(err, TACIT_BAD_INPUT, "adapter: the digest has the wrong size");
        goto done;
    }
    adapter_look look = {call->server, request->file_digest.data};
    TACIT_TRY(writer_run(call->server->writer, look_for_adapter, NULL, &look, err), done);
    TACIT_TRY(round_adapter_path(call->server, request->file_digest.data, path, err), done);
    data = malloc(SERVER_CHUNK_BYTES);
    if (!data) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "adapter: no memory for a chunk");
        goto done;
    }
    TACIT_TRY(read_part(path, request->offset, data, &reply.data.len, &reply.size, err), done);
    reply.data.data = data;
    status = gate_reply_with(call, &reply, err);
done:
    free(data);
    tacit_message_free(request);
    return status;
}
