/* The account of a device, with a fault at each of its calls that change files: what a step told
 * stays so whatever stops the process, and the next run goes on to the same rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/database.h"
#include "common/file.h"
#include "common/text.h"
#include "fault_driver.h"
#include "fault_keys.h"
#include "privacy/account.h"
#include "world.h"

#define LOST_SEQUENCE 7

/* One run: the log of the server is in memory and grows with what the device makes, so that every
 * run gives the same receipts. */
typedef struct session {
    fault_run *run;
    tacit_error *err;
    world w;
    tacit_database *db;
    tacit_account *account;
    tacit_reservation made; /* by the last step */
} session;

static tacit_status session_open(session *s, const fault_run *run, const char *name,
                                 tacit_error *err)
{
    char path[512];
    tacit_status status = tacit_file_join(path, sizeof path, run->dir, name, err);
    if (status == TACIT_OK)
        status = tacit_database_open(&s->db, path, err);
    return status;
}

static void session_close(session *s)
{
    tacit_reservation_free(&s->made);
    tacit_account_close(s->account);
    tacit_database_close(s->db);
    s->account = NULL;
    s->db = NULL;
}

static tacit_status open_account(session *s)
{
    return tacit_account_open(&s->account, s->db, s->w.device[0].id, s->err);
}

/* --- what a step tells --- */

/* An entry that its device may now hand out. */
static void tell_entry(const char *what, const tacit_reservation *r)
{
    char hex[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(hex, r->hash, sizeof r->hash);
    fault_tell("%s entry %llu %s epsilon %a", what, (unsigned long long)r->sequence, hex,
               r->epsilon_after);
}

static void keep(session *s, const char *what, tacit_reservation *r)
{
    uint8_t *copy = malloc(r->entry_size);
    assert_non_null(copy);
    memcpy(copy, r->entry, r->entry_size);
    world_push_bytes(&s->w, copy, r->entry_size);
    tacit_reservation_free(&s->made);
    s->made = *r;
    tell_entry(what, r);
}

/* --- steps: each does nothing when it is done already --- */

static tacit_status create(session *s, bool lost)
{
    tacit_status status =
        tacit_account_create(s->db, &s->w.policy, lost, s->w.device[0].id, s->err);
    if (status != TACIT_OK && status != TACIT_CONFLICT)
        return status;
    fault_tell("created%s", lost ? " lost" : "");
    return TACIT_OK;
}

static tacit_status reserve(session *s, int round)
{
    tacit_reservation r = {0};
    tacit_reserve_request request = {.device = s->w.device[0].name,
                                     .plan = {s->w.plan[round], s->w.plan_size[round]},
                                     .schedule = {s->w.schedule, s->w.schedule_size}};
    tacit_status status = tacit_account_find(s->account, s->w.plan_hash[round], &r, s->err);
    if (status == TACIT_NOT_FOUND)
        status = tacit_account_reserve(s->account, &request, &r, s->err);
    if (status == TACIT_OK)
        keep(s, "reserve", &r);
    return status;
}

static tacit_status spend(session *s, int round, const uint8_t reserve_hash[TACIT_HASH_BYTES])
{
    tacit_reservation r;
    uint8_t digest[TACIT_HASH_BYTES];
    memset(digest, 0x40 + round, sizeof digest);
    tacit_status status = tacit_account_spend(s->account, reserve_hash, digest, &r, s->err);
    if (status == TACIT_OK)
        keep(s, "spend", &r);
    return status;
}

static tacit_status abandon(session *s, const uint8_t reserve_hash[TACIT_HASH_BYTES])
{
    tacit_reservation r;
    tacit_status status = tacit_account_abandon(s->account, reserve_hash, "deadline", &r, s->err);
    if (status == TACIT_OK)
        keep(s, "abandon", &r);
    return status;
}

static tacit_status held_size(session *s, uint64_t *size)
{
    tacit_account_status now;
    tacit_status status = tacit_account_status_get(s->account, &now, s->err);
    *size = now.checkpoint_size;
    return status;
}

/* The proof that the log's newest checkpoint follows the one that the device holds. */
static tacit_status follow(session *s, tacit_proof *proof, char note[TACIT_CHECKPOINT_MAX])
{
    uint64_t held;
    tacit_merkle_store tree = tacit_merkle_memory_store(&s->w.tree);
    tacit_status status = held_size(s, &held);
    *proof = (tacit_proof){0};
    if (status == TACIT_OK && held < s->w.count)
        status = tacit_merkle_consistency(&tree, held, s->w.count, proof, s->err);
    world_checkpoint(&s->w, s->w.count, note);
    return status;
}

/* The receipt of the entry that the last step made, which is the log's last. */
static tacit_status acknowledge(session *s, const uint8_t *nonce)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_proof proof;
    tacit_note_key key = world_log_key(&s->w);
    tacit_merkle_store tree = tacit_merkle_memory_store(&s->w.tree);
    tacit_receipt receipt = {.entry = {s->made.entry, s->made.entry_size},
                             .index = s->w.count - 1,
                             .checkpoint = {(const uint8_t *)note, 0}};
    tacit_status status = follow(s, &proof, note);
    receipt.checkpoint.size = strlen(note);
    if (status == TACIT_OK)
        status =
            tacit_merkle_inclusion(&tree, s->w.count - 1, s->w.count, &receipt.inclusion, s->err);
    if (status == TACIT_OK)
        status = tacit_account_acknowledge(s->account, s->made.hash, &receipt, &proof, &key, nonce,
                                           s->err);
    if (status == TACIT_OK)
        fault_tell("acknowledged checkpoint %zu", s->w.count);
    return status;
}

