/* tacit-pretrain-nano: trains nano from random values on scenes of split P.
 *
 * The planned number of pictures fixes every step, so a run that is interrupted and continued gives
 * the same bytes as one that is not. */
#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/options.h"
#include "engine/model_write.h"
#include "engine/trainer.h"
#include "scenes/pretrain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define WARM_UP_STEPS 150
#define LEAST_RATE 0.02  /* of the full learning rate, at the end */
#define SECOND_RATE 0.75 /* likewise */
#define WEIGHT_DECAY 0.05
#define FAN_IN 128
#define GRADIENT_NORM 1.0
#define AVERAGE_KEEP 0.999
#define LOG_STEPS 100
#define CHECK_SCENES 200
#define CHECK_SENSES 90
#define LAST_CHECK_SCENES 1000
#define LAST_CHECK_SENSES 1800

typedef struct run_options {
    const char *dir;
    uint64_t pictures, seed, threads, checkpoint_minutes, stop_minutes;
    double rate;
} run_options;

typedef struct run_paths {
    char file[PRETRAIN_FILES][PATH_BYTES], start[PRETRAIN_FILES][PATH_BYTES];
    char checkpoint[PATH_BYTES];
} run_paths;

typedef struct pretrain_run {
    run_options options;
    run_paths paths;
    tacit_pool *pool;
    tacit_model *model;
    tacit_trainer *trainer;
    pretrain_state state;
    tacit_input input[PRETRAIN_BATCH];
    tacit_status input_status[PRETRAIN_BATCH];
    tacit_error input_error[PRETRAIN_BATCH];
    float *gradient, *before; /* [state.count] */
    double loss;              /* of the last step */
    double mean_loss;         /* since the last line of the log */
    size_t rows;              /* of the steps since then */
} pretrain_run;

static double progress_of(const pretrain_run *r)
{
    return (double)r->state.step / (double)r->state.steps;
}

/* Linear warm-up, then a half cosine down to LEAST_RATE; the same again, to SECOND_RATE of the
 * learning rate, for what comes after PRETRAIN_SECOND. */
static double rate_of(const pretrain_run *r)
{
    double steps = (double)r->state.steps, first = PRETRAIN_SECOND * steps;
    double at = (double)r->state.step, end = first, full = 1;
    if (at >= first) {
        at -= first;
        end = steps - first;
        full = SECOND_RATE;
    }
    double warm = (at + 1) / WARM_UP_STEPS, cosine = 0.5 * (1 + cos(M_PI * (at / end)));
    return full * (warm < 1 ? warm : 1) * (LEAST_RATE + (1 - LEAST_RATE) * cosine);
}

/* ---- one step ---- */

static void make_example(void *ctx, size_t i, size_t thread)
{
    pretrain_run *r = ctx;
    (void)thread;
    r->input_status[i] =
        pretrain_example(&r->input[i], r->model, r->options.seed,
                         r->state.step * PRETRAIN_BATCH + i, progress_of(r), &r->input_error[i]);
}

static tacit_status make_batch(pretrain_run *r, tacit_error *err)
{
    tacit_pool_run(r->pool, PRETRAIN_BATCH, make_example, r);
    for (size_t i = 0; i < PRETRAIN_BATCH; i++) {
        if (r->input_status[i] != TACIT_OK) {
            *err = r->input_error[i];
            return r->input_status[i];
        }
        r->rows += r->input[i].count;
    }
    return TACIT_OK;
}

static void free_batch(pretrain_run *r)
{
    for (size_t i = 0; i < PRETRAIN_BATCH; i++) {
        tacit_input_free(&r->input[i]);
        r->input[i] = (tacit_input){0};
    }
}

static tacit_status take_gradient(void *ctx, size_t unit, const float *grad, double loss)
{
    pretrain_run *r = ctx;
    (void)unit;
    memcpy(r->gradient, grad, r->state.count * sizeof *grad);
    r->loss = loss;
    return TACIT_OK;
}

/* Scales the gradient to at most GRADIENT_NORM; false when it is not finite. */
static bool clip_gradient(pretrain_run *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->state.count; i++)
        sum += (double)r->gradient[i] * r->gradient[i];
    if (!isfinite(sum))
        return false;
    float scale = (float)(sum > GRADIENT_NORM * GRADIENT_NORM ? GRADIENT_NORM / sqrt(sum) : 1);
    for (size_t i = 0; i < r->state.count; i++)
        r->gradient[i] *= scale;
    return true;
}

/* The step length of a tensor over the learning rate: a matrix whose rows sum more than FAN_IN
 * inputs moves its outputs that much further a step, so it takes shorter ones (Yang et al. 2021,
 * arXiv 2203.03466). Without this the projector (1,152 inputs) drowns pictures in a constant. */
