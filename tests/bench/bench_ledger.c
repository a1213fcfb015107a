/* The log at length.
 *
 *   bench_ledger append SIZE...     time and rows of one append to a log of each size
 *   bench_ledger export DIR COUNT   an export of at least COUNT entries without a violation:
 *                                   10,000 devices, rounds of 1,000, every entry signed
 *   bench_ledger verify DIR         the audit of one, against its signatures alone */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../privacy/world.h"
#include "common/clock.h"
#include "common/database.h"
#include "common/pool.h"
#include "privacy/audit.h"
#include "privacy/export.h"
#include "privacy/ledger.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- append --- */

#define APPENDS 1000 /* timed at each size, in one transaction */

static uint64_t number(tacit_database *db, const char *sql)
{
    tacit_statement *s;
    tacit_error err;
    bool row;
    OK(tacit_statement_begin(db, &s, sql, &err));
    OK(tacit_statement_step(s, &row, &err));
    uint64_t n = tacit_column_u64(s, 0);
    tacit_statement_end(s);
    return n;
}

/* Every entry has a stamp of its own, so none is taken for one that is there already. */
static uint64_t next_stamp(void *ctx)
{
    return ++*(uint64_t *)ctx;
}

static void record_start(tacit_ledger *ledger, const world *w, tacit_error *err)
{
    static char version[] = "bench", origin[] = WORLD_ORIGIN;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ServerStart start = TACIT__SERVER_START__INIT;
    e.body_case = TACIT__ENTRY__BODY_SERVER_START;
    e.server_start = &start;
    start.version = version;
    start.origin = origin;
    start.log_key = tacit_field_of(tacit_identity_sign_key(w->log), TACIT_SIGN_KEY_BYTES);
    OK(tacit_ledger_record(ledger, &e, NULL, NULL, err));
}

static void record_some(tacit_ledger *ledger, tacit_database *db, uint64_t count)
{
    static char reason[] = "bench";
    tacit_error err;
    OK(tacit_database_begin(db, &err));
    for (uint64_t i = 0; i < count; i++) {
        Tacit__Entry e = TACIT__ENTRY__INIT;
        Tacit__ServerStop stop = TACIT__SERVER_STOP__INIT;
        e.body_case = TACIT__ENTRY__BODY_SERVER_STOP;
        e.server_stop = &stop;
        stop.reason = reason;
        OK(tacit_ledger_record(ledger, &e, NULL, NULL, &err));
    }
    OK(tacit_database_commit(db, &err));
}

static double log2_of(uint64_t n)
{
    return log((double)n) / log(2);
}

/* Appends APPENDS entries to a log of `size`, and makes as many checkpoints and proofs. */
static void time_appends(tacit_ledger *ledger, tacit_database *db, uint64_t size, double *first)
{
    tacit_error err;
    char note[TACIT_CHECKPOINT_MAX];
    tacit_proof proof;
    uint64_t at, nodes = number(db, "SELECT count(*) FROM ledger_node");
    double started = now_s();
    record_some(ledger, db, APPENDS);
    double append = (now_s() - started) / APPENDS;
    nodes = number(db, "SELECT count(*) FROM ledger_node") - nodes;
    started = now_s();
    OK(tacit_database_begin(db, &err));
    OK(tacit_ledger_checkpoint(ledger, note, &at, &err));
    OK(tacit_database_commit(db, &err));
    double checkpoint = now_s() - started;
    started = now_s();
    for (uint64_t i = 0; i < APPENDS; i++)
        OK(tacit_ledger_inclusion(ledger, i * (at / APPENDS), at, &proof, &err));
    double prove = (now_s() - started) / APPENDS;
    if (*first == 0)
        *first = append;
    printf("size %9llu  append %6.1f us (%.2f of the first), %.2f nodes written; checkpoint %.0f "
           "us; inclusion proof %.1f us, %zu hashes (log2 %.1f)\n",
           (unsigned long long)size, 1e6 * append, append / *first, (double)nodes / APPENDS,
           1e6 * checkpoint, 1e6 * prove, proof.count, log2_of(at));
    fflush(stdout);
}

