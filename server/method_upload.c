/* UPLOAD_BEGIN, UPLOAD_CHUNK and UPLOAD_COMMIT. The bytes on disk are the offset: a chunk is
 * fsynced before it is acknowledged, and an upload goes on where the file ends. */
#include "server/methods.h"

#include "common/file.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/message.h"
#include "common/seal.h"
#include "server/own_entry.h"
#include "server/round_machine.h"
#include "server/round_terms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The device hears what it has to do with; which file it was is the operator's business. */
static tacit_status fail_errno(tacit_error *err, const char *path, const char *what)
{
    int code = errno;
    tacit_log_error("%s: cannot %s: %s%s", path, what, strerror(code), tacit_file_hint(code));
    return tacit_fail(err, TACIT_IO, "upload: cannot %s: %s%s", what, strerror(code),
                      code == ENOSPC ? "; the server's disk is full" : "");
}

/* Orders everything that touches one upload's file. The hash has been checked for its size. */
static pthread_mutex_t *file_lock(server *s, ProtobufCBinaryData reserve_hash)
{
    return &s->upload_lock[reserve_hash.data[0] % SERVER_UPLOAD_LOCKS];
}

static tacit_status check_hash(ProtobufCBinaryData reserve_hash, tacit_error *err)
{
    if (tacit_bytes_are(reserve_hash, TACIT_DIGEST_BYTES))
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "upload: the reserve's hash has the wrong size");
}

/* The row of the sender's own reserve. */
static tacit_status own_update(gate_call *call, ProtobufCBinaryData reserve_hash, update_row *row,
                               tacit_error *err)
{
    tacit_status status = check_hash(reserve_hash, err);
    if (status == TACIT_OK)
        status = update_get(call->server->db, reserve_hash.data, row, err);
    if (status == TACIT_OK && memcmp(row->device, call->device.device, TACIT_DEVICE_BYTES) != 0)
        status = tacit_fail(err, TACIT_REFUSED, "upload: that reserve is another device's");
    return status;
}

static tacit_status stored_size(const char *path, uint64_t *size, tacit_error *err)
{
    struct stat st;
    *size = 0;
    if (stat(path, &st) == 0)
        *size = (uint64_t)st.st_size;
    else if (errno != ENOENT)
        return fail_errno(err, path, "look at the file");
    return TACIT_OK;
}

/* --- begin --- */

typedef struct begin_work {
    Tacit__UploadBeginRequest *request;
    tacit_entry spend; /* empty when the request brings none */
} begin_work;

/* The most that an update of the row's plan can have. */
static tacit_status largest_update(gate_call *call, const update_row *row, uint64_t *most,
                                   tacit_error *err)
{
    Tacit__Plan *plan = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    tacit_status status = round_plan_get(call->server->db, row->round_id, &bytes, &size, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&plan, tacit__plan, bytes, size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        *most = intake_sealed_bound(plan);
    tacit_message_free(plan);
    free(bytes);
    return status;
}

static tacit_status check_begin(gate_call *call, const Tacit__UploadBeginRequest *r,
                                const update_row *row, tacit_error *err)
{
    uint64_t most = 0;
    if (r->digest.len != TACIT_DIGEST_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT, "upload: the digest has the wrong size");
    tacit_status status = largest_update(call, row, &most, err);
    if (status == TACIT_OK && (r->size == 0 || r->size > most))
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "upload: an update of this plan has 1 to %llu bytes, found %llu",
                            (unsigned long long)most, (unsigned long long)r->size);
    return status;
}

static tacit_status log_spend(gate_call *call, const begin_work *w, const update_row *row,
                              tacit_error *err)
{
    if (!w->spend.entry)
        return tacit_fail(err, TACIT_BAD_INPUT, "upload: the spend entry is missing");
    const Tacit__Spend *spend = w->spend.entry->spend;
    bool same = memcmp(spend->reserve_hash.data, row->reserve_hash, TACIT_DIGEST_BYTES) == 0 &&
                memcmp(spend->update_digest.data, w->request->digest.data, TACIT_DIGEST_BYTES) == 0;
    return same ? own_entry_append(call, &w->spend, w->request->spend_entry, NULL, err)
                : tacit_fail(err, TACIT_BAD_INPUT,
                             "upload: the spend entry is not of this reserve and digest");
}

