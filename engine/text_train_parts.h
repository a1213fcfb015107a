/* The insides of a run of training that kinds of layers (text_mixer.h) share with text_train.c. */
#ifndef TACIT_ENGINE_TEXT_TRAIN_PARTS_H
#define TACIT_ENGINE_TEXT_TRAIN_PARTS_H

#include "engine/text_mixer.h"
#include "engine/text_train.h"

/* What a layer computes on the way, for `n` rows: inputs of its products. */
typedef struct train_acts {
    float *h;           /* the normed input */
    float *mix;         /* what the layer's kind keeps */
    float *mixed, *fed; /* what goes into the post norms; NULL without such norms */
    float *mid, *h2, *gate, *up, *act;
} train_acts;

struct text_train {
    const train_plan *plan;
    const tacit_text_model *model;
    tacit_pool *pool;
    bool keep;
    size_t max_rows, threads;
    size_t mix_floats;  /* a row, of the kind of layer that keeps most */
    size_t work_floats; /* of the kind of layer that needs most */
    float *arena;
    /* Of all examples of a run, one after the other: */
    float **x;        /* [n_layers]: layer inputs [rows, embedding] */
    train_acts *acts; /* [n_layers], or 1 when recomputed */
    float *queries;   /* top layer: h of the predicting rows */
    float *y, *normed;
    float *stream; /* gradient of the residual stream between two layers */
    float *top;    /* gradient of the top layer's output: of the predicting rows */
    float *rope[TEXT_ROPES], *rope_queries[TEXT_ROPES];
    /* Of the example at hand: */
    float *d_act, *d_h, *d_queries;
    float *mix;      /* work of the layer's kind */
    text_span *span; /* [max_rows] */
    float *logits, *slice, *scratch;
    double *dx_sum;
    float *expanded; /* the layer at hand, dequantized */
    size_t chunk;
};

/* One visit of a layer: its linears ready to multiply. */
typedef struct layer_visit {
    size_t index;
    const tacit_text_layer *layer;
    const train_layer *plan;
    tacit_linear linear[TEXT_LINEARS];
    bool top;
} layer_visit;

/* One example's part of everything at one layer. */
typedef struct example_view {
    const text_train_rows *rows;
    train_acts acts;
    size_t n, m;  /* rows that later ones read; rows of queries and of the rest */
    float *x, *y; /* the layer's input and output */
    float *dy;    /* gradient of the output, then of `mid` */
    float *dx;    /* gradient of the input: dy's memory but for the top layer */
    float *queries, *normed;
    float *rope[TEXT_ROPES], *rope_queries[TEXT_ROPES];
} example_view;

/* y = linear `which` of x [rows, n_in], by way of its pair. */
void train_apply(text_train *t, const layer_visit *v, text_linear which, float *y, const float *x,
                 size_t rows);
/* Gradients of one linear's own values, from dy and its input x. */
void train_weight_gradients(text_train *t, const layer_visit *v, text_linear which, float *grad,
                            const float *dy, const float *x, size_t rows);
/* dx = dy W, or added to it. */
void train_input_gradient(text_train *t, const layer_visit *v, text_linear which, float *dx,
                          const float *dy, size_t rows, bool accumulate);
/* to[row[i], :] += from[i, :] */
void train_scatter_rows(float *to, const float *from, const size_t *row, size_t count,
                        size_t width);

#endif