static tacit_status checkpoint(session *s)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_proof proof;
    uint64_t held;
    tacit_note_key key = world_log_key(&s->w);
    tacit_status status = held_size(s, &held);
    if (status == TACIT_OK && held < s->w.count) {
        status = follow(s, &proof, note);
        if (status == TACIT_OK)
            status = tacit_account_checkpoint(s->account,
                                              (tacit_span){(const uint8_t *)note, strlen(note)},
                                              &proof, &key, s->err);
    }
    if (status == TACIT_OK)
        fault_tell("followed checkpoint %zu", s->w.count);
    return status;
}

static tacit_status set_cap(session *s, double cap)
{
    tacit_policy policy = s->w.policy;
    policy.epsilon_cap = cap;
    tacit_status status = tacit_account_set_policy(s->account, &policy, s->err);
    if (status == TACIT_OK)
        fault_tell("policy cap %a", cap);
    return status;
}

static tacit_status lineage_cap(session *s)
{
    const uint8_t lineage[16] = {0x77};
    tacit_status status = tacit_account_set_lineage_cap(s->account, lineage, 0.25, s->err);
    if (status == TACIT_OK)
        fault_tell("lineage capped");
    return status;
}

static tacit_status lost_entry(session *s)
{
    const uint8_t head[TACIT_HASH_BYTES] = {5};
    tacit_reservation r;
    tacit_status status = tacit_account_entry(s->account, LOST_SEQUENCE, &r, s->err);
    if (status == TACIT_NOT_FOUND)
        status = tacit_account_lost_entry(s->account, s->w.device[0].name, LOST_SEQUENCE, head, &r,
                                          s->err);
    if (status == TACIT_OK)
        keep(s, "lost", &r);
    return status;
}

/* --- the script --- */

#define STEP(call) FAULT_STEP(s->run, s->err, call)

static tacit_status three_rounds(session *s)
{
    const uint8_t nonce[32] = {42};
    uint8_t first[TACIT_HASH_BYTES];
    STEP(reserve(s, 0));
    memcpy(first, s->made.hash, sizeof first);
    STEP(acknowledge(s, nonce));
    STEP(spend(s, 0, first));
    STEP(acknowledge(s, NULL));
    STEP(reserve(s, 1));
    memcpy(first, s->made.hash, sizeof first);
    STEP(acknowledge(s, nonce));
    STEP(abandon(s, first));
    STEP(set_cap(s, 2.5));
    STEP(checkpoint(s));
    STEP(reserve(s, 2));
    memcpy(first, s->made.hash, sizeof first);
    STEP(acknowledge(s, nonce));
    STEP(spend(s, 2, first));
    return TACIT_OK;
}

/* The log begins as a server's does. */
static void begin_log(session *s)
{
    world_start(&s->w);
    world_enrol(&s->w, 0);
    world_log_schedule(&s->w);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        world_log_plan(&s->w, r);
}

static tacit_status sound_store(session *s)
{
    STEP(session_open(s, s->run, "client.db", s->err));
    STEP(create(s, false));
    STEP(open_account(s));
    STEP(lineage_cap(s));
    begin_log(s);
    STEP(checkpoint(s));
    tacit_status status = three_rounds(s);
    session_close(s);
    return status;
}

static tacit_status lost_store(session *s)
{
    STEP(session_open(s, s->run, "lost.db", s->err));
    STEP(create(s, true));
    STEP(open_account(s));
    STEP(lost_entry(s));
    session_close(s);
    return TACIT_OK;
}

static tacit_status run_script(fault_run *run, tacit_error *err)
{
    session s = {.run = run, .err = err};
    tacit_status status = fault_world(&s.w, run->keys, err);
    if (status == TACIT_OK)
        status = sound_store(&s);
    if (status == TACIT_OK)
        status = lost_store(&s);
    session_close(&s);
    world_free(&s.w);
    return status;
}

/* --- what was told holds --- */

/* The entry of a line "WHAT entry SEQUENCE HASH epsilon E" stands in the store, and what it says of
 * the account is not less than that. */