/* Logs the spend and fixes size and digest, once; the same begin again only tells the offset. */
static tacit_status begin(gate_call *call, const begin_work *w, update_row *row, tacit_error *err)
{
    const Tacit__UploadBeginRequest *r = w->request;
    bool same = row->size == r->size && memcmp(row->digest, r->digest.data, r->digest.len) == 0;
    if (row->state != UPDATE_RESERVED)
        return same ? TACIT_OK
                    : tacit_fail(err, TACIT_CONFLICT,
                                 "upload: other bytes were announced for this reserve before");
    tacit_status status = log_spend(call, w, row, err);
    if (status != TACIT_OK)
        return status;
    row->size = r->size;
    row->state = UPDATE_RECEIVING;
    return update_begin(call->server->db, row->reserve_hash, r->size, r->digest.data, err);
}

/* Whether bytes are still of use. Once the round has its accepted set, the sender is told that
 * everything is here, so that it goes on to the commit and hears the decision. */
static tacit_status is_wanted(gate_call *call, const update_row *row, bool *wanted,
                              tacit_error *err)
{
    round_brief round;
    tacit_status status = round_brief_get(call->server->db, row->round_id, &round, err);
    *wanted =
        status == TACIT_OK && round.state == ROUND_COLLECTING && row->state == UPDATE_RECEIVING;
    return status;
}

tacit_status method_upload_begin_prepare(gate_call *call, tacit_error *err)
{
    begin_work *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "upload: no memory");
    call->own = w;
    tacit_status status =
        TACIT_UNPACK(&w->request, tacit__upload_begin_request, call->received.request.body.data,
                     call->received.request.body.size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK || w->request->spend_entry.len == 0)
        return status;
    return own_entry_open(call, w->request->spend_entry, OWN_ENTRY(SPEND), &w->spend, err);
}

tacit_status method_upload_begin_act(gate_call *call, tacit_error *err)
{
    begin_work *w = call->own;
    Tacit__UploadBeginReply reply = TACIT__UPLOAD_BEGIN_REPLY__INIT;
    update_row row;
    bool wanted;
    char path[SERVER_PATH_MAX];
    tacit_status status;
    TACIT_TRY(own_update(call, w->request->reserve_hash, &row, err), done);
    TACIT_TRY(check_begin(call, w->request, &row, err), done);
    TACIT_TRY(begin(call, w, &row, err), done);
    TACIT_TRY(is_wanted(call, &row, &wanted, err), done);
    TACIT_TRY(round_upload_path(call->server, row.reserve_hash, path, err), done);
    TACIT_TRY(stored_size(path, &reply.offset, err), done);
    if (!wanted || reply.offset > row.size)
        reply.offset = wanted ? 0 : row.size;
    reply.chunk_bytes = SERVER_CHUNK_BYTES;
    status = gate_reply_with(call, &reply, err);
done:
    return status;
}

void method_upload_begin_release(gate_call *call)
{
    begin_work *w = call->own;
    if (!w)
        return;
    tacit_entry_close(&w->spend);
    tacit_message_free(w->request);
    free(w);
}

/* --- chunk --- */

typedef struct chunk_look {
    gate_call *call;
    const Tacit__UploadChunkRequest *request;
    update_row row;
    bool wanted;
} chunk_look;

static tacit_status look_at_update(void *ctx, tacit_error *err)
{
    chunk_look *look = ctx;
    tacit_status status = own_update(look->call, look->request->reserve_hash, &look->row, err);
    if (status == TACIT_OK && look->row.state == UPDATE_RESERVED)
        status = tacit_fail(err, TACIT_CONFLICT, "upload: it was not begun");
    return status == TACIT_OK ? is_wanted(look->call, &look->row, &look->wanted, err) : status;
}

/* A new file's name must survive a power cut as well as its bytes. */
static tacit_status sync_chunk(const server *s, const char *path, int fd, bool first,
                               tacit_error *err)
{
    char folder[SERVER_PATH_MAX];
    if (fsync(fd) != 0)
        return fail_errno(err, path, "fsync a chunk");
    if (!first)
        return TACIT_OK;
    tacit_status status = server_path(s, folder, "uploads", err);
    return status == TACIT_OK ? tacit_file_sync_dir(folder, err) : status;
}

/* A chunk that fails leaves no trace: what was written beyond the acknowledged bytes is cut off,
 * for a full disk must not hold them as well. After a failed fsync nobody knows what reached the
 * disk, and a later one would say nothing about it: the whole file goes, and the device begins
 * anew. */
static tacit_status write_chunk(const server *s, const char *path,
                                const Tacit__UploadChunkRequest *r, uint64_t stored,
                                tacit_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail_errno(err, path, "open its file");
    tacit_status status = TACIT_OK;
    if (!tacit_file_write_at(fd, r->data.data, r->data.len, r->offset))
        status = fail_errno(err, path, "write a chunk");
    bool keep = status == TACIT_OK || (stored > 0 && ftruncate(fd, (off_t)stored) == 0);
    if (status == TACIT_OK) {
        status = sync_chunk(s, path, fd, stored == 0, err);
        keep = status == TACIT_OK;
    }
    if (!keep)
        unlink(path);
    close(fd);
    return status;
}