static double step_share(const tacit_trainable_entry *entry)
{
    return entry->rows > 1 && entry->cols > FAN_IN ? (double)FAN_IN / (double)entry->cols : 1;
}

/* Adam's step, shortened per tensor; matrices shrink a little besides, norms and biases do not. */
static void move_values(pretrain_run *r, double scale)
{
    const tacit_layout *layout = tacit_trainer_layout(r->trainer);
    float *before = r->before, *values = r->state.values;
    memcpy(before, values, r->state.count * sizeof *values);
    tacit_optimizer_step(&r->state.optimizer, values, r->gradient, scale);
    for (size_t e = 0; e < layout->count; e++) {
        const tacit_trainable_entry *entry = &layout->entry[e];
        float share = (float)step_share(entry);
        float keep = (float)(entry->rows > 1 ? 1 - scale * r->options.rate * WEIGHT_DECAY : 1);
        for (size_t i = entry->offset; i < entry->offset + entry->rows * entry->cols; i++)
            values[i] = keep * before[i] + share * (values[i] - before[i]);
    }
}

static void average_values(pretrain_state *s)
{
    double early = (double)(s->step + 1) / (double)(s->step + 20);
    float keep = (float)(early < AVERAGE_KEEP ? early : AVERAGE_KEEP);
    for (size_t i = 0; i < s->count; i++)
        s->average[i] = keep * s->average[i] + (1 - keep) * s->values[i];
}

static tacit_status step(pretrain_run *r, tacit_error *err)
{
    const tacit_input *list[PRETRAIN_BATCH];
    double scale = rate_of(r);
    tacit_status status = make_batch(r, err);
    for (size_t i = 0; i < PRETRAIN_BATCH; i++)
        list[i] = &r->input[i];
    tacit_unit unit = {list, PRETRAIN_BATCH};
    if (status == TACIT_OK)
        status = tacit_trainer_grads(r->trainer, &unit, 1, take_gradient, r, err);
    free_batch(r);
    if (status != TACIT_OK)
        return status;
    if (!clip_gradient(r))
        return tacit_fail(err, TACIT_FAILED,
                          "step %llu: the gradient is not finite; try a smaller --learning-rate",
                          (unsigned long long)r->state.step);
    move_values(r, scale);
    average_values(&r->state);
    r->state.step++;
    r->mean_loss += r->loss / LOG_STEPS;
    return TACIT_OK;
}

/* ---- files ---- */

static tacit_status save_models(pretrain_run *r, tacit_error *err)
{
    const tacit_layout *layout = tacit_trainer_layout(r->trainer);
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < PRETRAIN_FILES && status == TACIT_OK; i++)
        status = tacit_model_save(r->paths.file[i], r->model, i, layout, r->state.average,
                                  tacit_types_q8_0, err);
    return status;
}

static pretrain_files files_of(char path[PRETRAIN_FILES][PATH_BYTES])
{
    pretrain_files files;
    for (size_t i = 0; i < PRETRAIN_FILES; i++)
        files.path[i] = path[i];
    return files;
}

static double percent(pretrain_count c)
{
    return c.asked ? 100.0 * (double)c.right / (double)c.asked : 0;
}

static void log_fields(const pretrain_report *report, const char *split)
{
    char line[512];
    size_t at = 0;
    for (int f = 0; f < SCENE_FIELD_COUNT; f++)
        at += (size_t)snprintf(line + at, sizeof line - at, " %s %zu/%zu",
                               scene_field_name((scene_field)f), report->field[f].right,
                               report->field[f].asked);
    tacit_log_info("held-out %s: pictures %.1f %% exact;%s", split, 100 * report->accuracy, line);
}

/* Questions that need `needs`; behind each in brackets what is right with a sense swapped. */
static void log_senses(const pretrain_report *report, const char *split, const char *name,
                       unsigned needs)
{
    char line[1024] = "";
    size_t at = 0;
    for (size_t i = 0; i < scene_ask_count(); i++) {
        if (scene_ask_at(i)->needs != needs)
            continue;
        at += (size_t)snprintf(line + at, sizeof line - at, " %s %.1f", scene_ask_at(i)->name,
                               percent(report->ask[i]));
        for (int k = 0; k < SCENE_SENSES; k++)
            if (report->swapped[i][k].asked)
                at += (size_t)snprintf(line + at, sizeof line - at, " (%.1f)",
                                       percent(report->swapped[i][k]));
    }
    tacit_log_info("held-out %s: %s %.1f %% exact;%s", split, name,
                   percent(pretrain_count_needs(report, needs)), line);
}

