/* The server's log and its exports, with a fault at each call that changes files: entries of every
 * kind in group commits with a refused one among them, checkpoints handed out, three exports, a
 * rotated key. Every checkpoint that was ever handed out stays one of the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "common/file.h"
#include "common/text.h"
#include "fault_driver.h"
#include "fault_keys.h"
#include "log_edits.h"
#include "privacy/audit.h"
#include "privacy/ledger.h"

#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_EXPORT 9 /* entries that the first export holds */

typedef struct session {
    fault_run *run;
    tacit_error *err;
    world *w;
    tacit_database *db;
    tacit_ledger *ledger;
} session;

/* --- the log: entries of every kind --- */

static bool with_exceptions(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1)) { /* device 0 trains alone and gives it up */
        uint8_t leaf[TACIT_HASH_BYTES], ending[TACIT_HASH_BYTES];
        Tacit__Reserve r = TACIT__RESERVE__INIT;
        Tacit__Entry o = TACIT__ENTRY__INIT;
        Tacit__Abandon b = TACIT__ABANDON__INIT;
        world_fill_local(w, &r, 0x33);
        world_price_local(w, &r, 0, true);
        world_push_local(w, 0, &r, leaf);
        o.body_case = TACIT__ENTRY__BODY_ABANDON;
        o.abandon = &b;
        b.reserve_hash = tacit_field_of(leaf, sizeof leaf);
        b.reason = (char *)(uintptr_t) "cancelled";
        w->hook = NULL;
        world_own(w, &o, -1, 0, ending);
        w->hook = with_exceptions;
    }
    if (AT(UPDATE, 1, 1)) {
        e->update->accepted = false;
        e->update->reason = (char *)(uintptr_t) "norm";
    }
    if (AT(AGGREGATE, 1, -1))
        leave_out(w, e->aggregate, 1);
    return true;
}

static void push_renewal(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Renew b = TACIT__RENEW__INIT;
    uint8_t digest[TACIT_HASH_BYTES];
    e.body_case = TACIT__ENTRY__BODY_RENEW;
    e.renew = &b;
    b.certificate_digest = filled(digest, sizeof digest, 0x99);
    push_about(w, 0, &e);
}

static void push_rollback(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__AdapterRolledBack b = TACIT__ADAPTER_ROLLED_BACK__INIT;
    uint8_t lineage[16];
    e.body_case = TACIT__ENTRY__BODY_ROLLED_BACK;
    e.rolled_back = &b;
    b.lineage = filled(lineage, sizeof lineage, 0x11);
    b.from_version = 3;
    b.to_version = 2;
    b.reason = (char *)(uintptr_t) "operator";
    world_push(w, &e, w->log, NULL);
}

static void push_lost(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__AccountLost b = TACIT__ACCOUNT_LOST__INIT;
    uint8_t leaf[TACIT_HASH_BYTES];
    e.body_case = TACIT__ENTRY__BODY_ACCOUNT_LOST;
    e.account_lost = &b;
    b.epsilon_counted = w->policy.epsilon_cap;
    world_own(w, &e, -1, 2, leaf);
}

static void make_log(world *w)
{
    w->hook = with_exceptions;
    world_log(w);
    w->hook = NULL;
    push_renewal(w);
    push_policy(w, 0, 2.5, w->policy.delta, NULL);
    push_policy(w, 0, 3.5, w->policy.delta, w->policy_key);
    push_rollback(w);
    push_lost(w);
    push_clone(w, 2);
    push_revoke(w, 1);
}

/* Keys and entries are the same in every run: a process makes them once. */
static tacit_status shared_world(world **out, const char *keys, tacit_error *err)
{
    static world w;
    tacit_status status = TACIT_OK;
    if (!w.count) {
        status = fault_world(&w, keys, err);
        if (status == TACIT_OK)
            make_log(&w);
    }
    *out = &w;
    return status;
}

/* --- steps --- */

static tacit_status path_of(const fault_run *run, const char *name, char path[512],
                            tacit_error *err)
{
    return tacit_file_join(path, 512, run->dir, name, err);
}

