/* Whether memory is judged, one judging after the other: an operation is run again and again, each
 * time with one more of its judgings granted and the next one told that nothing is there, until it
 * succeeds. Include after cmocka.h. */
#ifndef TACIT_TESTS_MEMORY_PROBE_H
#define TACIT_TESTS_MEMORY_PROBE_H

#include "common/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_PROBE_MOST = 4000 };

typedef tacit_status (*memory_probed)(void *ctx, tacit_error *err);

static inline uint64_t memory_probe_grant(void *ctx)
{
    size_t *left = ctx;
    return *left == 0 ? 0 : (--*left, UINT64_MAX);
}

/* One run in which the first `granted` judgings find memory without end, and later ones none. */
static inline tacit_status memory_probe_run(size_t granted, memory_probed run, void *ctx,
                                            tacit_error *err)
{
    *err = (tacit_error){0};
    tacit_memory_inject(memory_probe_grant, &granted);
    tacit_status status = run(ctx, err);
    tacit_memory_inject(NULL, NULL);
    return status;
}

/* The refusals, one a line in the order of the judgings; the caller frees them. */
static inline char *memory_probe_refusals(memory_probed run, void *ctx)
{
    tacit_error err;
    tacit_status status = TACIT_NO_MEMORY;
    char *all = calloc(1, 1);
    for (size_t granted = 0; status == TACIT_NO_MEMORY; granted++) {
        if (granted == MEMORY_PROBE_MOST)
            fail_msg("%d judgings, and no end: %s", MEMORY_PROBE_MOST, err.message);
        status = memory_probe_run(granted, run, ctx, &err);
        if (status != TACIT_NO_MEMORY)
            break;
        if (!strstr(err.message, " needs ") || !strstr(err.message, " available"))
            fail_msg("it should say what is needed and what there is: %s", err.message);
        size_t used = strlen(all), more = strlen(err.message) + 2;
        all = realloc(all, used + more);
        assert_non_null(all);
        snprintf(all + used, more, "%s\n", err.message);
    }
    if (status != TACIT_OK)
        fail_msg("%s", err.message);
    return all;
}

/* The refusals hold these words, one after the other. */
static inline void memory_probe_expect(memory_probed run, void *ctx, const char *const *words,
                                       size_t count)
{
    char *all = memory_probe_refusals(run, ctx), *at = all;
    for (size_t i = 0; i < count; i++) {
        char *found = strstr(at, words[i]);
        if (!found)
            fail_msg("'%s' is not judged, or not in its turn; these are:\n%s", words[i], all);
        at = found + strlen(words[i]);
    }
    free(all);
}

#define MEMORY_PROBE_EXPECT(run, ctx, ...)                                                         \
    do {                                                                                           \
        const char *const words_[] = {__VA_ARGS__};                                                \
        memory_probe_expect(run, ctx, words_, sizeof words_ / sizeof words_[0]);                   \
    } while (0)

#endif
