#include "engine/train_loop.h"

#include "common/bytes.h"
#include "common/clock.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/secret.h"
#include "common/text.h"
#include "engine/training_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_SECONDS 10

typedef struct running {
    const train_loop *loop;
    tacit_optimizer optimizer;
    tacit_rate_schedule rate;
    const tacit_input **order; /* [data.count]: shuffled anew each epoch */
    uint64_t random;
    uint64_t steps, epoch_steps; /* taken; of an epoch */
    uint64_t kept;               /* the step behind which the checkpoint stands; 0: none */
    double epoch_loss;           /* sum over the epoch's examples so far */
    /* With held-out examples. */
    double best_loss;
    uint64_t best_epoch, worse; /* worse: epochs since then */
    float *best;                /* [values], with patience */
    /* For people. */
    double start, told;
    size_t trained_rows;
    /* Of the step that runs. */
    double loss;
    const char *broken;  /* name of a tensor whose gradient is no number */
    tacit_error keeping; /* why a checkpoint could not be written */
} running;

/* ---- order ---- */

/* SplitMix64 (Steele et al. 2014): the order of examples needs no secrecy. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void shuffle(running *r)
{
    for (size_t i = r->loop->data->count; i > 1; i--) {
        size_t k = (size_t)(next_random(&r->random) % i);
        const tacit_input *other = r->order[k];
        r->order[k] = r->order[i - 1];
        r->order[i - 1] = other;
    }
}

/* ---- checkpoint ---- */

/* Beside the values and moments: sums of the epoch, what was best. */
static tacit_status keep(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    size_t values = tacit_trainer_layout(loop->trainer)->values;
    training_place place = {.steps_done = (uint32_t)r->steps};
    tacit_buffer beside = {.wiped = true};
    uint8_t head[32];
    tacit_store_f64(head, r->epoch_loss);
    tacit_store_f64(head + 8, r->best_loss);
    tacit_store_u64(head + 16, r->best_epoch);
    tacit_store_u64(head + 24, r->worse);
    tacit_status status = tacit_buffer_append(&beside, head, sizeof head);
    if (status == TACIT_OK && r->best)
        status = tacit_buffer_append(&beside, r->best, values * sizeof *r->best);
    status = status == TACIT_OK
                 ? training_checkpoint_write(loop->checkpoint, loop->identity, place,
                                             tacit_trainer_values(loop->trainer), &r->optimizer,
                                             (tacit_span){beside.data, beside.size}, err)
                 : tacit_fail(err, status, "%s: no memory for a checkpoint", loop->checkpoint);
    tacit_buffer_free(&beside);
    if (status == TACIT_OK)
        r->kept = r->steps;
    return status;
}

/* A checkpoint is of values whose loss and gradient are known to be numbers: it is written when
 * those of the next step are there. */
static bool is_time_to_keep(const running *r)
{
    const train_loop *loop = r->loop;
    return loop->checkpoint && r->steps > r->kept && r->steps % loop->checkpoint_steps == 0;
}

/* ---- one step ---- */

static const char *find_broken(const tacit_layout *layout, const float *grad)
{
    for (size_t i = 0; i < layout->count; i++) {
        const tacit_trainable_entry *e = &layout->entry[i];
        for (size_t k = 0; k < e->rows * e->cols; k++)
            if (!isfinite(grad[e->offset + k]))
                return e->name;
    }
    return NULL;
}

static tacit_status take_step(void *ctx, size_t unit, const float *grad, double loss)
{
    running *r = ctx;
    tacit_trainer *trainer = r->loop->trainer;
    (void)unit;
    r->loss = loss;
    r->broken = find_broken(tacit_trainer_layout(trainer), grad);
    if (r->broken || !isfinite(loss))
        return TACIT_OK;
    tacit_status status = is_time_to_keep(r) ? keep(r, &r->keeping) : TACIT_OK;
    if (status == TACIT_OK)
        tacit_optimizer_step(&r->optimizer, tacit_trainer_values(trainer), grad,
                             tacit_rate_at(&r->rate, r->steps));
    return status;
}

static tacit_status fail_step(const running *r, tacit_error *err)
{
    char what[192], kept[192] = "";
    if (isfinite(r->loss))
        snprintf(what, sizeof what, "the gradient of %s", r->broken);
    else
        snprintf(what, sizeof what, "the loss %g", r->loss);
    if (r->kept)
        snprintf(kept, sizeof kept, "; %s has the state behind step %llu, which was good",
                 r->loop->checkpoint, (unsigned long long)r->kept);
    return tacit_fail(err, TACIT_FAILED,
                      "step %llu: %s is no number: nothing was written%s; lower --learning-rate, "
                      "or check the model and the data",
                      (unsigned long long)r->steps + 1, what, kept);
}