static int bench_append(int count, char **sizes)
{
    world w;
    char dir[] = "/tmp/tacit-bench-XXXXXX", path[64], command[80];
    tacit_database *db;
    tacit_ledger *ledger;
    uint64_t stamp = 0, size = 1;
    double first = 0;
    world_init(&w);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/server.db", dir);
    OK(tacit_database_open(&db, path, &w.err));
    OK(tacit_ledger_open(&ledger, db, WORLD_ORIGIN, w.log, &w.err));
    tacit_clock_inject(next_stamp, &stamp);
    OK(tacit_database_begin(db, &w.err));
    record_start(ledger, &w, &w.err);
    OK(tacit_database_commit(db, &w.err));
    for (int i = 0; i < count; i++) {
        uint64_t wanted = strtoull(sizes[i], NULL, 10);
        for (; size < wanted; OK(tacit_ledger_size(ledger, &size, &w.err)))
            record_some(ledger, db, wanted - size < 10000 ? wanted - size : 10000);
        time_appends(ledger, db, size, &first);
        OK(tacit_ledger_size(ledger, &size, &w.err));
    }
    tacit_ledger_close(ledger);
    tacit_database_close(db);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    world_free(&w);
    return system(command);
}

/* --- export --- */

#define DEVICES 10000
#define COHORT 1000
#define ROUNDS_MAX 4000 /* what one schedule's bytes allow */

typedef struct fleet_device {
    tacit_identity *id;
    uint8_t name[TACIT_DEVICE_BYTES], head[TACIT_HASH_BYTES];
    uint64_t sequence;
    unsigned rounds; /* reserved so far */
} fleet_device;

typedef struct packed {
    uint8_t *bytes;
    size_t size;
    uint8_t leaf[TACIT_HASH_BYTES];
} packed;

typedef struct run {
    world w; /* keys, schedule, errors */
    tacit_pool *pool;
    tacit_export_writer *out;
    tacit_merkle_frontier tree;
    fleet_device device[DEVICES];
    double epsilon[ROUNDS_MAX + 1]; /* of a device after that many rounds */
    unsigned rounds;
    /* one round */
    unsigned round;
    uint8_t round_id[16], plan_hash[TACIT_HASH_BYTES], manifest[TACIT_HASH_BYTES];
    packed reserve[COHORT], spend[COHORT], decision[COHORT];
} run;

static const uint8_t lineage[16] = {0x11}, base[TACIT_HASH_BYTES] = {0xba};

static void push(run *r, packed *p)
{
    OK(tacit_export_add(r->out, p->bytes, p->size, &r->w.err));
    tacit_merkle_frontier_append(&r->tree, p->leaf);
    free(p->bytes);
    p->bytes = NULL;
}

static packed sign(Tacit__Entry *e, const tacit_identity *signer)
{
    packed p;
    tacit_error err;
    OK(tacit_entry_sign(e, signer, &p.bytes, &p.size, p.leaf, &err));
    return p;
}

static void push_own(run *r, Tacit__Entry *e)
{
    e->time_ms = r->tree.size;
    packed p = sign(e, r->w.log);
    push(r, &p);
}

/* Noise enough for thousands of rounds under one cap. */
static void bench_mechanism(Tacit__Mechanism *m)
{
    static const world plain;
    world_mechanism(&plain, m);
    m->b = 400000;
    m->q_num = TACIT_Q_ONE / 200;
}

static void push_start(run *r)
{
    static char version[] = "bench", origin[] = WORLD_ORIGIN;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ServerStart s = TACIT__SERVER_START__INIT;
    e.body_case = TACIT__ENTRY__BODY_SERVER_START;
    e.server_start = &s;
    s.version = version;
    s.origin = origin;
    s.log_key = tacit_field_of(tacit_identity_sign_key(r->w.log), 32);
    push_own(r, &e);
}

