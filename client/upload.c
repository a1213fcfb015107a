#include "client/upload.h"

#include "client/reservation.h"
#include "common/envelope.h"
#include "common/file.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/message.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 128 * 1024, CHUNK_LEAST = 1024, ATTEMPTS = 3 };

typedef struct uploading {
    client *client;
    client_session *session;
    round_state *round;
    tacit_file_map sealed;
    size_t chunk;
    bool past_half;
} uploading;

uint64_t upload_time(uint64_t reserved_ms, uint32_t pad_seconds, uint64_t now_ms)
{
    uint64_t pad = (uint64_t)pad_seconds * 1000;
    if (pad == 0 || now_ms <= reserved_ms + pad)
        return reserved_ms + pad;
    uint64_t passed = now_ms - reserved_ms;
    return reserved_ms + (passed + pad - 1) / pad * pad;
}

static tacit_status open_sealed(uploading *u, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    uint8_t digest[TACIT_DIGEST_BYTES];
    const round_state *r = u->round;
    tacit_status status = round_file(u->client, r, "sealed", path, err);
    if (status == TACIT_OK)
        status = tacit_file_map_open(&u->sealed, path, err);
    if (status != TACIT_OK)
        return status;
    tacit_digest(digest, u->sealed.data, u->sealed.size);
    if (u->sealed.size != r->sealed_bytes || memcmp(digest, r->sealed_digest, sizeof digest) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "%s: these are not the sealed bytes that were signed for", path);
    return status;
}

tacit_status upload_announce(client_session *s, const round_state *r, tacit_span spend_entry,
                             Tacit__UploadBeginReply **reply, tacit_error *err)
{
    Tacit__UploadBeginRequest request = TACIT__UPLOAD_BEGIN_REQUEST__INIT;
    request.reserve_hash = tacit_field_of(r->reserve_hash, sizeof r->reserve_hash);
    request.size = r->sealed_bytes;
    request.digest = tacit_field_of(r->sealed_digest, sizeof r->sealed_digest);
    request.spend_entry = tacit_field_of(spend_entry.data, spend_entry.size);
    return client_session_call(s, TACIT__METHOD__METHOD_UPLOAD_BEGIN, &request,
                               &tacit__upload_begin_reply__descriptor, reply, err);
}

static tacit_status begin(uploading *u, uint64_t *offset, tacit_error *err)
{
    Tacit__UploadBeginReply *reply = NULL;
    tacit_reservation spend = {0};
    round_state *r = u->round;
    tacit_status status =
        tacit_account_spend(u->client->account, r->reserve_hash, r->sealed_digest, &spend, err);
    if (status == TACIT_OK)
        status = upload_announce(u->session, r, (tacit_span){spend.entry, spend.entry_size}, &reply,
                                 err);
    tacit_reservation_free(&spend);
    if (status != TACIT_OK)
        return status;
    *offset = reply->offset;
    u->chunk = reply->chunk_bytes < CHUNK_BYTES ? reply->chunk_bytes : CHUNK_BYTES;
    if (u->chunk < CHUNK_LEAST)
        u->chunk = CHUNK_LEAST;
    if (*offset > u->sealed.size)
        status =
            tacit_fail(err, TACIT_INTEGRITY, "server: it has more of the upload than there is");
    tacit_message_free(reply);
    return status;
}

static tacit_status send_chunk(uploading *u, uint64_t *offset, tacit_error *err)
{
    Tacit__UploadChunkRequest request = TACIT__UPLOAD_CHUNK_REQUEST__INIT;
    Tacit__UploadChunkReply *reply = NULL;
    size_t left = u->sealed.size - (size_t)*offset, n = left < u->chunk ? left : u->chunk;
    request.reserve_hash = tacit_field_of(u->round->reserve_hash, sizeof u->round->reserve_hash);
    request.offset = *offset;
    request.data = tacit_field_of(u->sealed.data + *offset, n);
    tacit_status status =
        client_session_call(u->session, TACIT__METHOD__METHOD_UPLOAD_CHUNK, &request,
                            &tacit__upload_chunk_reply__descriptor, &reply, err);
    if (status != TACIT_OK)
        return status;
    if (reply->offset <= *offset || reply->offset > u->sealed.size)
        status = tacit_fail(err, TACIT_INTEGRITY, "server: its offset does not follow the chunk");
    else
        *offset = reply->offset;
    tacit_message_free(reply);
    return status;
}

static tacit_status send_chunks(uploading *u, uint64_t offset, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    while (status == TACIT_OK && offset < u->sealed.size) {
        status = send_chunk(u, &offset, err);
        if (status != TACIT_OK)
            break;
        tacit_log_info("uploaded %llu of %zu bytes", (unsigned long long)offset, u->sealed.size);
        if (!u->past_half && 2 * offset >= u->sealed.size) {
            u->past_half = true;
            tacit_kill_point("client.upload_half");
        }
    }
    return status;
}

static tacit_status commit(uploading *u, Tacit__UploadCommitReply **reply, tacit_error *err)
{
    Tacit__UploadCommitRequest request = TACIT__UPLOAD_COMMIT_REQUEST__INIT;
    request.reserve_hash = tacit_field_of(u->round->reserve_hash, sizeof u->round->reserve_hash);
    return client_session_call(u->session, TACIT__METHOD__METHOD_UPLOAD_COMMIT, &request,
                               &tacit__upload_commit_reply__descriptor, reply, err);
}

/* Words of the log's fixed list are kept; anything else is not written down as one. */
static tacit_status store_decision(uploading *u, const Tacit__UploadCommitReply *reply,
                                   tacit_error *err)
{
    round_state *r = u->round;
    const char *word = tacit_entry_is_reject_reason(reply->reason) ? reply->reason : "rejected";
    r->state = ROUND_DONE;
    snprintf(r->reason, sizeof r->reason, "%s", reply->accepted ? "accepted" : word);
    tacit_status status = tacit_database_begin(u->client->db, err);
    if (status == TACIT_OK)
        status = round_state_update(u->client->db, r, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(u->client->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(u->client->db);
    return status;
}

/* Begin tells the offset; a commit that finds bytes lacking or damaged says so, and the rest is
 * sent again. */
static tacit_status send_all(uploading *u, Tacit__UploadCommitReply **reply, tacit_error *err)
{
    tacit_status status = TACIT_CONFLICT;
    for (int attempt = 0; attempt < ATTEMPTS && status == TACIT_CONFLICT; attempt++) {
        uint64_t offset = 0;
        status = begin(u, &offset, err);
        if (status == TACIT_OK)
            status = send_chunks(u, offset, err);
        if (status == TACIT_OK)
            status = commit(u, reply, err);
    }
    return status;
}

tacit_status upload_send(client *c, client_session *s, round_state *r, tacit_error *err)
{
    uploading u = {.client = c, .session = s, .round = r};
    Tacit__UploadCommitReply *reply = NULL;
    tacit_status status;
    TACIT_TRY(open_sealed(&u, err), done);
    TACIT_TRY(send_all(&u, &reply, err), done);
    tacit_kill_point("client.committed");
    TACIT_TRY(store_decision(&u, reply, err), done);
    if (reply->accepted)
        tacit_log_info("update accepted");
    else
        tacit_log_warn("update rejected: %s", r->reason);
    reservation_clean(c, r);
done:
    tacit_message_free(reply);
    tacit_file_map_close(&u.sealed);
    return status;
}
