/* Logits at every position of texts given as tokens, for check_logits.py and check_types.py:
 *
 *   dump_logits MODEL.gguf exact|fast [THREADS] <TEXTS
 *
 * Every line of standard input is a text: its tokens, apart by spaces. Out go [tokens, vocabulary]
 * of each as fp32 in the machine's order: `tacit logits` prints the same as text, which takes
 * longer than computing it. */
#include "engine/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 4096

typedef struct dump {
    tacit_model *model;
    tacit_pool *pool;
    tacit_context *context;
    tacit_row row[MAX_ROWS];
} dump;

static tacit_status put_row(void *ctx, size_t row, const float *logits)
{
    (void)row;
    size_t vocab = tacit_model_vocab(((const dump *)ctx)->model);
    return fwrite(logits, sizeof *logits, vocab, stdout) == vocab ? TACIT_OK : TACIT_FAILED;
}

static size_t read_rows(tacit_row *row, char *line)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \n", &rest); word && n < MAX_ROWS;
         word = strtok_r(NULL, " \n", &rest), n++)
        row[n] = (tacit_row){.token = (int32_t)strtol(word, NULL, 10), .position = (uint32_t)n};
    return n;
}

static tacit_status put_texts(dump *d, tacit_error *err)
{
    char *line = NULL;
    size_t size = 0;
    tacit_status status = TACIT_OK;
    while (status == TACIT_OK && getline(&line, &size, stdin) > 0) {
        size_t n = read_rows(d->row, line);
        tacit_context_truncate(d->context, 0);
        if (n > 0)
            status = tacit_context_feed_all(d->context, d->row, n, NULL, 0, put_row, d, err);
    }
    free(line);
    return status;
}

static tacit_status run(dump *d, int argc, char **argv, tacit_error *err)
{
    const tacit_context_spec spec = {
        .precision = strcmp(argv[2], "exact") == 0 ? TACIT_EXACT : TACIT_FAST,
        .max_rows = MAX_ROWS,
    };
    tacit_status status;
    TACIT_TRY(tacit_model_load(&d->model, argv[1], NULL, 0, NULL, err), done);
    TACIT_TRY(tacit_pool_new(&d->pool, argc > 3 ? strtoul(argv[3], NULL, 10) : 0, err), done);
    TACIT_TRY(tacit_context_new(&d->context, d->model, &spec, d->pool, err), done);
    TACIT_TRY(put_texts(d, err), done);
done:
    return status;
}

int main(int argc, char **argv)
{
    static dump d;
    tacit_error err = {0};
    if (argc < 3 || (strcmp(argv[2], "exact") != 0 && strcmp(argv[2], "fast") != 0)) {
        fputs("usage: dump_logits MODEL.gguf exact|fast [THREADS] <TEXTS\n", stderr);
        return 2;
    }
    tacit_status status = run(&d, argc, argv, &err);
    if (status != TACIT_OK)
        fprintf(stderr, "dump_logits: %s\n", err.message);
    tacit_context_free(d.context);
    tacit_pool_free(d.pool);
    tacit_model_free(d.model);
    return tacit_exit_code(status);
}