static void log_report(const pretrain_report *report, const char *split)
{
    static const char *const names[] = {"sound", "signal", "picture and sound",
                                        "picture and signal", "sound and signal"};
    static const unsigned needs[] = {2, 4, 3, 5, 6};
    log_fields(report, split);
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        log_senses(report, split, names[i], needs[i]);
}

/* Splits P to `last`; the report is that of P. */
static tacit_status check_models(pretrain_run *r, scene_split last, size_t n, size_t n_senses,
                                 pretrain_report *report, tacit_error *err)
{
    static const char *const names[] = {"P", "H", "F"};
    const pretrain_files files = files_of(r->paths.file);
    for (int split = SCENE_PRETRAIN; split <= (int)last; split++) {
        pretrain_report found;
        tacit_status status =
            pretrain_check(&found, &files, (scene_split)split, n, n_senses, r->pool, err);
        if (status != TACIT_OK)
            return status;
        log_report(&found, names[split]);
        if (split == SCENE_PRETRAIN)
            *report = found;
    }
    return TACIT_OK;
}

static tacit_status checkpoint(pretrain_run *r, tacit_error *err)
{
    pretrain_report report;
    tacit_status status = pretrain_state_save(&r->state, r->paths.checkpoint, err);
    if (status != TACIT_OK || (status = save_models(r, err)) != TACIT_OK)
        return status;
    return check_models(r, SCENE_PRETRAIN, CHECK_SCENES, CHECK_SENSES, &report, err);
}

/* ---- the run ---- */

static void log_progress(pretrain_run *r, double seconds)
{
    tacit_log_info("step %llu/%llu, %llu pictures, loss %.4f, rate %.2e, %.1f pictures/s, "
                   "%.0f rows/s, %.1f min",
                   (unsigned long long)r->state.step, (unsigned long long)r->state.steps,
                   (unsigned long long)r->state.step * PRETRAIN_BATCH, r->mean_loss,
                   rate_of(r) * r->options.rate, LOG_STEPS * PRETRAIN_BATCH / seconds,
                   (double)r->rows / seconds, r->state.seconds / 60);
    r->mean_loss = 0;
    r->rows = 0;
}

static tacit_status train(pretrain_run *r, tacit_error *err)
{
    double last = tacit_clock_seconds(), logged = last, saved = last;
    tacit_status status = TACIT_OK;
    while (r->state.step < r->state.steps) {
        TACIT_TRY(step(r, err), out);
        double now = tacit_clock_seconds();
        r->state.seconds += now - last;
        last = now;
        if (r->state.step % LOG_STEPS == 0) {
            log_progress(r, now - logged);
            logged = now;
        }
        bool stop = r->options.stop_minutes && r->state.step < r->state.steps &&
                    r->state.seconds > 60.0 * (double)r->options.stop_minutes;
        if (stop || now - saved > 60.0 * (double)r->options.checkpoint_minutes) {
            TACIT_TRY(checkpoint(r, err), out);
            last = logged = saved = tacit_clock_seconds();
        }
        if (stop) {
            tacit_log_warn("stopped after --stop-minutes %llu at step %llu; the same command "
                           "without it continues",
                           (unsigned long long)r->options.stop_minutes,
                           (unsigned long long)r->state.step);
            break;
        }
    }
out:
    return status;
}

static tacit_status make_paths(run_paths *p, const char *dir, tacit_error *err)
{
    static const char *const names[PRETRAIN_FILES] = {
        "nano.gguf", "mmproj-nano.gguf", "mmproj-nano-audio.gguf", "mmproj-nano-sensor.gguf"};
    tacit_status status = tacit_file_make_dir(dir, 0755, err);
    for (size_t i = 0; i < PRETRAIN_FILES && status == TACIT_OK; i++) {
        char start[64];
        snprintf(start, sizeof start, "start-%s", names[i]);
        status = tacit_file_join(p->file[i], PATH_BYTES, dir, names[i], err);
        if (status == TACIT_OK)
            status = tacit_file_join(p->start[i], PATH_BYTES, dir, start, err);
    }
    if (status == TACIT_OK)
        status = tacit_file_join(p->checkpoint, PATH_BYTES, dir, "checkpoint.bin", err);
    return status;
}

static tacit_status make_state(pretrain_run *r, tacit_error *err)
{
    const tacit_layout *layout = tacit_trainer_layout(r->trainer);
    const tacit_optimizer_spec spec = {.kind = TACIT_ADAMW,
                                       .learning_rate = r->options.rate,
                                       .beta1 = 0.9,
                                       .beta2 = 0.98,
                                       .epsilon = 1e-8};
    pretrain_state *s = &r->state;
    s->seed = r->options.seed;
    s->steps = r->options.pictures / PRETRAIN_BATCH;
    s->count = layout->values;
    s->values = tacit_trainer_values(r->trainer);
    s->average = malloc(s->count * sizeof *s->average);
    r->gradient = malloc(s->count * sizeof *r->gradient);
    r->before = malloc(s->count * sizeof *r->before);
    if (!s->average || !r->gradient || !r->before)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu values", s->count);
    memcpy(s->average, s->values, s->count * sizeof *s->average);
    return tacit_optimizer_init(&s->optimizer, &spec, s->count, err);
}