static void push_enrol(run *r, fleet_device *d, const uint8_t *policy, size_t size)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Enrol b = TACIT__ENROL__INIT;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    OK(tacit_policy_enrol_sign(policy, size, NULL, d->id, signature, &r->w.err));
    e.device = tacit_field_of(d->name, sizeof d->name);
    e.body_case = TACIT__ENTRY__BODY_ENROL;
    e.enrol = &b;
    b.identity_key = tacit_field_of(tacit_identity_sign_key(d->id), 32);
    b.exchange_key = tacit_field_of(tacit_identity_exchange_key(d->id), 32);
    b.policy = tacit_field_of(policy, size);
    b.policy_signature = tacit_field_of(signature, sizeof signature);
    push_own(r, &e);
}

static void push_fleet(run *r)
{
    uint8_t *policy;
    size_t size;
    OK(tacit_policy_pack(&r->w.policy, &policy, &size, &r->w.err));
    for (size_t i = 0; i < DEVICES; i++) {
        fleet_device *d = &r->device[i];
        OK(tacit_identity_ephemeral(&d->id, &r->w.err));
        tacit_store_u64(d->name, i + 1);
        push_enrol(r, d, policy, size);
    }
    free(policy);
}

static Tacit__Schedule *make_schedule(run *r)
{
    static Tacit__Mechanism mechanism = TACIT__MECHANISM__INIT;
    static Tacit__AdapterSpec adapter = TACIT__ADAPTER_SPEC__INIT;
    static Tacit__ScheduledRound round = TACIT__SCHEDULED_ROUND__INIT, *rounds[ROUNDS_MAX];
    static Tacit__Schedule s = TACIT__SCHEDULE__INIT;
    bench_mechanism(&mechanism);
    world_adapter(&adapter);
    round.mechanism = &mechanism;
    for (size_t i = 0; i < r->rounds; i++)
        rounds[i] = &round;
    s.format = 1;
    s.lineage = tacit_field_of(lineage, sizeof lineage);
    s.base_digest = tacit_field_of(base, sizeof base);
    s.adapter = &adapter;
    s.rounds = rounds;
    s.n_rounds = r->rounds;
    s.delta = 1e-5;
    s.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    return &s;
}

static void push_schedule(run *r)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ScheduleLogged b = TACIT__SCHEDULE_LOGGED__INIT;
    r->w.schedule = world_pack(make_schedule(r), &r->w.schedule_size);
    tacit_digest(r->w.schedule_hash, r->w.schedule, r->w.schedule_size);
    e.body_case = TACIT__ENTRY__BODY_SCHEDULE;
    e.schedule = &b;
    b.schedule = tacit_field_of(r->w.schedule, r->w.schedule_size);
    push_own(r, &e);
}

/* What a device's epsilon is after 1, 2, ... rounds: every round is alike. */
static void price_rounds(run *r)
{
    Tacit__Mechanism m = TACIT__MECHANISM__INIT;
    tacit_budget all, one = {0};
    bench_mechanism(&m);
    const tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(m.b),
                               tacit_sampling_rate(m.q_num), m.steps};
    tacit_budget_open(&all, r->w.policy.epsilon_cap, r->w.policy.delta);
    OK(tacit_budget_add(&one, &event, WORLD_VALUES, false, &r->w.err));
    all.schedules = 1;
    for (size_t i = 1; i <= r->rounds; i++) {
        OK(tacit_budget_join(&all, &one, &r->w.err));
        OK(tacit_budget_epsilon(&all, &r->epsilon[i], &r->w.err));
    }
}