static void session_close(session *s)
{
    tacit_ledger_close(s->ledger);
    tacit_database_close(s->db);
    s->ledger = NULL;
    s->db = NULL;
}

/* The key in force is the new one after its rotation. */
static tacit_status session_open(session *s, const fault_run *run)
{
    char path[512];
    session_close(s);
    tacit_status status = path_of(run, "server.db", path, s->err);
    if (status == TACIT_OK)
        status = tacit_database_open(&s->db, path, s->err);
    if (status == TACIT_OK)
        status = tacit_ledger_open(&s->ledger, s->db, WORLD_ORIGIN, s->w->log, s->err);
    if (status == TACIT_INTEGRITY)
        status = tacit_ledger_open(&s->ledger, s->db, WORLD_ORIGIN, s->w->stranger, s->err);
    return status;
}

/* What leaves the server once a commit is durable. */
static tacit_status tell_checkpoint(session *s, uint64_t size)
{
    uint8_t root[TACIT_HASH_BYTES];
    char hex[2 * TACIT_HASH_BYTES + 1];
    tacit_status status = tacit_ledger_root(s->ledger, size, root, s->err);
    if (status != TACIT_OK)
        return status;
    tacit_hex(hex, root, sizeof root);
    fault_tell("checkpoint %llu %s", (unsigned long long)size, hex);
    return TACIT_OK;
}

static tacit_status append_marked(session *s, const uint8_t *bytes, size_t size)
{
    tacit_status status = tacit_database_mark(s->db, s->err);
    if (status == TACIT_OK)
        status = tacit_ledger_append(s->ledger, bytes, size, NULL, NULL, s->err);
    if (status == TACIT_OK)
        return tacit_database_keep(s->db, s->err);
    tacit_database_undo(s->db);
    return status;
}

/* Entries from .. to - 1 in one commit, before them one that is refused and leaves nothing. */
static tacit_status append_group(session *s, size_t from, size_t to)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    tacit_error refused;
    session other = *s;
    other.err = &refused;
    tacit_status status = append_marked(&other, (const uint8_t *)"nothing", 7);
    if (status != TACIT_BAD_INPUT)
        return tacit_fail(s->err, status == TACIT_OK ? TACIT_FAILED : status, "%s",
                          refused.message);
    status = TACIT_OK;
    for (size_t i = from; i < to && status == TACIT_OK; i++)
        status = append_marked(s, s->w->entry[i].bytes, s->w->entry[i].size);
    if (status == TACIT_OK)
        status = tacit_ledger_checkpoint(s->ledger, note, &size, s->err);
    return status;
}

static tacit_status commit_group(session *s, size_t from, size_t to)
{
    uint64_t size;
    tacit_status status = tacit_ledger_size(s->ledger, &size, s->err);
    if (status == TACIT_OK && size < to) {
        status = tacit_database_begin(s->db, s->err);
        if (status == TACIT_OK)
            status = append_group(s, from, to);
        if (status == TACIT_OK)
            status = tacit_database_commit(s->db, s->err);
        else
            tacit_database_rollback(s->db);
    }
    return status == TACIT_OK ? tell_checkpoint(s, to) : status;
}

static tacit_status export_to(session *s, const char *name)
{
    char path[512];
    tacit_status status = path_of(s->run, name, path, s->err);
    if (status == TACIT_OK)
        status = tacit_export_write(s->ledger, NULL, path, s->err);
    if (status == TACIT_OK)
        fault_tell("export");
    return status;
}

