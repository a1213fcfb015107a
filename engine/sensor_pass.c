/* One window at a time through one set of buffers; the backward computes a window's states again,
 * which are as many multiplications as the first of its three products. */
#include "common/bytes.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/ops.h"
#include "engine/sensor_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALLER "take a smaller encoder"

struct sensor_pass {
    const tacit_sensor *s;
    tacit_pool *pool;
    size_t max_windows, n;
    sensor_window *window; /* [max_windows]: of the last forward; values are the caller's */
    const float *weight[SENSOR_PARTS];
    float *before;  /* [max_patches, width]: W x + b */
    float *state;   /* [max_patches, width]: h */
    float *d_state; /* [max_patches, width], with `train` */
    float *d_before;
    float *scratch;                 /* of linear.h */
    const encoder_adapter *adapter; /* or NULL */
};

static size_t scratch_floats(const tacit_sensor *s, size_t rank, tacit_pool *pool)
{
    size_t threads = tacit_pool_threads(pool), rows = s->shape.max_patches;
    size_t patch = linear_scratch(&s->linear[SENSOR_PATCH], rows, rank, threads);
    size_t fc = linear_scratch(&s->linear[SENSOR_FC], rows, rank, threads);
    return patch > fc ? patch : fc;
}

static size_t states_of(const tacit_sensor *s)
{
    return (size_t)s->shape.max_patches * s->shape.width;
}

uint64_t sensor_pass_bytes(const tacit_sensor *s, bool train, tacit_pool *pool)
{
    return (states_of(s) * (train ? 4 : 2) + scratch_floats(s, 0, pool) + 1) * sizeof(float);
}

tacit_status sensor_pass_new(sensor_pass **out, const tacit_sensor *s, size_t max_windows,
                             bool train, tacit_pool *pool, tacit_error *err)
{
    char what[96];
    size_t states = states_of(s);
    uint64_t bytes = sensor_pass_bytes(s, train, pool);
    *out = NULL;
    snprintf(what, sizeof what, "%s windows of %u patches of width %u",
             train ? "training on" : "encoding", s->shape.max_patches, s->shape.width);
    tacit_status status = tacit_memory_judge(bytes, what, SMALLER, err);
    if (status != TACIT_OK)
        return status;
    sensor_pass *p = calloc(1, sizeof *p);
    if (p) {
        *p = (sensor_pass){.s = s, .pool = pool, .max_windows = max_windows};
        p->window = calloc(max_windows ? max_windows : 1, sizeof *p->window);
        p->before = malloc(states * sizeof *p->before);
        p->state = malloc(states * sizeof *p->state);
        p->d_state = train ? malloc(states * sizeof *p->d_state) : NULL;
        p->d_before = train ? malloc(states * sizeof *p->d_before) : NULL;
        p->scratch = malloc((scratch_floats(s, 0, pool) + 1) * sizeof *p->scratch);
    }
    bool whole = p && p->window && p->before && p->state && p->scratch &&
                 (!train || (p->d_state && p->d_before));
    if (!whole) {
        sensor_pass_free(p);
        return tacit_memory_fail(bytes, what, SMALLER, err);
    }
    *out = p;
    return TACIT_OK;
}

void sensor_pass_free(sensor_pass *p)
{
    if (!p)
        return;
    free(p->window);
    tacit_wipe_free(p->before);
    tacit_wipe_free(p->state);
    tacit_wipe_free(p->d_state);
    tacit_wipe_free(p->d_before);
    tacit_wipe_free(p->scratch);
    free(p);
}

tacit_status sensor_adapt(sensor_pass *p, const encoder_adapter *adapter, tacit_error *err)
{
    size_t floats = scratch_floats(p->s, adapter ? adapter->max_rank : 0, p->pool) + 1;
    tacit_status status =
        encoder_adapter_scratch(&p->scratch, adapter, floats, "an adapter of readings", err);
    if (status == TACIT_OK)
        p->adapter = adapter;
    return status;
}

