/* RESTORED: how the log came from the origin that a device follows to the one in force. */
#include "server/methods.h"

#include "common/message.h"
#include "server/log_proof.h"

#include <stdlib.h>
#include <string.h>

typedef struct restored_step {
    uint8_t *entry;
    size_t entry_size;
    log_proof inclusion, growth;
    Tacit__RestoredStep message;
} restored_step;

typedef struct restored_work {
    Tacit__RestoredRequest *request;
    tacit_ledger_restored since[TACIT_RESTORES_MAX];
    size_t count;
    restored_step *step;
    Tacit__RestoredStep *list[TACIT_RESTORES_MAX];
} restored_work;

tacit_status method_restored_prepare(gate_call *call, tacit_error *err)
{
    restored_work *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "restored: no memory");
    call->own = w;
    return TACIT_UNPACK(&w->request, tacit__restored_request, call->received.request.body.data,
                        call->received.request.body.size, 1024, err);
}

tacit_status method_restored_act(gate_call *call, tacit_error *err)
{
    restored_work *w = call->own;
    tacit_status status = tacit_ledger_restores_since(call->server->ledger, w->request->origin,
                                                      w->since, &w->count, err);
    if (status != TACIT_OK)
        return status;
    w->step = calloc(w->count, sizeof *w->step);
    if (!w->step)
        return tacit_fail(err, TACIT_NO_MEMORY, "restored: no memory");
    for (size_t i = 0; i < w->count && status == TACIT_OK; i++)
        status = tacit_ledger_entry(call->server->ledger, w->since[i].index, &w->step[i].entry,
                                    &w->step[i].entry_size, err);
    return status;
}

static tacit_status fill_step(const server *s, restored_work *w, size_t i,
                              const writer_point *point, tacit_error *err)
{
    restored_step *step = &w->step[i];
    tacit_status status = log_proof_inclusion(&step->inclusion, s, w->since[i].index, point, err);
    if (status == TACIT_OK)
        status = log_proof_consistency(&step->growth, s, w->since[i].size, point, err);
    if (status != TACIT_OK)
        return status;
    step->message = (Tacit__RestoredStep)TACIT__RESTORED_STEP__INIT;
    step->message.entry = tacit_field_of(step->entry, step->entry_size);
    step->message.index = w->since[i].index;
    step->message.inclusion = step->inclusion.fields;
    step->message.n_inclusion = step->inclusion.proof.count;
    step->message.growth = step->growth.fields;
    step->message.n_growth = step->growth.proof.count;
    w->list[i] = &step->message;
    return TACIT_OK;
}

tacit_status method_restored_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    restored_work *w = call->own;
    Tacit__RestoredReply reply = TACIT__RESTORED_REPLY__INIT;
    log_proof consistency;
    tacit_status status =
        log_proof_consistency(&consistency, call->server, w->request->checkpoint_size, point, err);
    for (size_t i = 0; i < w->count && status == TACIT_OK; i++)
        status = fill_step(call->server, w, i, point, err);
    if (status != TACIT_OK)
        return status;
    reply.steps = w->list;
    reply.n_steps = w->count;
    reply.checkpoint = tacit_field_of(point->checkpoint, strlen(point->checkpoint));
    reply.consistency = consistency.fields;
    reply.n_consistency = consistency.proof.count;
    return gate_reply_with(call, &reply, err);
}

void method_restored_release(gate_call *call)
{
    restored_work *w = call->own;
    if (!w)
        return;
    for (size_t i = 0; w->step && i < w->count; i++)
        free(w->step[i].entry);
    free(w->step);
    tacit_message_free(w->request);
    free(w);
}