static void push_plan(run *r)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__PlanLogged b = TACIT__PLAN_LOGGED__INIT;
    Tacit__Plan p = TACIT__PLAN__INIT;
    Tacit__AdapterSpec adapter = TACIT__ADAPTER_SPEC__INIT;
    Tacit__Optimizer optimizer = TACIT__OPTIMIZER__INIT;
    Tacit__Mechanism mechanism = TACIT__MECHANISM__INIT;
    uint8_t key[32];
    size_t size;
    world_adapter(&adapter);
    bench_mechanism(&mechanism);
    optimizer.kind = TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM;
    optimizer.learning_rate = 0.02;
    p.format = 1;
    p.round_id = tacit_field_of(r->round_id, sizeof r->round_id);
    p.lineage = tacit_field_of(lineage, sizeof lineage);
    p.schedule_hash = tacit_field_of(r->w.schedule_hash, 32);
    p.round_index = r->round;
    p.base_digest = tacit_field_of(base, sizeof base);
    p.parent_version = r->round;
    if (r->round)
        p.parent_digest = tacit_field_of(r->manifest, sizeof r->manifest);
    p.adapter = &adapter;
    p.trainable_values = WORLD_VALUES;
    p.optimizer = &optimizer;
    p.mechanism = &mechanism;
    p.delta = 1e-5;
    p.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    p.norm_bound = 3;
    p.update_scale = 1 << 20;
    p.cohort = p.target = COHORT;
    p.quorum = COHORT / 2;
    p.deadline_ms = 1000;
    p.pad_seconds = 1;
    p.aggregator_key = filled(key, 32, 0xcc);
    p.max_tokens = 256;
    uint8_t *plan = world_pack(&p, &size);
    tacit_digest(r->plan_hash, plan, size);
    e.body_case = TACIT__ENTRY__BODY_PLAN;
    e.plan = &b;
    b.plan = tacit_field_of(plan, size);
    push_own(r, &e);
    free(plan);
}

static packed sign_own(run *r, fleet_device *d, Tacit__Entry *e)
{
    uint8_t previous[TACIT_HASH_BYTES];
    memcpy(previous, d->head, sizeof previous);
    e->time_ms = r->round;
    e->device = tacit_field_of(d->name, sizeof d->name);
    e->sequence = ++d->sequence;
    e->previous = tacit_field_of(previous, d->sequence > 1 ? sizeof previous : 0);
    packed p = sign(e, d->id);
    memcpy(d->head, p.leaf, sizeof d->head);
    return p;
}

static packed make_reserve(run *r, fleet_device *d)
{
    static char version[] = TACIT_ACCOUNTANT_VERSION;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Reserve b = TACIT__RESERVE__INIT;
    Tacit__Mechanism m = TACIT__MECHANISM__INIT;
    bench_mechanism(&m);
    e.body_case = TACIT__ENTRY__BODY_RESERVE;
    e.reserve = &b;
    b.round_id = tacit_field_of(r->round_id, sizeof r->round_id);
    b.plan_hash = tacit_field_of(r->plan_hash, sizeof r->plan_hash);
    b.lineage = tacit_field_of(lineage, sizeof lineage);
    b.kind = m.kind;
    b.unit = m.unit;
    b.neighbours = m.neighbours;
    b.b = m.b;
    b.q_num = m.q_num;
    b.steps = m.steps;
    b.clip_norm = m.clip_norm;
    b.values = WORLD_VALUES;
    b.delta = r->w.policy.delta;
    b.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    b.accountant_version = version;
    b.epsilon_cap = r->w.policy.epsilon_cap;
    b.epsilon_after = r->epsilon[++d->rounds];
    return sign_own(r, d, &e);
}

static packed make_spend(run *r, fleet_device *d, const packed *reserve,
                         const uint8_t digest[TACIT_HASH_BYTES])
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Spend b = TACIT__SPEND__INIT;
    e.body_case = TACIT__ENTRY__BODY_SPEND;
    e.spend = &b;
    b.reserve_hash = tacit_field_of(reserve->leaf, TACIT_HASH_BYTES);
    b.update_digest = tacit_field_of(digest, TACIT_HASH_BYTES);
    return sign_own(r, d, &e);
}

static packed make_decision(const run *r, const fleet_device *d, const packed *reserve,
                            const uint8_t digest[TACIT_HASH_BYTES])
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__UpdateDecision b = TACIT__UPDATE_DECISION__INIT;
    e.time_ms = r->round;
    e.device = tacit_field_of(d->name, sizeof d->name);
    e.body_case = TACIT__ENTRY__BODY_UPDATE;
    e.update = &b;
    b.round_id = tacit_field_of(r->round_id, sizeof r->round_id);
    b.reserve_hash = tacit_field_of(reserve->leaf, TACIT_HASH_BYTES);
    b.update_digest = tacit_field_of(digest, TACIT_HASH_BYTES);
    b.accepted = true;
    return sign(&e, r->w.log);
}

