#include "server/round_terms.h"

#include "common/message.h"
#include "common/text.h"
#include "engine/plan_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

tacit_status round_check_base(const server *s, const Tacit__Plan *plan, tacit_error *err)
{
    char expected[17], found[17];
    const uint8_t *own = tacit_model_base_digest(s->model);
    if (tacit_bytes_are(plan->base_digest, TACIT_DIGEST_BYTES) &&
        memcmp(plan->base_digest.data, own, TACIT_DIGEST_BYTES) == 0)
        return TACIT_OK;
    tacit_hex(expected, plan->base_digest.data, plan->base_digest.len < 8 ? 0 : 8);
    tacit_hex(found, own, 8);
    return tacit_fail(err, TACIT_INTEGRITY,
                      "its plan is of base %s..., the model of server.yaml is %s...; restore that "
                      "model or use 'round cancel'",
                      expected, found);
}

#define OVER_SELECTION 1.3

size_t round_asks(uint32_t cohort)
{
    return (size_t)ceil(OVER_SELECTION * (double)cohort);
}

tacit_status round_check_room(const server *s, const Tacit__Plan *plan, tacit_error *err)
{
    uint64_t one = intake_sealed_bound(plan), most = s->config.uploads_max_mib << 20, all;
    size_t devices = round_asks(plan->cohort);
    if (one > SERVER_UPLOAD_MAX)
        return tacit_fail(
            err, TACIT_USAGE,
            "an update of %u values has up to %llu bytes when sealed, the server takes "
            "at most %llu; lower rank or take fewer targets",
            plan->trainable_values, (unsigned long long)one, (unsigned long long)SERVER_UPLOAD_MAX);
    if (!__builtin_mul_overflow(one, devices, &all) && all <= most)
        return TACIT_OK;
    return tacit_fail(err, TACIT_USAGE,
                      "%zu updates of up to %llu bytes may come in a round, uploads.max_mib in "
                      "server.yaml allows %llu bytes; raise it or lower cohort",
                      devices, (unsigned long long)one, (unsigned long long)most);
}

static tacit_status price_next(const lineage_row *l, tacit_ledger_price *out, tacit_error *err)
{
    Tacit__Schedule *schedule = NULL;
    Tacit__Plan *common = NULL;
    tacit_status status = TACIT_UNPACK(&schedule, tacit__schedule, l->schedule, l->schedule_size,
                                       TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&common, tacit__plan, l->common, l->common_size,
                              TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        status =
            tacit_ledger_price_make(out, schedule, l->next_round, common->trainable_values, err);
    tacit_message_free(common);
    tacit_message_free(schedule);
    return status;
}

tacit_status round_next_price(const server *s, tacit_ledger_price *out, bool *has, tacit_error *err)
{
    lineage_row l = {0};
    *has = false;
    tacit_status status = lineage_running(s->db, &l, err);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    if (status == TACIT_OK && l.next_round < l.rounds) {
        status = price_next(&l, out, err);
        *has = status == TACIT_OK;
    }
    lineage_row_free(&l);
    return status;
}

tacit_status round_terms_load(round_terms *out, server *s, const uint8_t round_id[ROUND_ID_BYTES],
                              tacit_error *err)
{
    *out = (round_terms){0};
    tacit_status status;
    TACIT_TRY(round_get(s->db, round_id, &out->round, err), done);
    TACIT_TRY(round_secret(s->db, round_id, &out->secret, err), done);
    TACIT_TRY(TACIT_UNPACK(&out->plan, tacit__plan, out->round.plan, out->round.plan_size,
                           TACIT_MESSAGE_ENTRY_MAX, err),
              done);
    TACIT_TRY(round_check_base(s, out->plan, err), done);
    TACIT_TRY(tacit_trainable_spec_from_message(&out->spec, out->plan->adapter, err), done);
    TACIT_TRY(tacit_layout_make(&out->layout, s->model, &out->spec, err), done);
    if (out->layout.values != out->plan->trainable_values)
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "round: its plan has %u trainable values, the model gives %zu",
                            out->plan->trainable_values, out->layout.values);
done:
    if (status != TACIT_OK)
        round_terms_free(out);
    return status;
}

void round_terms_free(round_terms *t)
{
    round_row_free(&t->round);
    tacit_message_free(t->plan);
    tacit_secret_free(&t->secret);
    tacit_layout_free(&t->layout);
    t->plan = NULL;
}

intake_terms round_terms_for(const round_terms *t, const uint8_t *signer_key)
{
    return (intake_terms){.plan = t->plan,
                          .plan_hash = t->round.plan_hash,
                          .layout_hash = t->layout.hash,
                          .signer_key = signer_key,
                          .secret = &t->secret};
}

static tacit_status named_by_digest(const server *s, const char *folder, const char *ending,
                                    const uint8_t digest[TACIT_DIGEST_BYTES],
                                    char out[SERVER_PATH_MAX], tacit_error *err)
{
    char hex[2 * TACIT_DIGEST_BYTES + 1], name[128];
    tacit_hex(hex, digest, TACIT_DIGEST_BYTES);
    snprintf(name, sizeof name, "%s/%s.%s", folder, hex, ending);
    return server_path(s, out, name, err);
}

tacit_status round_upload_path(const server *s, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                               char out[SERVER_PATH_MAX], tacit_error *err)
{
    return named_by_digest(s, "uploads", "sealed", reserve_hash, out, err);
}

tacit_status round_adapter_path(const server *s, const uint8_t digest[TACIT_DIGEST_BYTES],
                                char out[SERVER_PATH_MAX], tacit_error *err)
{
    return named_by_digest(s, "adapters", "gguf", digest, out, err);
}