static tacit_status entry_holds(session *s, const char *line)
{
    unsigned long long sequence;
    char what[16], hex[65] = "", stored[65];
    double epsilon;
    tacit_reservation r;
    tacit_account_status now;
    if (sscanf(line, "%15s entry %llu %64s epsilon %la", what, &sequence, hex, &epsilon) != 4)
        return tacit_fail(s->err, TACIT_FAILED, "told: %s", line);
    tacit_status status = tacit_account_entry(s->account, sequence, &r, s->err);
    if (status != TACIT_OK)
        return tacit_fail_context(s->err, "told '%s'", line);
    tacit_hex(stored, r.hash, sizeof r.hash);
    tacit_reservation_free(&r);
    status = tacit_account_status_get(s->account, &now, s->err);
    if (status == TACIT_OK && (strcmp(hex, stored) != 0 || now.next_sequence <= sequence))
        status = tacit_fail(s->err, TACIT_FAILED, "told '%s', stored %s", line, stored);
    if (status == TACIT_OK && now.epsilon < epsilon)
        status =
            tacit_fail(s->err, TACIT_FAILED, "told '%s', the account holds %a", line, now.epsilon);
    return status;
}

static tacit_status line_holds(session *s, const char *line)
{
    tacit_account_status now;
    unsigned long long size;
    double cap;
    if (strstr(line, " entry "))
        return entry_holds(s, line);
    tacit_status status = tacit_account_status_get(s->account, &now, s->err);
    if (status != TACIT_OK)
        return status;
    if (sscanf(line, "acknowledged checkpoint %llu", &size) == 1 ||
        sscanf(line, "followed checkpoint %llu", &size) == 1)
        return now.checkpoint_size >= size
                   ? TACIT_OK
                   : tacit_fail(s->err, TACIT_FAILED, "told '%s', held %llu", line,
                                (unsigned long long)now.checkpoint_size);
    if (sscanf(line, "policy cap %la", &cap) == 1 && now.policy.epsilon_cap != cap)
        return tacit_fail(s->err, TACIT_FAILED, "told '%s', in force %a", line,
                          now.policy.epsilon_cap);
    return TACIT_OK;
}

/* A reservation takes one update and no other, and its plan is not reserved again. */
static tacit_status spent_once(session *s)
{
    const uint8_t digest[TACIT_HASH_BYTES] = {1};
    tacit_reservation r = {0}, none;
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        tacit_account_status before, after;
        tacit_status status = tacit_account_find(s->account, s->w.plan_hash[round], &r, s->err);
        if (status == TACIT_NOT_FOUND)
            return TACIT_OK;
        if (status != TACIT_OK || (status = tacit_account_status_get(s->account, &before, s->err)))
            return status;
        tacit_reserve_request request = {.device = s->w.device[0].name,
                                         .plan = {s->w.plan[round], s->w.plan_size[round]},
                                         .schedule = {s->w.schedule, s->w.schedule_size}};
        bool ended = before.spends + before.abandons > (uint64_t)round;
        if (ended &&
            (tacit_account_spend(s->account, r.hash, digest, &none, s->err) != TACIT_CONFLICT ||
             tacit_account_reserve(s->account, &request, &none, s->err) != TACIT_CONFLICT))
            status = tacit_fail(s->err, TACIT_FAILED, "round %d was ended and used again", round);
        tacit_reservation_free(&r);
        if (status == TACIT_OK)
            status = tacit_account_status_get(s->account, &after, s->err);
        if (status == TACIT_OK &&
            (after.epsilon != before.epsilon || after.next_sequence != before.next_sequence))
            status = tacit_fail(s->err, TACIT_FAILED, "asking again changed the account");
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

static tacit_status store_holds(session *s, const fault_run *run, const char *name, bool lost,
                                char *told, const char *from)
{
    tacit_account_status now;
    char *rest = NULL, *start = strstr(told, from);
    if (!start)
        return TACIT_OK; /* nothing was told of this store */
    tacit_status status = session_open(s, run, name, s->err);
    if (status == TACIT_OK)
        status = open_account(s);
    if (status == TACIT_OK)
        status = tacit_account_status_get(s->account, &now, s->err);
    if (status == TACIT_OK && now.lost != lost)
        status = tacit_fail(s->err, TACIT_FAILED, "%s: lost: %s", name, now.lost_reason);
    if (status == TACIT_OK && lost && now.epsilon < s->w.policy.epsilon_cap)
        status = tacit_fail(s->err, TACIT_FAILED, "%s: lost, yet it holds %a", name, now.epsilon);
    for (char *line = strtok_r(start, "\n", &rest); line && status == TACIT_OK;
         line = strtok_r(NULL, "\n", &rest))
        status = line_holds(s, line);
    if (status == TACIT_OK && !lost)
        status = spent_once(s);
    session_close(s);
    return status;
}

static tacit_status holds(const fault_run *run, const char *told, tacit_error *err)
{
    session s = {.err = err};
    char *first = strdup(told), *second = strdup(told), *split;
    if (!first || !second)
        abort();
    split = strstr(first, "created lost");
    if (split)
        *split = '\0';
    tacit_status status = fault_world(&s.w, run->keys, err);
    if (status == TACIT_OK)
        status = store_holds(&s, run, "client.db", false, first, "created");
    if (status == TACIT_OK)
        status = store_holds(&s, run, "lost.db", true, second, "created lost");
    world_free(&s.w);
    free(first);
    free(second);
    return status;
}

int main(int argc, char **argv)
{
    const fault_script script = {.name = "account",
                                 .sparse = 2,
                                 .make_keys = fault_make_keys,
                                 .run = run_script,
                                 .holds = holds};
    return fault_main(argc, argv, &script);
}