/* A failed one leaves the object with the new key: it is opened again. */
static tacit_status rotate(session *s)
{
    tacit_status opened = s->ledger ? TACIT_OK : session_open(s, s->run);
    if (opened != TACIT_OK)
        return opened;
    if (memcmp(tacit_ledger_key(s->ledger)->key, tacit_identity_sign_key(s->w->stranger),
               TACIT_SIGN_KEY_BYTES) != 0) {
        tacit_status status = tacit_database_begin(s->db, s->err);
        if (status == TACIT_OK)
            status = tacit_ledger_rotate(s->ledger, s->w->stranger, s->err);
        if (status == TACIT_OK)
            status = tacit_database_commit(s->db, s->err);
        if (status != TACIT_OK) {
            session again = *s;
            again.err = &(tacit_error){0};
            tacit_database_rollback(s->db);
            if (session_open(&again, s->run) != TACIT_OK)
                session_close(&again);
            s->db = again.db;
            s->ledger = again.ledger;
            return status;
        }
    }
    return tell_checkpoint(s, s->w->count + 1);
}

static tacit_status stop(session *s)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ServerStop b = TACIT__SERVER_STOP__INIT;
    e.body_case = TACIT__ENTRY__BODY_SERVER_STOP;
    e.server_stop = &b;
    b.reason = (char *)(uintptr_t) "operator";
    tacit_status status = tacit_database_begin(s->db, s->err);
    if (status == TACIT_OK)
        status = tacit_ledger_record(s->ledger, &e, NULL, NULL, s->err);
    if (status == TACIT_OK)
        status = tacit_ledger_checkpoint(s->ledger, note, &size, s->err);
    if (status == TACIT_OK)
        status = tacit_database_commit(s->db, s->err);
    else
        tacit_database_rollback(s->db);
    return status == TACIT_OK ? tell_checkpoint(s, s->w->count + 2) : status;
}

/* --- the script --- */

#define STEP(call) FAULT_STEP(s->run, s->err, call)

static tacit_status script(session *s)
{
    size_t group = 1;
    STEP(session_open(s, s->run));
    for (size_t at = 0; at < s->w->count; at += group, group = 1 + at % 5) {
        size_t end = at + group < s->w->count ? at + group : s->w->count;
        STEP(commit_group(s, at, end));
        if (at < FIRST_EXPORT && end >= FIRST_EXPORT)
            STEP(export_to(s, "export"));
    }
    STEP(export_to(s, "export"));
    STEP(rotate(s));
    STEP(stop(s));
    STEP(export_to(s, "export"));
    return TACIT_OK;
}

static tacit_status run_script(fault_run *run, tacit_error *err)
{
    session s = {.run = run, .err = err};
    tacit_status status = shared_world(&s.w, run->keys, err);
    if (status == TACIT_OK)
        status = script(&s);
    session_close(&s);
    return status;
}

/* --- what was told holds --- */