static tacit_status store_chunk(const server *s, const chunk_look *look, uint64_t *offset,
                                tacit_error *err)
{
    const Tacit__UploadChunkRequest *r = look->request;
    char path[SERVER_PATH_MAX];
    uint64_t end, stored;
    tacit_status status = round_upload_path(s, look->row.reserve_hash, path, err);
    if (status == TACIT_OK)
        status = stored_size(path, &stored, err);
    if (status != TACIT_OK)
        return status;
    if (!tacit_add_u64(r->offset, r->data.len, &end) || end > look->row.size || r->data.len == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "upload: the chunk lies outside the %llu bytes",
                          (unsigned long long)look->row.size);
    if (r->offset > stored)
        return tacit_fail(err, TACIT_CONFLICT,
                          "upload: expected the chunk at offset %llu, found "
                          "%llu",
                          (unsigned long long)stored, (unsigned long long)r->offset);
    status = write_chunk(s, path, r, stored, err);
    *offset = end > stored ? end : stored;
    return status;
}

/* Whether the bytes are wanted is asked under the lock that a commit holds from its first look to
 * its decision: no byte of an accepted update changes afterwards. */
static tacit_status take_chunk(gate_call *call, chunk_look *look, uint64_t *offset,
                               tacit_error *err)
{
    tacit_status status = check_hash(look->request->reserve_hash, err);
    if (status != TACIT_OK)
        return status;
    pthread_mutex_t *lock = file_lock(call->server, look->request->reserve_hash);
    pthread_mutex_lock(lock);
    status = writer_run(call->server->writer, look_at_update, NULL, look, err);
    *offset = look->row.size;
    if (status == TACIT_OK && look->wanted)
        status = store_chunk(call->server, look, offset, err);
    pthread_mutex_unlock(lock);
    return status;
}

tacit_status method_upload_chunk_prepare(gate_call *call, tacit_error *err)
{
    Tacit__UploadChunkRequest *request = NULL;
    Tacit__UploadChunkReply reply = TACIT__UPLOAD_CHUNK_REPLY__INIT;
    tacit_status status =
        TACIT_UNPACK(&request, tacit__upload_chunk_request, call->received.request.body.data,
                     call->received.request.body.size, TACIT_MESSAGE_MAX, err);
    if (status != TACIT_OK)
        return status;
    chunk_look look = {.call = call, .request = request};
    TACIT_TRY(take_chunk(call, &look, &reply.offset, err), done);
    tacit_kill_point("server.chunk_written");
    status = gate_reply_with(call, &reply, err);
done:
    tacit_message_free(request);
    return status;
}

/* --- commit --- */

typedef struct commit_work {
    Tacit__UploadCommitRequest *request;
    pthread_mutex_t *lock; /* of the file, held until the release */
    update_row row;
    round_terms terms;
    bool loaded;        /* terms are there: the round still runs */
    bool late;          /* the round does not collect any more */
    const char *reason; /* NULL: it passed */
    char detail[TACIT_ERROR_MAX];
} commit_work;

static tacit_status look_at_commit(void *ctx, tacit_error *err)
{
    gate_call *call = ctx;
    commit_work *w = call->own;
    tacit_status status = own_update(call, w->request->reserve_hash, &w->row, err);
    if (status != TACIT_OK || w->row.state == UPDATE_ACCEPTED || w->row.state == UPDATE_REJECTED)
        return status;
    if (w->row.state != UPDATE_RECEIVING)
        return tacit_fail(err, TACIT_CONFLICT, "upload: nothing was announced for this reserve");
    status = round_terms_load(&w->terms, call->server, w->row.round_id, err);
    w->loaded = status == TACIT_OK;
    w->late = status == TACIT_NOT_FOUND || (w->loaded && w->terms.round.state != ROUND_COLLECTING);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

/* The gate's verdict on the bytes, when they are those that were announced. Others were damaged on
 * their way or here: they are dropped and the sender begins again. */
static tacit_status judge_bytes(gate_call *call, commit_work *w, const char *path,
                                const uint8_t *sealed, size_t size, tacit_error *err)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    intake_update update;
    tacit_error why = {0};
    intake_terms terms = round_terms_for(&w->terms, call->device.identity_key);
    tacit_digest(digest, sealed, size);
    if (memcmp(digest, w->row.digest, sizeof digest) != 0) {
        unlink(path);
        return tacit_fail(err, TACIT_CONFLICT,
                          "upload: the bytes do not have the announced digest; send them again");
    }
    tacit_status status = intake_judge(&terms, &w->row, sealed, size, &update, &w->reason, &why);
    if (status != TACIT_OK)
        return tacit_fail(err, status, "%s", why.message);
    if (w->reason)
        memcpy(w->detail, why.message, sizeof w->detail);
    intake_update_free(&update);
    return TACIT_OK;
}

