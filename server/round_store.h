/* Lineages, rounds, cohorts and updates in the database (tables `round_*`).
 * Everything here runs on the writer's thread. */
#ifndef TACIT_SERVER_ROUND_STORE_H
#define TACIT_SERVER_ROUND_STORE_H

#include "common/database.h"
#include "common/digest.h"
#include "common/identity.h"
#include "common/secret.h"

#define ROUND_ID_BYTES 16
#define LINEAGE_BYTES 16
#define ROUND_REASON_MAX 200

typedef enum round_state {
    ROUND_COLLECTING = 1, /* the plan is logged; reserves and updates come in */
    ROUND_AGGREGATING,    /* the accepted set is fixed */
    ROUND_EVALUATING,     /* the sum is logged, the candidate's file is there */
    ROUND_PUBLISHED,
    ROUND_FAILED
} round_state;

const char *round_state_name(round_state state); /* "collecting", ... */
bool round_state_is_final(round_state state);

tacit_status round_store_open(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;

/* --- Lineages --- */

typedef enum lineage_state { LINEAGE_RUNNING = 1, LINEAGE_DONE, LINEAGE_CANCELLED } lineage_state;

const char *lineage_state_name(lineage_state state);

typedef struct lineage_row {
    uint8_t lineage[LINEAGE_BYTES];
    lineage_state state;
    uint8_t *schedule; /* Schedule bytes as logged */
    size_t schedule_size;
    uint8_t schedule_hash[TACIT_DIGEST_BYTES];
    uint8_t *common; /* a Plan with what all rounds share: optimizer, cohort, quorum, ... */
    size_t common_size;
    uint64_t deadline_s; /* of collecting, from the opening of a round */
    uint32_t next_round; /* index of the next one to open */
    uint32_t rounds;
    uint64_t created_ms;
} lineage_row;

void lineage_row_free(lineage_row *row);
tacit_status lineage_insert(tacit_database *db, const lineage_row *row,
                            tacit_error *err) TACIT_MUST_CHECK;
/* The one that runs; TACIT_NOT_FOUND when none does. */
tacit_status lineage_running(tacit_database *db, lineage_row *out,
                             tacit_error *err) TACIT_MUST_CHECK;
tacit_status lineage_get(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES], lineage_row *out,
                         tacit_error *err) TACIT_MUST_CHECK;
tacit_status lineage_set(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                         lineage_state state, uint32_t next_round,
                         tacit_error *err) TACIT_MUST_CHECK;

/* --- Rounds --- */

typedef struct round_row {
    uint8_t round_id[ROUND_ID_BYTES];
    uint8_t lineage[LINEAGE_BYTES];
    uint32_t index; /* within the schedule */
    round_state state;
    uint8_t *plan; /* Plan bytes as logged */
    size_t plan_size;
    uint8_t plan_hash[TACIT_DIGEST_BYTES];
    uint64_t plan_index; /* of the PlanLogged entry */
    uint64_t opened_ms, deadline_ms;
    uint64_t closed_ms; /* 0 while it runs */
    uint32_t asked, reserved, accepted, rejected;
    char reason[ROUND_REASON_MAX + 1];         /* of a failure */
    uint8_t result_digest[TACIT_DIGEST_BYTES]; /* from EVALUATING on */
    double loss, accuracy; /* of the candidate on the gate's data; NaN before, or without a gate */
} round_row;

void round_row_free(round_row *row);

/* Inserts a round in state COLLECTING with its aggregator key's secret half. */
tacit_status round_insert(tacit_database *db, const round_row *row, const tacit_secret *secret,
                          tacit_error *err) TACIT_MUST_CHECK;
tacit_status round_get(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES], round_row *out,
                       tacit_error *err) TACIT_MUST_CHECK;
/* The one that has not ended; TACIT_NOT_FOUND when there is none. */
tacit_status round_current(tacit_database *db, round_row *out, tacit_error *err) TACIT_MUST_CHECK;
/* A copy of the plan's bytes as logged, the caller's to free. */
tacit_status round_plan_get(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                            uint8_t **plan, size_t *size, tacit_error *err) TACIT_MUST_CHECK;
/* What most requests need to know of a round, without its plan and counts. */
typedef struct round_brief {
    uint8_t round_id[ROUND_ID_BYTES];
    round_state state;
    uint64_t deadline_ms;
} round_brief;