static tacit_status prepare(pretrain_run *r, tacit_error *err)
{
    const tacit_trainable_spec all = {.kind = TACIT_TRAIN_ALL};
    tacit_status status;
    TACIT_TRY(make_paths(&r->paths, r->options.dir, err), out);
    TACIT_TRY(tacit_pool_new(&r->pool, r->options.threads, err), out);
    const pretrain_files start = files_of(r->paths.start);
    TACIT_TRY(pretrain_write_start(&start, r->options.seed, err), out);
    TACIT_TRY(pretrain_load(&r->model, &start, err), out);
    TACIT_TRY(tacit_trainer_new(&r->trainer, r->model, &all, PRETRAIN_MAX_ROWS, r->pool, err), out);
    TACIT_TRY(make_state(r, err), out);
    tacit_error missing;
    status = pretrain_state_load(&r->state, r->paths.checkpoint, &missing);
    if (status == TACIT_BAD_INPUT) {
        *err = missing;
        goto out;
    }
    tacit_log_info("%zu values, %llu steps of %d pictures, %zu threads, %s step %llu",
                   r->state.count, (unsigned long long)r->state.steps, PRETRAIN_BATCH,
                   tacit_pool_threads(r->pool), status == TACIT_OK ? "continuing at" : "from",
                   (unsigned long long)r->state.step);
    status = TACIT_OK;
out:
    return status;
}

static void release(pretrain_run *r)
{
    tacit_optimizer_fini(&r->state.optimizer);
    free(r->state.average);
    free(r->gradient);
    free(r->before);
    tacit_trainer_free(r->trainer);
    tacit_model_free(r->model);
    tacit_pool_free(r->pool);
}

static tacit_status pretrain(const run_options *options, tacit_error *err)
{
    pretrain_run r = {.options = *options};
    pretrain_report report;
    tacit_status status;
    TACIT_TRY(prepare(&r, err), out);
    TACIT_TRY(train(&r, err), out);
    TACIT_TRY(pretrain_state_save(&r.state, r.paths.checkpoint, err), out);
    TACIT_TRY(save_models(&r, err), out);
    TACIT_TRY(check_models(&r, SCENE_FLEET, LAST_CHECK_SCENES, LAST_CHECK_SENSES, &report, err),
              out);
    printf("{\"pictures\":%llu,\"seconds\":%.0f,\"accuracy\":%.4f}\n",
           (unsigned long long)(r.state.step * PRETRAIN_BATCH), r.state.seconds, report.accuracy);
out:
    release(&r);
    return status;
}

int main(int argc, char **argv)
{
    run_options o = {.pictures = 200000, .seed = 1, .checkpoint_minutes = 5, .rate = 4e-4};
    bool help = false;
    tacit_error err = {0};
    const tacit_option table[] = {
        {"out", 'o', TACIT_OPTION_TEXT, &o.dir, true, "DIR", "folder of files and checkpoint", 0,
         0},
        {"pictures", 0, TACIT_OPTION_U64, &o.pictures, false, "N",
         "scenes: the planned length of the run", PRETRAIN_BATCH, 1e9},
        {"seed", 0, TACIT_OPTION_U64, &o.seed, false, "S", "of values and scenes", 0, 0},
        {"threads", 't', TACIT_OPTION_U64, &o.threads, false, "N", "0: all processors", 0, 256},
        {"learning-rate", 0, TACIT_OPTION_REAL, &o.rate, false, "X", "largest one", 1e-6, 1},
        {"checkpoint-minutes", 0, TACIT_OPTION_U64, &o.checkpoint_minutes, false, "M",
         "between checkpoints", 1, 600},
        {"stop-minutes", 0, TACIT_OPTION_U64, &o.stop_minutes, false, "M",
         "pause there; 0: run to the planned end", 0, 6000},
        {0},
    };
    const tacit_usage usage = {"tacit-pretrain-nano", NULL, 0, 0,
                               "trains nano on synthetic scenes; run again to continue"};
    tacit_log_init("tacit-pretrain-nano", TACIT_LOG_INFO);
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, &err);
    if (status == TACIT_OK && !help)
        status = pretrain(&o, &err);
    if (status != TACIT_OK)
        fprintf(stderr, "tacit-pretrain-nano: %s\n", err.message);
    return tacit_exit_code(status);
}
