#include "client/recovery.h"

#include "client/reservation.h"
#include "client/restoration.h"
#include "common/log.h"
#include "common/message.h"
#include "privacy/receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MISSED_MAX 100000u /* entries; a round makes two */

typedef struct recovering {
    client *client;
    client_session *session;
    uint64_t sequence; /* of the folder's newest own entry; 0: none */
    uint8_t head[TACIT_HASH_BYTES];
    uint64_t counter;             /* the largest that the server has seen */
    bool followed;                /* the log to another origin: what was open there is gone */
    Tacit__OwnEntryReply **reply; /* newest first */
    tacit_missed_entry *missed;   /* oldest first; views of the replies */
    size_t count, capacity;
    uint8_t wanted[TACIT_HASH_BYTES]; /* leaf of the entry to ask for next */
} recovering;

static tacit_status own_head(recovering *r, tacit_error *err)
{
    tacit_account_status now;
    tacit_reservation newest;
    tacit_status status = tacit_account_status_get(r->client->account, &now, err);
    if (status != TACIT_OK || now.next_sequence == 1)
        return status;
    r->sequence = now.next_sequence - 1;
    status = tacit_account_entry(r->client->account, r->sequence, &newest, err);
    if (status == TACIT_OK)
        memcpy(r->head, newest.hash, sizeof r->head);
    tacit_reservation_free(&newest);
    return status;
}

/* --- asking --- */

static tacit_status ask_from(recovering *r, uint64_t held, Tacit__OwnEntryReply **reply,
                             tacit_error *err)
{
    Tacit__OwnEntryRequest request = TACIT__OWN_ENTRY_REQUEST__INIT;
    request.checkpoint_size = held;
    request.leaf_hash = tacit_field_of(r->wanted, r->count ? sizeof r->wanted : 0);
    return client_session_call(r->session, TACIT__METHOD__METHOD_OWN_ENTRY, &request,
                               &tacit__own_entry_reply__descriptor, reply, err);
}

static tacit_status ask(recovering *r, Tacit__OwnEntryReply **reply, tacit_error *err)
{
    char *note = NULL;
    uint64_t held;
    tacit_status status = tacit_account_last_checkpoint(r->client->account, &note, &held, err);
    free(note);
    return status == TACIT_OK ? ask_from(r, held, reply, err) : status;
}

/* The server was restored as well: its log first, then what it has of this device. A log that has
 * less than this device saw proves nothing from there, so what it is now is asked for by itself. */
static tacit_status ask_first(recovering *r, Tacit__OwnEntryReply **reply, tacit_error *err)
{
    tacit_error none;
    tacit_status status = ask(r, reply, err);
    if (status == TACIT_INTEGRITY && ask_from(r, 0, reply, &none) != TACIT_OK)
        return status;
    if (!*reply || !client_is_elsewhere(r->client, (*reply)->checkpoint))
        return status;
    tacit_message_free(*reply);
    *reply = NULL;
    r->followed = true;
    status = client_follow_restore(r->client, r->session, false, err);
    return status == TACIT_OK ? ask(r, reply, err) : status;
}

/* The newest entry must be in the log; those before it follow from its hash. */
static tacit_status check_newest(const recovering *r, const Tacit__OwnEntryReply *reply,
                                 tacit_error *err)
{
    const client *c = r->client;
    tacit_proof consistency;
    tacit_receipt receipt = {.entry = tacit_span_of(reply->entry),
                             .index = reply->index,
                             .checkpoint = tacit_span_of(reply->checkpoint)};
    tacit_status status =
        tacit_proof_from_fields(&consistency, reply->consistency, reply->n_consistency, err);
    if (status == TACIT_OK)
        status = tacit_account_checkpoint(c->account, receipt.checkpoint, &consistency,
                                          &c->enrolment.log, err);
    if (status == TACIT_OK)
        status =
            tacit_proof_from_fields(&receipt.inclusion, reply->inclusion, reply->n_inclusion, err);
    return status == TACIT_OK && reply->entry.len
               ? tacit_receipt_verify(&receipt, &c->enrolment.log, NULL, err)
               : status;
}

static tacit_status keep(recovering *r, Tacit__OwnEntryReply *reply, tacit_error *err)
{
    if (r->count == MISSED_MAX)
        return tacit_fail(err, TACIT_REFUSED, "recovery: more than %u entries are missed",
                          MISSED_MAX);
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 16;
        void *grown = realloc(r->reply, capacity * sizeof *r->reply);
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "recovery: no memory");
        r->reply = grown;
        r->capacity = capacity;
    }
    r->reply[r->count++] = reply;
    return TACIT_OK;
}

static tacit_status fail_forked(uint64_t sequence, tacit_error *err)
{
    return tacit_fail(err, TACIT_INTEGRITY,
                      "the log has another entry %llu of this device than this folder: two copies "
                      "of it have signed, and they cannot be joined; purge the folder and enrol "
                      "anew",
                      (unsigned long long)sequence);
}