/* One device's part in the round. Consecutive rounds ask consecutive devices. */
static void take_part(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    run *r = ctx;
    fleet_device *d = &r->device[((size_t)r->round * COHORT + i) % DEVICES];
    uint8_t digest[TACIT_HASH_BYTES];
    r->reserve[i] = make_reserve(r, d);
    tacit_digest(digest, r->reserve[i].leaf, TACIT_HASH_BYTES);
    r->spend[i] = make_spend(r, d, &r->reserve[i], digest);
    r->decision[i] = make_decision(r, d, &r->reserve[i], digest);
}

static void push_aggregate(run *r)
{
    static ProtobufCBinaryData hashes[COHORT];
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Aggregate b = TACIT__AGGREGATE__INIT;
    uint8_t result[TACIT_HASH_BYTES];
    for (size_t i = 0; i < COHORT; i++)
        hashes[i] = tacit_field_of(r->reserve[i].leaf, TACIT_HASH_BYTES);
    qsort(hashes, COHORT, sizeof hashes[0], world_by_bytes);
    e.body_case = TACIT__ENTRY__BODY_AGGREGATE;
    e.aggregate = &b;
    b.round_id = tacit_field_of(r->round_id, sizeof r->round_id);
    b.reserve_hashes = hashes;
    b.n_reserve_hashes = COHORT;
    b.quorum = COHORT / 2;
    b.result_digest = filled(result, sizeof result, (uint8_t)r->round);
    push_own(r, &e);
}

static void push_publication(run *r)
{
    static char rule[] = "post-processing";
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__AdapterPublished b = TACIT__ADAPTER_PUBLISHED__INIT;
    Tacit__AdapterManifest m = TACIT__ADAPTER_MANIFEST__INIT;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    size_t size;
    tacit_digest(r->manifest, r->round_id, sizeof r->round_id);
    m.format = 1;
    m.lineage = tacit_field_of(lineage, sizeof lineage);
    m.version = r->round + 1;
    m.parent_version = r->round;
    m.base_digest = tacit_field_of(base, sizeof base);
    m.file_digest = tacit_field_of(r->manifest, sizeof r->manifest);
    m.file_bytes = 4096;
    m.round_id = tacit_field_of(r->round_id, sizeof r->round_id);
    m.evaluation_loss = 1.5;
    m.evaluation_accuracy = 0.5;
    m.epsilon_server = m.epsilon_published = r->epsilon[r->round + 1];
    m.delta = 1e-5;
    m.epsilon_rule = rule;
    uint8_t *bytes = world_pack(&m, &size);
    OK(tacit_identity_sign(r->w.log, TACIT_MANIFEST_DOMAIN, bytes, size, signature, &r->w.err));
    e.body_case = TACIT__ENTRY__BODY_PUBLISHED;
    e.published = &b;
    b.manifest = tacit_field_of(bytes, size);
    b.signature = tacit_field_of(signature, sizeof signature);
    push_own(r, &e);
    free(bytes);
}

static void push_closed(run *r)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__RoundClosed b = TACIT__ROUND_CLOSED__INIT;
    e.body_case = TACIT__ENTRY__BODY_ROUND_CLOSED;
    e.round_closed = &b;
    b.round_id = tacit_field_of(r->round_id, sizeof r->round_id);
    b.published = true;
    push_own(r, &e);
}

static void push_round(run *r)
{
    tacit_store_u64(r->round_id, r->round + 1);
    push_plan(r);
    tacit_pool_run(r->pool, COHORT, take_part, r);
    for (size_t i = 0; i < COHORT; i++)
        push(r, &r->reserve[i]);
    for (size_t i = 0; i < COHORT; i++) {
        push(r, &r->spend[i]);
        push(r, &r->decision[i]);
    }
    push_aggregate(r);
    push_publication(r);
    push_closed(r);
}