static const float *vector_of(const sensor_pass *p, sensor_part part)
{
    return p->weight[part] ? p->weight[part] : p->s->plain[part];
}

static tacit_linear linear_of(const sensor_pass *p, sensor_part part)
{
    tacit_linear l = p->s->linear[part];
    if (p->weight[part])
        linear_init_f32(&l, p->weight[part], NULL, l.n_in, l.n_out);
    l.bias = vector_of(p, part + 1);
    return l;
}

/* Fills `before` and `state` for one window. */
static void compute_states(sensor_pass *p, const sensor_window *w)
{
    size_t n = w->patches * p->s->shape.width;
    tacit_linear patch = linear_of(p, SENSOR_PATCH);
    linear_forward(p->pool, &patch, encoder_pair(p->adapter, SENSOR_PATCH), p->before, w->values,
                   w->patches, p->scratch);
    ops_gelu_forward(p->state, p->before, n);
    ops_add(p->state, vector_of(p, SENSOR_POSITION), n);
}

void sensor_forward(sensor_pass *p, const float *const *weights, const sensor_window *windows,
                    size_t n, float *const *rows)
{
    for (size_t i = 0; i < SENSOR_PARTS; i++)
        p->weight[i] = weights ? weights[i] : NULL;
    tacit_linear fc = linear_of(p, SENSOR_FC);
    p->n = n;
    for (size_t i = 0; i < n; i++) {
        p->window[i] = windows[i];
        compute_states(p, &windows[i]);
        linear_forward(p->pool, &fc, encoder_pair(p->adapter, SENSOR_FC), rows[i], p->state,
                       windows[i].patches, p->scratch);
    }
}

/* The gradient of `before` from that of the rows; d_state in passing. */
static void go_down(sensor_pass *p, const tacit_linear *fc, const float *d_rows, size_t patches)
{
    size_t n = patches * p->s->shape.width;
    linear_backward_input(p->pool, fc, encoder_pair(p->adapter, SENSOR_FC), p->d_state, d_rows,
                          patches, false, p->scratch);
    memset(p->d_before, 0, n * sizeof *p->d_before);
    ops_gelu_backward(p->d_before, p->d_state, p->before, n);
}

static void backward_window(sensor_pass *p, const sensor_window *w, const float *d_rows,
                            float *const *grads)
{
    tacit_linear patch = linear_of(p, SENSOR_PATCH), fc = linear_of(p, SENSOR_FC);
    compute_states(p, w);
    if (grads[SENSOR_FC])
        linear_backward_weight(p->pool, &fc, grads[SENSOR_FC], d_rows, p->state, w->patches);
    if (grads[SENSOR_FC_BIAS])
        linear_backward_bias(&fc, grads[SENSOR_FC_BIAS], d_rows, w->patches);
    encoder_pair_backward(p->pool, p->adapter, SENSOR_FC, &fc, d_rows, p->state, w->patches,
                          p->scratch);
    if (!grads[SENSOR_PATCH] && !grads[SENSOR_PATCH_BIAS] && !grads[SENSOR_POSITION] &&
        !encoder_pair_is_trained(p->adapter, SENSOR_PATCH))
        return;
    go_down(p, &fc, d_rows, w->patches);
    if (grads[SENSOR_POSITION])
        ops_add(grads[SENSOR_POSITION], p->d_state, w->patches * p->s->shape.width);
    if (grads[SENSOR_PATCH])
        linear_backward_weight(p->pool, &patch, grads[SENSOR_PATCH], p->d_before, w->values,
                               w->patches);
    encoder_pair_backward(p->pool, p->adapter, SENSOR_PATCH, &patch, p->d_before, w->values,
                          w->patches, p->scratch);
    if (grads[SENSOR_PATCH_BIAS])
        linear_backward_bias(&patch, grads[SENSOR_PATCH_BIAS], p->d_before, w->patches);
}

void sensor_backward(sensor_pass *p, const float *const *d_rows, float *const *grads)
{
    for (size_t i = 0; i < p->n; i++)
        backward_window(p, &p->window[i], d_rows[i], grads);
}