static tacit_status run_step(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    size_t batch = (size_t)loop->batch, at = (size_t)(r->steps % r->epoch_steps) * batch;
    size_t left = loop->data->count - at;
    tacit_unit unit = {r->order + at, left < batch ? left : batch};
    tacit_status status = tacit_trainer_grads(loop->trainer, &unit, 1, take_step, r, err);
    if (r->keeping.status != TACIT_OK)
        return tacit_fail(err, r->keeping.status, "%s", r->keeping.message);
    if (status != TACIT_OK)
        return status;
    if (!isfinite(r->loss) || r->broken)
        return fail_step(r, err);
    r->epoch_loss += r->loss * (double)unit.n_examples;
    for (size_t i = 0; i < unit.n_examples; i++)
        r->trained_rows += unit.example[i]->count;
    r->steps++;
    return TACIT_OK;
}

/* ---- what people see ---- */

/* On stderr, and seldom: what is left is guessed from the rows of an epoch. */
static void tell(running *r)
{
    char left[TACIT_TEXT_DURATION];
    double now = tacit_clock_seconds(), spent = now - r->start;
    if (now - r->told < PROGRESS_SECONDS)
        return;
    r->told = now;
    double rows =
        (double)r->loop->data->rows * (double)(r->rate.steps - r->steps) / (double)r->epoch_steps;
    tacit_text_duration(left, spent * rows / (double)(r->trained_rows ? r->trained_rows : 1));
    tacit_log_info("step %llu of %llu: loss %.4f, %.0f tokens/s, %s left",
                   (unsigned long long)r->steps, (unsigned long long)r->rate.steps, r->loss,
                   (double)r->trained_rows / spent, left);
}

/* ---- held-out examples ---- */

static tacit_status evaluate(const running *r, double *loss, tacit_error *err)
{
    const train_examples *eval = r->loop->eval;
    double sum = 0;
    for (size_t i = 0; i < eval->count; i++) {
        double one;
        tacit_status status = tacit_trainer_loss(r->loop->trainer, &eval->input[i], &one, err);
        if (status != TACIT_OK)
            return status;
        sum += one;
    }
    *loss = eval->count ? sum / (double)eval->count : 0;
    return TACIT_OK;
}

static tacit_status end_epoch(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    double spent = tacit_clock_seconds() - r->start;
    size_t values = tacit_trainer_layout(loop->trainer)->values;
    train_epoch e = {.number = r->steps / r->epoch_steps,
                     .steps = r->steps,
                     .loss = r->epoch_loss / (double)loop->data->count,
                     .tokens_per_s = spent > 0 ? (double)r->trained_rows / spent : 0};
    tacit_status status = evaluate(r, &e.eval_loss, err);
    if (status != TACIT_OK)
        return status;
    e.best = loop->eval->count && (r->best_epoch == 0 || e.eval_loss < r->best_loss);
    if (e.best) {
        r->best_loss = e.eval_loss;
        r->best_epoch = e.number;
        if (r->best)
            memcpy(r->best, tacit_trainer_values(loop->trainer), values * sizeof *r->best);
    }
    r->worse = e.best ? 0 : r->worse + 1;
    r->epoch_loss = 0;
    return loop->report(loop->ctx, &e, err);
}

/* ---- going on ---- */

static tacit_status take_beside(running *r, tacit_span beside, tacit_error *err)
{
    size_t bytes = r->best ? tacit_trainer_layout(r->loop->trainer)->values * sizeof *r->best : 0;
    tacit_cursor c = tacit_cursor_over(beside.data, beside.size);
    if (beside.size != 32 + bytes)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "%s: expected %zu bytes behind the moments, found %zu",
                          r->loop->checkpoint, 32 + bytes, beside.size);
    r->epoch_loss = tacit_cursor_f64(&c);
    r->best_loss = tacit_cursor_f64(&c);
    r->best_epoch = tacit_cursor_u64(&c);
    r->worse = tacit_cursor_u64(&c);
    if (bytes)
        memcpy(r->best, tacit_cursor_take(&c, bytes).data, bytes);
    return TACIT_OK;
}

static tacit_status resume(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    tacit_buffer beside = {.wiped = true};
    training_place place = {0};
    bool found;
    tacit_status status = training_checkpoint_read(loop->checkpoint, loop->identity, &place,
                                                   tacit_trainer_values(loop->trainer),
                                                   &r->optimizer, &beside, &found, err);
    if (status == TACIT_INTEGRITY)
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "%s: the checkpoint of another training (of other files, another set, "
                            "optimizer, batch or seed); name another file or remove it",
                            loop->checkpoint);
    if (status == TACIT_OK && found)
        status = take_beside(r, (tacit_span){beside.data, beside.size}, err);
    if (status == TACIT_OK && found) {
        r->steps = r->kept = place.steps_done;
        tacit_log_info("continuing behind step %llu of %llu", (unsigned long long)r->steps,
                       (unsigned long long)r->rate.steps);
    }
    tacit_buffer_free(&beside);
    return status;
}