static void publish(run *r, const char *dir)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_note_key key = world_log_key(&r->w);
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = r->tree.size};
    tacit_merkle_frontier_root(&r->tree, c.root);
    OK(tacit_checkpoint_sign(&c, r->w.log, note, &r->w.err));
    OK(tacit_export_publish(r->out, note, &key, NULL, &r->w.err));
    tacit_export_close(r->out);
    printf("%s: %llu entries, %u devices, %u rounds of %u\n", dir, (unsigned long long)r->tree.size,
           DEVICES, r->rounds, COHORT);
}

static int bench_export(const char *dir, uint64_t count)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    world_init(&r->w);
    r->w.policy.epsilon_cap = 1e4;
    r->rounds = (unsigned)((count - DEVICES + 3 * COHORT + 3) / (3 * COHORT + 4));
    assert_in_range(r->rounds, 1, ROUNDS_MAX);
    OK(tacit_pool_new(&r->pool, 0, &r->w.err));
    OK(tacit_export_begin(&r->out, dir, &r->w.err));
    push_start(r);
    push_fleet(r);
    push_schedule(r);
    price_rounds(r);
    for (r->round = 0; r->round < r->rounds; r->round++)
        push_round(r);
    publish(r, dir);
    tacit_pool_free(r->pool);
    for (size_t i = 0; i < DEVICES; i++)
        tacit_identity_free(r->device[i].id);
    world_free(&r->w);
    free(r);
    return 0;
}

/* --- verify --- */

#define SIGNATURES 4096

typedef struct signature_run {
    const tacit_span *entry;
    size_t count;
} signature_run;

static void check_signature(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const signature_run *s = ctx;
    const tacit_span *bytes = &s->entry[i % s->count];
    Tacit__SignedEntry *e;
    tacit_error err;
    OK(TACIT_UNPACK(&e, tacit__signed_entry, bytes->data, bytes->size, TACIT_MESSAGE_ENTRY_MAX,
                    &err));
    assert_true(tacit_signature_holds(e->signer.data, TACIT_ENTRY_DOMAIN, e->entry.data,
                                      e->entry.len, e->signature.data));
    tacit_message_free(e);
}

/* Seconds for one signature of the log's first bundle, by all threads. */
static double signature_s(const tacit_export *log, tacit_pool *pool)
{
    tacit_error err;
    tacit_export_cursor c = tacit_export_cursor_over(log);
    OK(tacit_export_next(&c, &err));
    signature_run s = {c.entry, c.count};
    double started = now_s();
    tacit_pool_run(pool, SIGNATURES, check_signature, &s);
    double each = (now_s() - started) / SIGNATURES;
    tacit_export_cursor_free(&c);
    return each;
}

static int bench_verify(const char *dir)
{
    tacit_error err;
    tacit_export log;
    tacit_audit audit;
    tacit_pool *pool;
    struct rusage use;
    OK(tacit_pool_new(&pool, 0, &err));
    OK(tacit_export_read(&log, dir, &err));
    const tacit_audit_options options = {.pool = pool};
    double before = signature_s(&log, pool), started = now_s();
    OK(tacit_audit_run(&audit, &log, &options, &err));
    double took = now_s() - started, each = (before + signature_s(&log, pool)) / 2;
    getrusage(RUSAGE_SELF, &use);
    printf(
        "%llu entries in %.1f s on %zu threads, %.2f times their signatures alone; peak %ld MiB; "
        "%zu violations\n",
        (unsigned long long)audit.entries, took, tacit_pool_threads(pool),
        took / (each * (double)audit.entries), use.ru_maxrss / 1024, audit.violation_count);
    int code = audit.violation_count ? 6 : 0;
    tacit_audit_free(&audit);
    tacit_export_free(&log);
    tacit_pool_free(pool);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "append") == 0)
        return bench_append(argc - 2, argv + 2);
    if (argc == 4 && strcmp(argv[1], "export") == 0 && strtoull(argv[3], NULL, 10) > DEVICES)
        return bench_export(argv[2], strtoull(argv[3], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "verify") == 0)
        return bench_verify(argv[2]);
    fprintf(stderr,
            "usage: bench_ledger append SIZE... | export DIR COUNT | verify DIR (COUNT above %d)\n",
            DEVICES);
    return 2;
}
