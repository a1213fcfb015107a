/* One optimizer step of several units, with privacy and without: `bench_training step OPTIONS`. */
#ifndef TACIT_BENCH_TRAINING_STEP_H
#define TACIT_BENCH_TRAINING_STEP_H

#include "engine/model_parts.h"
#include "engine/trainer.h"

int training_step_main(int argc, char **argv);

/* Of bench_training.c, for both. They end the program where they cannot answer. */
tacit_model *open_model(const char *path);
tacit_input make_input(const tacit_model *m, size_t rows, size_t picture, size_t trained);
/* Multiplications and additions of the products that an example needs: forward and the gradient of
 * the inputs, that of the weights where they are trained; the output layer on the trained rows. */
double example_flops(const tacit_model *m, tacit_trainable_kind kind, size_t rows, size_t trained);
/* The line NAME of /proc/self/status in bytes. */
unsigned long status_bytes(const char *name);

#endif