static tacit_status stop_here(running *r, tacit_error *err)
{
    const char *file = r->loop->checkpoint;
    tacit_status status = file ? keep(r, err) : TACIT_OK;
    if (status != TACIT_OK)
        return status;
    return file ? tacit_fail(err, TACIT_AGAIN,
                             "stopped behind step %llu of %llu; the same command goes on from %s",
                             (unsigned long long)r->steps, (unsigned long long)r->rate.steps, file)
                : tacit_fail(err, TACIT_AGAIN,
                             "stopped behind step %llu of %llu, and nothing was written; with "
                             "--checkpoint it could go on",
                             (unsigned long long)r->steps, (unsigned long long)r->rate.steps);
}

/* ---- the whole ---- */

size_t train_loop_value_bytes(const train_loop *loop)
{
    size_t best = loop->patience ? sizeof(float) : 0;
    size_t moments = loop->optimizer->kind == TACIT_SGD ? 1 : 2;
    return best + (loop->checkpoint ? (1 + moments) * sizeof(float) + 2 * best : 0);
}

static tacit_status begin(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    size_t n = loop->data->count, values = tacit_trainer_layout(loop->trainer)->values;
    tacit_status status = tacit_optimizer_init(&r->optimizer, loop->optimizer, values, err);
    if (status != TACIT_OK)
        return status;
    r->order = calloc(n, sizeof(tacit_input *));
    r->best = loop->patience ? calloc(values, sizeof *r->best) : NULL;
    if (!r->order || (loop->patience && !r->best))
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu examples and %zu values", n,
                          values);
    for (size_t i = 0; i < n; i++)
        r->order[i] = &loop->data->input[i];
    r->random = loop->seed;
    r->epoch_steps = (n + loop->batch - 1) / loop->batch;
    r->rate = (tacit_rate_schedule){loop->optimizer->rate, loop->optimizer->warmup,
                                    r->epoch_steps * loop->epochs};
    if (r->rate.steps > UINT32_MAX)
        return tacit_fail(err, TACIT_USAGE, "%llu steps: expected at most %u; give fewer epochs",
                          (unsigned long long)r->rate.steps, UINT32_MAX);
    status = loop->checkpoint ? resume(r, err) : TACIT_OK;
    if (status == TACIT_OK && r->steps > r->rate.steps)
        status = tacit_fail(err, TACIT_INTEGRITY, "%s: more steps than the training has",
                            loop->checkpoint);
    /* The order of an epoch follows from those before it. */
    for (uint64_t epoch = 0;
         status == TACIT_OK && epoch < (r->steps + r->epoch_steps - 1) / r->epoch_steps; epoch++)
        shuffle(r);
    return status;
}

static tacit_status run_epochs(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    tacit_status status = TACIT_OK;
    while (status == TACIT_OK && r->steps < r->rate.steps &&
           !(loop->patience && r->worse >= loop->patience)) {
        if (*loop->stop)
            return stop_here(r, err);
        if (r->steps % r->epoch_steps == 0)
            shuffle(r);
        status = run_step(r, err);
        if (status == TACIT_OK && r->steps % r->epoch_steps == 0)
            status = end_epoch(r, err);
        if (status == TACIT_OK) {
            tacit_kill_point("train.mid_training");
            tell(r);
        }
    }
    return status;
}

static tacit_status run(running *r, tacit_error *err)
{
    const train_loop *loop = r->loop;
    double loss;
    tacit_status status = begin(r, err);
    if (status == TACIT_OK && r->steps == 0 && loop->eval->count) {
        status = evaluate(r, &loss, err);
        if (status == TACIT_OK)
            tacit_log_info("held-out loss before training: %.4f", loss);
    }
    r->start = r->told = tacit_clock_seconds();
    if (status == TACIT_OK)
        status = run_epochs(r, err);
    if (status == TACIT_OK && r->best)
        memcpy(tacit_trainer_values(loop->trainer), r->best,
               tacit_trainer_layout(loop->trainer)->values * sizeof *r->best);
    return status;
}

tacit_status train_loop_run(const train_loop *loop, uint64_t *best_epoch, tacit_error *err)
{
    running r = {.loop = loop};
    tacit_status status = run(&r, err);
    *best_epoch = r.best_epoch;
    tacit_optimizer_fini(&r.optimizer);
    free(r.order);
    tacit_wipe_free(r.best);
    return status;
}