/* The checkpoint of the line is one of the log: its root, and a proof that the newest follows. */
static tacit_status checkpoint_holds(session *s, const char *line)
{
    unsigned long long old;
    char hex[65] = "", note[TACIT_CHECKPOINT_MAX];
    uint8_t root[TACIT_HASH_BYTES];
    uint64_t size;
    tacit_checkpoint newest;
    tacit_proof proof;
    if (sscanf(line, "checkpoint %llu %64s", &old, hex) != 2 || !tacit_unhex(root, 32, hex))
        return tacit_fail(s->err, TACIT_FAILED, "told: %s", line);
    tacit_status status = tacit_ledger_last_checkpoint(s->ledger, note, &size, s->err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_verify(&newest, note, strlen(note), tacit_ledger_key(s->ledger),
                                         s->err);
    if (status == TACIT_OK && newest.size < old)
        status = tacit_fail(s->err, TACIT_FAILED, "told '%s', the log has %llu", line,
                            (unsigned long long)newest.size);
    if (status == TACIT_OK)
        status = tacit_ledger_consistency(s->ledger, old, newest.size, &proof, s->err);
    if (status == TACIT_OK)
        status =
            tacit_merkle_verify_consistency(old, root, newest.size, newest.root, &proof, s->err);
    return status;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Of every name and every byte below a folder. */
static tacit_status folder_digest(uint8_t out[TACIT_DIGEST_BYTES], const char *dir,
                                  tacit_error *err)
{
    char *const roots[] = {(char *)(uintptr_t)dir, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    tacit_buffer all = {0};
    tacit_status status = walk ? TACIT_OK : tacit_fail(err, TACIT_IO, "%s: cannot be read", dir);
    for (FTSENT *item; status == TACIT_OK && (item = fts_read(walk));) {
        uint8_t *data;
        size_t size;
        if (item->fts_info != FTS_F)
            continue;
        status = tacit_file_read(item->fts_path, (size_t)1 << 24, &data, &size, err);
        if (status != TACIT_OK)
            break;
        status = tacit_buffer_append(&all, item->fts_path, item->fts_pathlen + (size_t)1);
        if (status == TACIT_OK)
            status = tacit_buffer_append(&all, data, size);
        free(data);
    }
    if (status == TACIT_OK)
        tacit_digest(out, all.data, all.size);
    if (walk)
        fts_close(walk);
    tacit_buffer_free(&all);
    return status;
}

/* What an auditor finds in an export. The same bytes are audited once. */
static tacit_status audit_holds(const tacit_export *e, const char *dir, tacit_error *err)
{
    static uint8_t clean[8][TACIT_DIGEST_BYTES];
    static size_t count;
    uint8_t digest[TACIT_DIGEST_BYTES];
    const tacit_audit_options options = {0};
    tacit_audit audit = {0};
    tacit_status status = folder_digest(digest, dir, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        if (memcmp(clean[i], digest, sizeof digest) == 0)
            return TACIT_OK;
    status = tacit_audit_run(&audit, e, &options, err);
    if (status == TACIT_OK && audit.violation_count)
        status = tacit_fail(err, TACIT_FAILED, "audit: %s: %s", audit.violations[0].kind,
                            audit.violations[0].detail);
    if (status == TACIT_OK && count < sizeof clean / sizeof clean[0])
        memcpy(clean[count++], digest, sizeof digest);
    tacit_audit_free(&audit);
    return status;
}

/* A whole export of at least `size` entries, under a checkpoint of its own. */
static tacit_status export_holds(const fault_run *run, uint64_t size, tacit_error *err)
{
    char path[512];
    tacit_export e;
    tacit_checkpoint c;
    tacit_status status = path_of(run, "export", path, err);
    if (status == TACIT_OK)
        status = tacit_export_read(&e, path, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_checkpoint_verify(&c, e.checkpoint, e.checkpoint_size, &e.log_key, err);
    if (status == TACIT_OK && (c.size != e.count || c.size < size))
        status = tacit_fail(
            err, TACIT_FAILED, "the export holds %llu entries, its checkpoint %llu, told were %llu",
            (unsigned long long)e.count, (unsigned long long)c.size, (unsigned long long)size);
    if (status == TACIT_OK)
        status = audit_holds(&e, path, err);
    tacit_export_free(&e);
    return status;
}

static tacit_status lines_hold(session *s, const fault_run *run, char *told)
{
    char *rest = NULL;
    unsigned long long size = 0, exported = 0;
    tacit_status status = TACIT_OK;
    for (char *line = strtok_r(told, "\n", &rest); line && status == TACIT_OK;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strcmp(line, "export") == 0) {
            exported = size;
            continue;
        }
        sscanf(line, "checkpoint %llu", &size);
        status = checkpoint_holds(s, line);
    }
    if (status == TACIT_OK && exported)
        status = export_holds(run, exported, s->err);
    return status;
}

static tacit_status holds(const fault_run *run, const char *told, tacit_error *err)
{
    session s = {.err = err};
    char *lines = strdup(told);
    if (!lines)
        abort();
    tacit_status status = shared_world(&s.w, run->keys, err);
    if (status == TACIT_OK && *lines)
        status = session_open(&s, run);
    if (status == TACIT_OK)
        status = lines_hold(&s, run, lines);
    session_close(&s);
    free(lines);
    return status;
}

int main(int argc, char **argv)
{
    const fault_script ledger = {.name = "ledger",
                                 .sparse = 6,
                                 .make_keys = fault_make_keys,
                                 .run = run_script,
                                 .holds = holds};
    return fault_main(argc, argv, &ledger);
}
