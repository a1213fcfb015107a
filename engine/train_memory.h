/* How a training is laid out in memory, and whether it fits. */
#ifndef TACIT_ENGINE_TRAIN_MEMORY_H
#define TACIT_ENGINE_TRAIN_MEMORY_H

#include "engine/train_plan.h"
#include "engine/trainer.h"

/* How a trainer goes about it: by the model, the number of values, rows and threads. */
typedef struct train_way {
    size_t lanes_of_unit; /* at most; by the model and the values alone */
    size_t n_lanes;       /* gradients in flight */
    size_t workers;
    bool side_by_side; /* each thread with a workspace of its own */
} train_way;

/* Of `plan` the model and the greatest rank of its pairs count. */
train_way train_way_of(const train_plan *plan, size_t values, size_t max_rows, size_t threads);

/* `training` must fit into `available` bytes; else TACIT_NO_MEMORY says what is needed for what,
 * and what would fit. */
tacit_status train_memory_check(const tacit_model *model, const tacit_training *training,
                                tacit_pool *pool, uint64_t available,
                                tacit_error *err) TACIT_MUST_CHECK;

#endif
