/* A log whose signatures all hold: the input is unsigned entries, each preceded by its length as
 * u16 LE, and whoever must sign one signs it here: the server, or the device that it is about (one
 * of KEYS, by the pseudonym's first byte). Where an entry names a reserve by hash, the hash's first
 * byte counts the reserves so far. So the auditor's checks beyond the signature are reached, and
 * the ledger's: what a ledger takes is no violation that it could have seen.
 *
 * corpus/audit/good holds the standard log of tests/privacy/world.h in this form. */
#include "fuzz_target.h"

#include "common/digest.h"
#include "privacy/audit.h"
#include "privacy/ledger.h"
#include "privacy/report.h"

#include <string.h>
#include <unistd.h>

#define ORIGIN "tacit.example/log"
#define ENTRIES_MAX 64
#define KEYS 4

bool fuzz_accepted;

/* Violations that a log may have although its ledger refused whatever it could see: they are of
 * what devices state or of what the server alone decides. */
static const char *const beyond_the_ledger[] = {
    "non_private",         "insecure_seed",
    "under_policy",        "local_mechanism",
    "local_schedule",      "local_update",
    "schedule_over_cap",   "after_account_lost",
    "aggregate_mismatch",  "aggregate_without_plan",
    "duplicate_aggregate", "below_quorum",
    "bad_manifest",        "manifest_without_aggregate",
    "manifest_chain",      "manifest_epsilon",
    "rollback_unknown",    "round_state",
    "decision_mismatch",   "wrong_start",
    "cap_exceeded",
};

typedef struct signers {
    tacit_identity *log, *device[KEYS];
    tacit_error err;
} signers;

static signers *keys(void)
{
    static signers s;
    if (!s.log) {
        FUZZ_CHECK(tacit_identity_ephemeral(&s.log, &s.err) == TACIT_OK);
        for (size_t i = 0; i < KEYS; i++)
            FUZZ_CHECK(tacit_identity_ephemeral(&s.device[i], &s.err) == TACIT_OK);
    }
    return &s;
}

static size_t key_of(const Tacit__Entry *e)
{
    return e->device.len ? e->device.data[0] % KEYS : 0;
}

/* Keys and signatures that the input cannot know. */
static void give_keys(signers *s, Tacit__Entry *e)
{
    const tacit_identity *device = s->device[key_of(e)];
    if (e->body_case == TACIT__ENTRY__BODY_ENROL && e->enrol->identity_key.len == 32 &&
        e->enrol->policy_signature.len == 64) {
        memcpy(e->enrol->identity_key.data, tacit_identity_sign_key(device), 32);
        (void)!tacit_policy_enrol_sign(e->enrol->policy.data, e->enrol->policy.len,
                                       e->enrol->policy_key.len == 32 ? e->enrol->policy_key.data
                                                                      : NULL,
                                       device, e->enrol->policy_signature.data, &s->err);
    }
    if (e->body_case == TACIT__ENTRY__BODY_SERVER_START && e->server_start->log_key.len == 32)
        memcpy(e->server_start->log_key.data, tacit_identity_sign_key(s->log), 32);
    if (e->body_case == TACIT__ENTRY__BODY_PUBLISHED && e->published->signature.len == 64)
        (void)!tacit_identity_sign(s->log, TACIT_MANIFEST_DOMAIN, e->published->manifest.data,
                                   e->published->manifest.len, e->published->signature.data,
                                   &s->err);
}

typedef struct building {
    tacit_span entries[ENTRIES_MAX];
    size_t count;
    uint8_t reserves[ENTRIES_MAX][TACIT_HASH_BYTES];
    size_t reserve_count;
    uint64_t sequence[KEYS];
    uint8_t head[KEYS][TACIT_HASH_BYTES];
} building;

static void name_reserve(const building *b, ProtobufCBinaryData hash)
{
    if (hash.len == TACIT_HASH_BYTES && hash.data[0] < b->reserve_count)
        memcpy(hash.data, b->reserves[hash.data[0]], TACIT_HASH_BYTES);
}

static int by_bytes(const void *x, const void *y)
{
    const ProtobufCBinaryData *a = x, *b = y;
    return a->len == b->len && a->len ? memcmp(a->data, b->data, a->len) : 0;
}

