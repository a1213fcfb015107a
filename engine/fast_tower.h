/* The packed weights of an encoder's linears: made at the first fast pass, shared by all of them.
 *
 * Weights in F32, F16 and BF16, as encoders mostly have them, are wanted only where the kernels
 * have tiles for them. As with text models (fast_model.h) the file's pages are given back to the
 * system.
 */
#ifndef TACIT_ENGINE_FAST_TOWER_H
#define TACIT_ENGINE_FAST_TOWER_H

#include "engine/fast_pack.h"
#include "engine/gguf.h"

typedef struct fast_tower fast_tower;

/* NULL when there is no memory. */
fast_tower *fast_tower_new(void);
void fast_tower_free(fast_tower *t);

/* out[count]: the packed weights of linear[count] of `file`, panels NULL where they are not wanted
 * or no form holds them. `pool` (the caller's own) does the work at the first call; later calls
 * must bring the same. They live as long as `t`. Thread-safe. TACIT_NO_MEMORY. */
tacit_status fast_tower_get(fast_tower *t, const fast_weight **out, const tacit_linear *linear,
                            const bool *wanted, size_t count, const gguf_file *file,
                            tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;

#endif
