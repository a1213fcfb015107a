/* Importance matrices: the mean square of what enters each linear, by column.
 *
 * With independent columns, the error that a change e of a row of W makes in the output is
 * sum_i e_i^2 E[x_i^2], so these are the weights under which quantizing W costs the output least.
 * Files are the ecosystem's GGUF form: general.type "imatrix"; per weight NAME a tensor
 * NAME.in_sum2 [columns, matrices] (F32, sums of squares) and NAME.counts [1, matrices] (F32, rows
 * summed); imatrix.datasets (strings), imatrix.chunk_count, imatrix.chunk_size (u32). */
#ifndef TACIT_ENGINE_IMPORTANCE_H
#define TACIT_ENGINE_IMPORTANCE_H

#include "engine/gguf.h"

typedef struct importance_entry {
    char *name; /* of the weight: "blk.0.attn_q.weight" */
    size_t columns, matrices;
    double *sum;  /* [matrices, columns]: of squares */
    double *rows; /* [matrices]: how many were summed */
} importance_entry;

typedef struct importance {
    importance_entry *entry;
    size_t count;
    bool sorted;         /* by name, as read; an entry that is added ends that */
    char *dataset;       /* where the rows came from, or NULL */
    uint32_t chunks;     /* inputs that were seen */
    uint32_t chunk_size; /* their mean length in rows */
} importance;

/* Zero-initialise; free in any state. */
void importance_free(importance *m);

/* A new entry of zeros, or the one of that name. NULL without memory. Pointers to earlier entries
 * are void. */
importance_entry *importance_add(importance *m, const char *name, size_t columns, size_t matrices);
const importance_entry *importance_find(const importance *m, const char *name);

/* What quantization takes: mean squares [columns] of one matrix; 1 each where no row was seen (an
 * expert that no token chose). */
void importance_mean(const importance_entry *e, size_t matrix, float *out);

/* From an open file. TACIT_BAD_INPUT names what is wrong: another kind of file, sums without counts
 * or the reverse, shapes that do not fit, values that are not finite or negative. Tensors of other
 * names are not looked at. `path` is what importance_load opens. */
tacit_status importance_read(importance *out, const gguf_file *file,
                             tacit_error *err) TACIT_MUST_CHECK;
tacit_status importance_load(importance *out, const char *path, tacit_error *err) TACIT_MUST_CHECK;
tacit_status importance_save(const importance *m, const char *path,
                             tacit_error *err) TACIT_MUST_CHECK;

#endif