static void name_reserves(const building *b, Tacit__Entry *e)
{
    if (e->body_case == TACIT__ENTRY__BODY_SPEND)
        name_reserve(b, e->spend->reserve_hash);
    if (e->body_case == TACIT__ENTRY__BODY_ABANDON)
        name_reserve(b, e->abandon->reserve_hash);
    if (e->body_case == TACIT__ENTRY__BODY_UPDATE)
        name_reserve(b, e->update->reserve_hash);
    if (e->body_case != TACIT__ENTRY__BODY_AGGREGATE || e->aggregate->n_reserve_hashes == 0)
        return;
    for (size_t i = 0; i < e->aggregate->n_reserve_hashes; i++)
        name_reserve(b, e->aggregate->reserve_hashes[i]);
    qsort(e->aggregate->reserve_hashes, e->aggregate->n_reserve_hashes,
          sizeof *e->aggregate->reserve_hashes, by_bytes);
}

static void keep(building *b, const Tacit__Entry *e, bool own, tacit_span packed,
                 const uint8_t leaf[TACIT_HASH_BYTES])
{
    size_t k = key_of(e);
    b->entries[b->count++] = packed;
    if (!own)
        return;
    b->sequence[k]++;
    memcpy(b->head[k], leaf, sizeof b->head[k]);
    if (e->body_case == TACIT__ENTRY__BODY_RESERVE)
        memcpy(b->reserves[b->reserve_count++], leaf, TACIT_HASH_BYTES);
}

/* Chains of devices are made to fit, so that what they say is looked at. */
static void add_entry(signers *s, building *b, tacit_span bytes)
{
    Tacit__Entry *e;
    uint8_t *packed, leaf[TACIT_HASH_BYTES];
    size_t size;
    if (TACIT_UNPACK(&e, tacit__entry, bytes.data, bytes.size, TACIT_MESSAGE_ENTRY_MAX, &s->err) !=
        TACIT_OK)
        return;
    bool own = tacit_entry_kind_is_device_signed(e->body_case);
    size_t k = key_of(e);
    give_keys(s, e);
    name_reserves(b, e);
    ProtobufCBinaryData previous = e->previous;
    if (own) {
        e->sequence = b->sequence[k] + 1;
        e->previous = tacit_field_of(b->head[k], b->sequence[k] ? sizeof b->head[k] : 0);
    }
    if (tacit_entry_sign(e, own ? s->device[k] : s->log, &packed, &size, leaf, &s->err) == TACIT_OK)
        keep(b, e, own, (tacit_span){packed, size}, leaf);
    e->previous = previous;
    tacit_message_free(e);
}

static void build(signers *s, building *b, const uint8_t *data, size_t size)
{
    tacit_cursor c = tacit_cursor_over(data, size);
    while (tacit_cursor_left(&c) >= 2 && b->count < ENTRIES_MAX) {
        const uint8_t *length = tacit_cursor_take(&c, 2).data;
        tacit_span entry = tacit_cursor_take(&c, (size_t)length[0] | (size_t)length[1] << 8);
        if (c.failed)
            return;
        add_entry(s, b, entry);
    }
}

/* Whatever entries say, the page is whole and holds no tag that is not this program's. */
static void write_report(signers *s, const tacit_audit *audit)
{
    report r;
    markup page = {.status = TACIT_OK}, table = {.status = TACIT_OK};
    FUZZ_CHECK(report_open(&r, audit, NULL, &s->err) == TACIT_OK);
    report_page(&page, &r);
    report_csv(&table, &r);
    report_csv_schedules(&table, &r);
    report_csv_rounds(&table, &r);
    FUZZ_CHECK(markup_end(&page, &s->err) == TACIT_OK && markup_end(&table, &s->err) == TACIT_OK);
    FUZZ_CHECK(!memmem(page.out.data, page.out.size, "<script", 7));
    FUZZ_CHECK(!memchr(page.out.data, '\0', page.out.size));
    markup_free(&page);
    markup_free(&table);
    report_close(&r);
}

