/* Opening a round: its plan from the lineage's schedule, its cohort by the kernel's generator. */
#include "server/round_steps.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "common/seal.h"
#include "common/text.h"
#include "privacy/entry.h"
#include "server/device_store.h"
#include "server/registry_store.h"
#include "server/server_events.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

typedef struct opening {
    server *server;
    const lineage_row *lineage;
    Tacit__Schedule *schedule;
    Tacit__Plan *plan; /* the lineage's common part; the round's fields are filled in below */
    uint8_t key[TACIT_EXCHANGE_BYTES];
    tacit_secret secret;
    round_row row;
    uint8_t (*device)[TACIT_DEVICE_BYTES]; /* active ones, then shuffled */
    size_t devices, capacity;
    size_t unwilling; /* whose policy refuses the plan, or who said so */
    size_t exhausted; /* whose account does not hold what it costs */
    tacit_ledger_price price;
    bool opened;
} opening;

/* Asks only those that are active, whose declared policy takes the plan, and whose account in the
 * log holds its cost: the others would refuse it and be waited for until the deadline. */
static tacit_status take_active(void *ctx, const device_row *row, tacit_error *err)
{
    opening *o = ctx;
    tacit_ledger_device logged;
    tacit_error why;
    if (row->revoked || row->frozen)
        return TACIT_OK;
    tacit_status status = tacit_ledger_device_get(o->server->ledger, row->device, &logged, err);
    if (status != TACIT_OK || logged.revoked || logged.frozen)
        return status;
    bool declines =
        row->has_declined && memcmp(row->declined, o->lineage->lineage, sizeof row->declined) == 0;
    if (declines || tacit_policy_check(&logged.policy, o->plan, &why) != TACIT_OK) {
        o->unwilling++;
        return TACIT_OK;
    }
    tacit_ledger_answer answer;
    status = tacit_ledger_affords(o->server->ledger, row->device, &o->price, &answer, err);
    if (status != TACIT_OK || answer.limit != TACIT_LIMIT_NONE) {
        o->exhausted += status == TACIT_OK;
        return status;
    }
    if (o->devices == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 64;
        void *grown = realloc(o->device, capacity * sizeof *o->device);
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for %zu devices", capacity);
        o->device = grown;
        o->capacity = capacity;
    }
    memcpy(o->device[o->devices++], row->device, TACIT_DEVICE_BYTES);
    return TACIT_OK;
}

/* Fisher and Yates: the first `n` are a uniform choice. */
static void shuffle(opening *o, size_t n)
{
    for (size_t i = 0; i < n && i + 1 < o->devices; i++) {
        size_t j = i + randombytes_uniform((uint32_t)(o->devices - i));
        uint8_t kept[TACIT_DEVICE_BYTES];
        memcpy(kept, o->device[i], sizeof kept);
        memcpy(o->device[i], o->device[j], sizeof kept);
        memcpy(o->device[j], kept, sizeof kept);
    }
}

/* The adapter that training starts from: the lineage's current one. */
static tacit_status set_parent(opening *o, tacit_error *err)
{
    adapter_row parent = {0};
    tacit_status status = registry_current(o->server->db, o->lineage->lineage, &parent, err);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    if (status != TACIT_OK)
        return status;
    uint8_t *digest = malloc(TACIT_DIGEST_BYTES);
    if (digest) {
        memcpy(digest, parent.file_digest, TACIT_DIGEST_BYTES);
        o->plan->parent_version = parent.version;
        o->plan->parent_digest = (ProtobufCBinaryData){TACIT_DIGEST_BYTES, digest};
    } else {
        status = tacit_fail(err, TACIT_NO_MEMORY, "round: no memory");
    }
    registry_row_free(&parent);
    return status;
}

/* Packs and logs the plan; fills o->row. Fields that point outside the plan's own memory are taken
 * out again before it is freed. */
static tacit_status log_plan(opening *o, tacit_error *err)
{
    Tacit__Plan *p = o->plan;
    Tacit__PlanLogged body = TACIT__PLAN_LOGGED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    p->round_id = tacit_field_of(o->row.round_id, ROUND_ID_BYTES);
    p->round_index = o->row.index;
    p->deadline_ms = o->row.deadline_ms;
    p->aggregator_key = tacit_field_of(o->key, sizeof o->key);
    tacit_status status =
        tacit_message_pack(p, TACIT_MESSAGE_ENTRY_MAX, &o->row.plan, &o->row.plan_size, err);
    p->round_id = p->aggregator_key = (ProtobufCBinaryData){0, NULL};
    if (status != TACIT_OK)
        return status;
    tacit_digest(o->row.plan_hash, o->row.plan, o->row.plan_size);
    body.plan = tacit_field_of(o->row.plan, o->row.plan_size);
    entry.body_case = TACIT__ENTRY__BODY_PLAN;
    entry.plan = &body;
    return tacit_ledger_record(o->server->ledger, &entry, &o->row.plan_index, NULL, err);
}