tacit_status round_brief_get(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                             round_brief *out, tacit_error *err) TACIT_MUST_CHECK;
/* Of the one that has not ended; TACIT_NOT_FOUND when there is none. */
tacit_status round_brief_current(tacit_database *db, round_brief *out,
                                 tacit_error *err) TACIT_MUST_CHECK;
tacit_status round_each(tacit_database *db,
                        tacit_status (*each)(void *ctx, const round_row *row, tacit_error *err),
                        void *ctx, tacit_error *err) TACIT_MUST_CHECK;
/* Those of a lineage whose updates were summed, published or not, in the schedule's order. */
tacit_status round_each_summed(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                               tacit_status (*each)(void *ctx, const round_row *row,
                                                    tacit_error *err),
                               void *ctx, tacit_error *err) TACIT_MUST_CHECK;
/* The secret half of the aggregator key; TACIT_NOT_FOUND once the round closed. */
tacit_status round_secret(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                          tacit_secret *out, tacit_error *err) TACIT_MUST_CHECK;

/* One transition; TACIT_CONFLICT unless the round is in `from`. A final state erases the secret
 * half of the aggregator key and sets closed_ms. */
tacit_status round_move(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                        round_state from, round_state to, const char *reason, uint64_t now_ms,
                        tacit_error *err) TACIT_MUST_CHECK;
tacit_status round_set_result(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                              const uint8_t digest[TACIT_DIGEST_BYTES],
                              tacit_error *err) TACIT_MUST_CHECK;
tacit_status round_set_evaluation(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                  double loss, double accuracy, tacit_error *err) TACIT_MUST_CHECK;

/* --- Cohort --- */

tacit_status round_member_insert(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                 const uint8_t device[TACIT_DEVICE_BYTES],
                                 tacit_error *err) TACIT_MUST_CHECK;
tacit_status round_member_is(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                             const uint8_t device[TACIT_DEVICE_BYTES], bool *is,
                             tacit_error *err) TACIT_MUST_CHECK;

/* How many of the asked devices have not answered and are not waited for: revoked or frozen since,
 * or they declined the plan. */
tacit_status round_members_ended(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                 uint32_t *out, tacit_error *err) TACIT_MUST_CHECK;

/* --- Updates: one per reserve --- */

typedef enum update_state {
    UPDATE_RESERVED = 1, /* the reserve is logged, nothing was sent */
    UPDATE_RECEIVING,    /* size and digest are known, chunks come in */
    UPDATE_ACCEPTED,
    UPDATE_REJECTED,
    UPDATE_ABANDONED
} update_state;

typedef struct update_row {
    uint8_t reserve_hash[TACIT_DIGEST_BYTES];
    uint8_t round_id[ROUND_ID_BYTES];
    uint8_t device[TACIT_DEVICE_BYTES];
    update_state state;
    uint64_t size;                      /* from RECEIVING on */
    uint8_t digest[TACIT_DIGEST_BYTES]; /* of the sealed bytes */
    char reason[32];
    uint64_t entry_index; /* of the UpdateDecision entry */
    uint8_t nonce[32];    /* of the reserve's acknowledgement */
} update_row;

tacit_status update_insert(tacit_database *db, const update_row *row,
                           tacit_error *err) TACIT_MUST_CHECK;
/* TACIT_NOT_FOUND when there is no such reserve. */
tacit_status update_get(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                        update_row *out, tacit_error *err) TACIT_MUST_CHECK;
/* The device's update of a round; TACIT_NOT_FOUND when it has not reserved. */
tacit_status update_of_device(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                              const uint8_t device[TACIT_DEVICE_BYTES], update_row *out,
                              tacit_error *err) TACIT_MUST_CHECK;
tacit_status update_begin(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                          uint64_t size, const uint8_t digest[TACIT_DIGEST_BYTES],
                          tacit_error *err) TACIT_MUST_CHECK;
tacit_status update_end(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                        update_state state, const char *reason, uint64_t entry_index,
                        tacit_error *err) TACIT_MUST_CHECK;
/* Rows of a round in ascending order of the reserve's hash: malloc'ed, the caller's. `state` 0
 * takes all. */
tacit_status update_list(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                         update_state state, update_row **out, size_t *count,
                         tacit_error *err) TACIT_MUST_CHECK;

#endif
