#include "engine/train_examples.h"

#include "common/log.h"
#include "engine/dataset.h"
#include "engine/trainer.h"

#include <stdio.h>
#include <stdlib.h>

/* All examples of all epochs are held; each is small, and their number is the data's. */
static tacit_status count_memory(train_examples *set, const tacit_input *in, size_t width,
                                 tacit_error *err)
{
    char what[64];
    snprintf(what, sizeof what, "the next of %zu examples", set->count);
    return tacit_memory_tally_add(&set->taken, tacit_input_bytes(in, width), what,
                                  "give fewer, or smaller media", err);
}

static tacit_status add_example(train_examples *set, const train_examples_setup *s,
                                const tacit_dataset *d, size_t i, tacit_error *err)
{
    tacit_input *in = &set->input[set->count];
    tacit_status status = tacit_example_build(in, s->model, &d->record[i], &s->options, err);
    if (status == TACIT_OK)
        status = tacit_training_prepend(s->model, s->spec, in, err);
    if (status == TACIT_OK && s->cache)
        status = tacit_row_cache_fill(s->cache, in, err);
    if (status == TACIT_OK)
        status = count_memory(set, in, tacit_model_embedding(s->model), err);
    if (status != TACIT_OK) {
        tacit_input_free(in);
        *in = (tacit_input){0};
        if (status != TACIT_BAD_INPUT || s->strict)
            return tacit_fail_context(err, "%s:%zu", d->path, d->record[i].line);
        tacit_log_warn("%s:%zu: %s; left out", d->path, d->record[i].line, err->message);
        set->skipped++;
        return TACIT_OK;
    }
    set->rows += in->count;
    set->longest = in->count > set->longest ? in->count : set->longest;
    set->count++;
    return TACIT_OK;
}

tacit_status train_examples_load(train_examples *out, const char *path,
                                 const train_examples_setup *setup, tacit_error *err)
{
    tacit_dataset d = {0};
    tacit_status status =
        tacit_status_of_input(tacit_dataset_load(&d, path, setup->strict, err), err);
    if (status != TACIT_OK)
        return status;
    out->skipped = d.bad_lines;
    out->input = calloc(d.count ? d.count : 1, sizeof *out->input);
    if (!out->input)
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu examples", path, d.count);
    for (size_t i = 0; i < d.count && status == TACIT_OK; i++)
        status = add_example(out, setup, &d, i, err);
    if (status == TACIT_OK && out->count == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: no usable example", path);
    tacit_dataset_free(&d);
    return status;
}

void train_examples_free(train_examples *set)
{
    for (size_t i = 0; i < set->count; i++)
        tacit_input_free(&set->input[i]);
    free(set->input);
    *set = (train_examples){0};
}