static tacit_status open_round(void *ctx, tacit_error *err)
{
    opening *o = ctx;
    tacit_database *db = o->server->db;
    tacit_status status = device_each(db, take_active, o, err);
    if (status != TACIT_OK || o->devices < o->plan->cohort || o->devices == 0)
        return status;
    size_t asked = round_asks(o->plan->cohort);
    if (asked > o->devices)
        asked = o->devices;
    shuffle(o, asked);
    TACIT_TRY(set_parent(o, err), done);
    TACIT_TRY(log_plan(o, err), done);
    TACIT_TRY(round_insert(db, &o->row, &o->secret, err), done);
    for (size_t i = 0; i < asked; i++)
        TACIT_TRY(round_member_insert(db, o->row.round_id, o->device[i], err), done);
    o->row.asked = (uint32_t)asked;
    o->opened = true;
done:
    return status;
}

static tacit_status prepare(opening *o, tacit_error *err)
{
    const lineage_row *l = o->lineage;
    uint64_t now = tacit_clock_wall_ms();
    tacit_status status = TACIT_UNPACK(&o->schedule, tacit__schedule, l->schedule, l->schedule_size,
                                       TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&o->plan, tacit__plan, l->common, l->common_size,
                              TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        status = round_check_base(o->server, o->plan, err);
    if (status == TACIT_OK)
        status = round_check_room(o->server, o->plan, err);
    if (status == TACIT_OK && l->next_round >= o->schedule->n_rounds)
        status = tacit_fail(err, TACIT_CONFLICT, "the lineage has no round %u", l->next_round);
    if (status == TACIT_OK) /* lent; taken out again before the plan is freed */
        o->plan->mechanism = o->schedule->rounds[l->next_round]->mechanism;
    if (status == TACIT_OK)
        status = tacit_ledger_price_make(&o->price, o->schedule, l->next_round,
                                         o->plan->trainable_values, err);
    if (status == TACIT_OK)
        status = tacit_seal_keypair(o->key, &o->secret, err);
    o->row = (round_row){.index = l->next_round,
                         .state = ROUND_COLLECTING,
                         .opened_ms = now,
                         .deadline_ms = now + l->deadline_s * 1000,
                         .loss = NAN,
                         .accuracy = NAN};
    memcpy(o->row.lineage, l->lineage, LINEAGE_BYTES);
    randombytes_buf(o->row.round_id, ROUND_ID_BYTES);
    return status;
}

/* What was said of this round already, and still holds. */
static bool told_so(const server *s, const opening *o)
{
    return s->told.waiting.round == (uint64_t)o->lineage->next_round + 1 &&
           memcmp(s->told.waiting.lineage, o->lineage->lineage, LINEAGE_BYTES) == 0 &&
           s->told.waiting.devices == o->devices && s->told.waiting.unwilling == o->unwilling &&
           s->told.waiting.exhausted == o->exhausted;
}

/* Again whenever a count changes: who watches must see why nothing happens. */
static void tell_waiting(const opening *o)
{
    server *s = o->server;
    char lineage[2 * LINEAGE_BYTES + 1];
    if (told_so(s, o))
        return;
    memcpy(s->told.waiting.lineage, o->lineage->lineage, LINEAGE_BYTES);
    s->told.waiting.round = (uint64_t)o->lineage->next_round + 1;
    s->told.waiting.devices = o->devices;
    s->told.waiting.unwilling = o->unwilling;
    s->told.waiting.exhausted = o->exhausted;
    tacit_log_info("waiting: the next round asks for %u devices; %zu are active and take its plan, "
                   "%zu refuse it by their policy, the budget of %zu does not hold it",
                   o->plan->cohort, o->devices, o->unwilling, o->exhausted);
    tacit_hex(lineage, o->lineage->lineage, LINEAGE_BYTES);
    server_events_add(s->events,
                      json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "kind", "waiting", "lineage",
                                lineage, "round", (json_int_t)o->lineage->next_round + 1, "devices",
                                (json_int_t)o->devices, "unwilling", (json_int_t)o->unwilling,
                                "exhausted", (json_int_t)o->exhausted, "cohort",
                                (json_int_t)o->plan->cohort));
}

tacit_status round_open_next(server *s, const lineage_row *lineage, bool *opened, tacit_error *err)
{
    opening o = {.server = s, .lineage = lineage};
    tacit_status status = prepare(&o, err);
    if (status == TACIT_OK)
        status = writer_run(s->writer, open_round, NULL, &o, err);
    *opened = status == TACIT_OK && o.opened;
    if (*opened) {
        tacit_log_info("round %u of %u opened: %u devices asked, quorum %u",
                       lineage->next_round + 1, lineage->rounds, o.row.asked, o.plan->quorum);
        s->told.waiting.round = 0;
    } else if (status == TACIT_OK) {
        tell_waiting(&o);
    }
    if (o.plan)
        o.plan->mechanism = NULL;
    tacit_ledger_price_free(&o.price);
    tacit_message_free(o.plan);
    tacit_message_free(o.schedule);
    tacit_secret_free(&o.secret);
    round_row_free(&o.row);
    free(o.device);
    return status;
}
