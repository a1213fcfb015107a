/* What a kind of projector is to its tower: how it reads its part of a file, and how the tower's
 * features become rows. Another kind is one file vision_KIND.c with such a table entry. */
#ifndef TACIT_ENGINE_VISION_PROJECTOR_H
#define TACIT_ENGINE_VISION_PROJECTOR_H

#include "engine/vision_loader.h"

struct vision_projector {
    const char *name; /* clip.projector_type */
    /* Keys, once the tower's are known: judges them, sets shape.rows. */
    tacit_status (*read_keys)(vision_loader *t);
    /* Tensors, once the tower's are taken: takes its own, sets shape.out_width. */
    tacit_status (*take)(vision_loader *t);
    /* Floats of work memory for a forward, or for a backward. */
    size_t (*work)(const tacit_vision *v, bool backward);
    /* rows[shape.rows, out_width] from features[patches, shape.features * width]. */
    void (*forward)(vision_pass *p, float *rows, const float *features, float *work);
    /* Adds to the gradients wanted; d_features is written, or NULL when it is not wanted. */
    void (*backward)(vision_pass *p, float *d_features, float *const *grads, const float *d_rows,
                     const float *features, float *work);
};

extern const vision_projector vision_idefics3, vision_mlp;

#endif