static tacit_status judge_upload(gate_call *call, commit_work *w, tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    uint8_t *sealed = NULL;
    size_t size = 0;
    tacit_status status = round_upload_path(call->server, w->row.reserve_hash, path, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, SERVER_UPLOAD_MAX, &sealed, &size, err);
    if (status == TACIT_NOT_FOUND || (status == TACIT_OK && size < w->row.size))
        status =
            tacit_fail(err, TACIT_CONFLICT, "upload: %zu of %llu bytes are here; send the rest",
                       size, (unsigned long long)w->row.size);
    if (status == TACIT_OK)
        status = judge_bytes(call, w, path, sealed, size, err);
    free(sealed);
    return status;
}

tacit_status method_upload_commit_prepare(gate_call *call, tacit_error *err)
{
    commit_work *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "upload: no memory");
    call->own = w;
    tacit_status status =
        TACIT_UNPACK(&w->request, tacit__upload_commit_request, call->received.request.body.data,
                     call->received.request.body.size, 1024, err);
    if (status == TACIT_OK)
        status = check_hash(w->request->reserve_hash, err);
    if (status != TACIT_OK)
        return status;
    w->lock = file_lock(call->server, w->request->reserve_hash);
    pthread_mutex_lock(w->lock);
    status = writer_run(call->server->writer, look_at_commit, NULL, call, err);
    if (status == TACIT_OK && w->loaded && !w->late)
        status = judge_upload(call, w, err);
    if (status == TACIT_OK && w->late)
        w->reason = "late";
    return status;
}

/* Appends the decision and moves the update's row, unless it was decided before. */
static tacit_status decide(gate_call *call, commit_work *w, tacit_error *err)
{
    server *s = call->server;
    char reason[32] = "";
    Tacit__UpdateDecision body = TACIT__UPDATE_DECISION__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    tacit_status status = update_get(s->db, w->row.reserve_hash, &w->row, err);
    if (status != TACIT_OK || w->row.state == UPDATE_ACCEPTED || w->row.state == UPDATE_REJECTED)
        return status;
    if (w->reason)
        memcpy(reason, w->reason, strlen(w->reason) + 1);
    body.round_id = tacit_field_of(w->row.round_id, ROUND_ID_BYTES);
    body.reserve_hash = tacit_field_of(w->row.reserve_hash, TACIT_DIGEST_BYTES);
    body.update_digest = tacit_field_of(w->row.digest, TACIT_DIGEST_BYTES);
    body.accepted = !w->reason;
    body.reason = reason;
    entry.device = tacit_field_of(call->device.device, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_UPDATE;
    entry.update = &body;
    status = tacit_ledger_record(s->ledger, &entry, &w->row.entry_index, NULL, err);
    if (status != TACIT_OK)
        return status;
    w->row.state = w->reason ? UPDATE_REJECTED : UPDATE_ACCEPTED;
    memcpy(w->row.reason, reason, sizeof w->row.reason);
    tacit_log_info("update of %s %s%s%s%s", device_called(&call->device).text,
                   w->reason ? "rejected: " : "accepted", reason, w->reason ? "; " : "", w->detail);
    return update_end(s->db, w->row.reserve_hash, w->row.state, reason, w->row.entry_index, err);
}

tacit_status method_upload_commit_act(gate_call *call, tacit_error *err)
{
    commit_work *w = call->own;
    Tacit__UploadCommitReply reply = TACIT__UPLOAD_COMMIT_REPLY__INIT;
    round_brief round;
    tacit_status status = round_brief_get(call->server->db, w->row.round_id, &round, err);
    if (status != TACIT_OK)
        return status;
    if (round.state != ROUND_COLLECTING) /* it closed since the first look */
        w->reason = "late";
    status = decide(call, w, err);
    if (status != TACIT_OK)
        return status;
    reply.accepted = w->row.state == UPDATE_ACCEPTED;
    reply.reason = w->row.reason;
    reply.index = w->row.entry_index;
    return gate_reply_with(call, &reply, err);
}

void method_upload_commit_release(gate_call *call)
{
    commit_work *w = call->own;
    if (!w)
        return;
    if (w->lock)
        pthread_mutex_unlock(w->lock);
    tacit_kill_point("server.update_decided");
    round_machine_wake(call->server->rounds);
    round_terms_free(&w->terms);
    tacit_message_free(w->request);
    free(w);
}