/* The audit of these entries under a checkpoint that covers them. */
static void audit(signers *s, const tacit_span *entries, size_t count, tacit_audit *out)
{
    static const tacit_audit_options options = {.keep_points = true};
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint checkpoint = {.origin = ORIGIN, .size = count};
    tacit_merkle_memory tree = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&tree);
    for (size_t i = 0; i < count; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        tacit_merkle_leaf(leaf, entries[i].data, entries[i].size);
        FUZZ_CHECK(tacit_merkle_append(&store, i, leaf, &s->err) == TACIT_OK);
    }
    FUZZ_CHECK(tacit_merkle_root(&store, count, checkpoint.root, &s->err) == TACIT_OK);
    FUZZ_CHECK(tacit_checkpoint_sign(&checkpoint, s->log, note, &s->err) == TACIT_OK);
    tacit_export log = {.entries = (tacit_span *)(uintptr_t)entries,
                        .count = count,
                        .checkpoint = note,
                        .checkpoint_size = strlen(note)};
    FUZZ_CHECK(tacit_note_key_make(&log.log_key, ORIGIN, tacit_identity_sign_key(s->log),
                                   &s->err) == TACIT_OK);
    FUZZ_CHECK(tacit_audit_run(out, &log, &options, &s->err) == TACIT_OK);
    tacit_merkle_memory_free(&tree);
    write_report(s, out);
}

static bool ledger_could_not_see(const char *kind)
{
    for (size_t i = 0; i < sizeof beyond_the_ledger / sizeof beyond_the_ledger[0]; i++)
        if (strcmp(beyond_the_ledger[i], kind) == 0)
            return true;
    return false;
}

static char work_dir[] = "/dev/shm/fuzz-audit-XXXXXX";

static void remove_work_dir(void)
{
    rmdir(work_dir);
}

static void database_file(char out[64], const char *suffix)
{
    snprintf(out, 64, "%s/ledger.db%s", work_dir, suffix);
}

/* A new database in memory's file system. */
static tacit_database *new_database(signers *s)
{
    static bool made;
    tacit_database *db;
    char name[64];
    if (!made)
        FUZZ_CHECK(mkdtemp(work_dir) != NULL && atexit(remove_work_dir) == 0);
    made = true;
    database_file(name, "");
    FUZZ_CHECK(tacit_database_open(&db, name, &s->err) == TACIT_OK);
    return db;
}

static void drop_database(tacit_database *db)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    tacit_database_close(db);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char name[64];
        database_file(name, suffixes[i]);
        unlink(name);
    }
}

/* Only what the ledger takes is in its log; the audit of that finds nothing that it should have
 * refused. */
static void through_the_ledger(signers *s, const building *b)
{
    tacit_database *db = new_database(s);
    tacit_ledger *ledger;
    tacit_audit out;
    tacit_span taken[ENTRIES_MAX];
    size_t count = 0;
    FUZZ_CHECK(tacit_ledger_open(&ledger, db, ORIGIN, s->log, &s->err) == TACIT_OK);
    for (size_t i = 0; i < b->count; i++) {
        uint64_t index;
        if (tacit_ledger_append(ledger, b->entries[i].data, b->entries[i].size, &index, NULL,
                                &s->err) == TACIT_OK &&
            index == count)
            taken[count++] = b->entries[i];
    }
    audit(s, taken, count, &out);
    for (size_t i = 0; i < out.violation_count; i++)
        if (!ledger_could_not_see(out.violations[i].kind)) {
            fprintf(stderr, "the ledger took what is %s: %s\n", out.violations[i].kind,
                    out.violations[i].detail);
            abort();
        }
    tacit_audit_free(&out);
    tacit_ledger_close(ledger);
    drop_database(db);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    signers *s = keys();
    building b = {.count = 0};
    tacit_audit out;
    build(s, &b, data, size);
    audit(s, b.entries, b.count, &out);
    fuzz_accepted = out.violation_count == 0;
    for (size_t i = 0; i < out.device_count; i++)
        FUZZ_CHECK(out.devices[i].epsilon >= 0 && out.devices[i].delta > 0);
    tacit_audit_free(&out);
    through_the_ledger(s, &b);
    for (size_t i = 0; i < b.count; i++)
        free((void *)(uintptr_t)b.entries[i].data);
    return 0;
}