/* An entry that the folder has too ends the walk; `e` is the next one to the left. */
static tacit_status is_known(const recovering *r, const tacit_entry *e, bool *known,
                             tacit_error *err)
{
    tacit_reservation own;
    *known = false;
    if (!e->device_signed)
        return tacit_fail(err, TACIT_INTEGRITY, "server: the entry is no device's own");
    if (e->entry->sequence > r->sequence)
        return TACIT_OK;
    tacit_status status = tacit_account_entry(r->client->account, e->entry->sequence, &own, err);
    if (status != TACIT_OK)
        return status;
    *known = memcmp(own.hash, e->leaf, sizeof own.hash) == 0;
    tacit_reservation_free(&own);
    return *known ? TACIT_OK : fail_forked(e->entry->sequence, err);
}

static bool is_planned(const tacit_entry *e)
{
    return e->entry->body_case == TACIT__ENTRY__BODY_RESERVE && e->entry->reserve->round_id.len;
}

/* Takes one reply: keeps it, or finds that everything before it is known. */
static tacit_status take(recovering *r, Tacit__OwnEntryReply *reply, bool *done, bool *kept,
                         tacit_error *err)
{
    tacit_entry e = {0};
    bool known = false;
    tacit_status status = tacit_entry_open(&e, reply->entry.data, reply->entry.len, err);
    if (status != TACIT_OK)
        return status;
    if (r->count && memcmp(e.leaf, r->wanted, sizeof e.leaf) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY, "server: it sent another entry than was asked");
    if (status == TACIT_OK)
        status = is_known(r, &e, &known, err);
    if (status == TACIT_OK && !known && is_planned(&e) && reply->plan.len == 0 &&
        r->client->enrolment.log_generation == 1)
        status = tacit_fail(err, TACIT_INTEGRITY, "server: it sent a reserve without its plan");
    *done = known || e.entry->sequence == r->sequence + 1;
    if (status == TACIT_OK && !known)
        status = keep(r, reply, err);
    *kept = status == TACIT_OK && !known;
    if (status == TACIT_OK && !*done && e.entry->previous.len == TACIT_HASH_BYTES)
        memcpy(r->wanted, e.entry->previous.data, sizeof r->wanted);
    tacit_entry_close(&e);
    return status;
}

static tacit_status fetch(recovering *r, tacit_error *err)
{
    bool done = false;
    tacit_status status = TACIT_OK;
    while (status == TACIT_OK && !done) {
        Tacit__OwnEntryReply *reply = NULL;
        bool kept = false;
        status = r->count ? ask(r, &reply, err) : ask_first(r, &reply, err);
        if (status == TACIT_OK && r->count == 0)
            status = check_newest(r, reply, err);
        if (status == TACIT_OK && reply->counter > r->counter)
            r->counter = reply->counter;
        if (status == TACIT_OK && reply->entry.len == 0)
            done = true;
        else if (status == TACIT_OK)
            status = take(r, reply, &done, &kept, err);
        if (!kept)
            tacit_message_free(reply);
    }
    return status;
}

/* --- taking over --- */

static tacit_status list_missed(recovering *r, tacit_error *err)
{
    r->missed = calloc(r->count + 1, sizeof *r->missed);
    if (!r->missed)
        return tacit_fail(err, TACIT_NO_MEMORY, "recovery: no memory");
    for (size_t i = 0; i < r->count; i++) {
        const Tacit__OwnEntryReply *reply = r->reply[r->count - 1 - i];
        r->missed[i] = (tacit_missed_entry){tacit_span_of(reply->entry), tacit_span_of(reply->plan),
                                            tacit_span_of(reply->schedule)};
    }
    return TACIT_OK;
}

static tacit_status store(recovering *r, tacit_error *err)
{
    client *c = r->client;
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_account_merge(c->account, r->missed, r->count, err), done);
    /* What the copy had begun may have been finished since, with other noise: it does not go on. */
    if (r->count || r->followed) /* else the folder is the newest, and its round goes on */
        TACIT_TRY(reservation_supersede(c, false, err), done);
    if (r->count)
        TACIT_TRY(reservation_supersede(c, true, err), done);
    TACIT_TRY(client_counter_raise(c->db, r->counter, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
done:
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

tacit_status client_recover(client *c, client_session *s, size_t *taken, tacit_error *err)
{
    recovering r = {.client = c, .session = s};
    tacit_status status;
    *taken = 0;
    TACIT_TRY(own_head(&r, err), done);
    TACIT_TRY(fetch(&r, err), done);
    TACIT_TRY(list_missed(&r, err), done);
    TACIT_TRY(store(&r, err), done);
    *taken = r.count;
    TACIT_TRY(reservation_sweep(c, err), done);
    tacit_log_info("%zu entries of the log were missing here and are taken over", r.count);
done:
    for (size_t i = 0; i < r.count; i++)
        tacit_message_free(r.reply[i]);
    free(r.reply);
    free(r.missed);
    return status;
}
