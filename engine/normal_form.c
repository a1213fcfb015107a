/* utf8proc decomposes and composes; its own ordering of marks swaps neighbours, so that a run of n
 * marks, which need no letter between them, takes n * n steps: half a megabyte of them an hour.
 * Here a run is sorted by counting. */
#include "engine/normal_form.h"

#include "common/memory_limit.h"
#include "common/secret.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Canonical mappings alone; to be composed again. */
#define FORM_C ((utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE))

enum { CLASSES = 256 };

typedef struct decomposed {
    int32_t *character;
    size_t count;
    int32_t *scratch; /* as many */
} decomposed;

/* Decomposes the text into `to`, which has room for `room`; returns how many that are or would be,
 * or one of utf8proc's errors. */
static utf8proc_ssize_t decompose(int32_t *to, size_t room, const char *text, size_t size)
{
    size_t count = 0;
    for (size_t at = 0; at < size;) {
        int32_t character;
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                 (utf8proc_ssize_t)(size - at), &character);
        if (step < 0)
            return step;
        size_t left = count < room ? room - count : 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(character, left ? to + count : NULL,
                                                     (utf8proc_ssize_t)left, FORM_C, NULL);
        if (n < 0)
            return n;
        count += (size_t)n;
        at += (size_t)step;
    }
    return (utf8proc_ssize_t)count;
}

static unsigned class_of(int32_t character)
{
    return (unsigned)utf8proc_get_property(character)->combining_class % CLASSES;
}

/* Marks of one class stay in their order. */
static void sort_run(int32_t *run, size_t n, int32_t *scratch)
{
    size_t place[CLASSES + 1] = {0};
    for (size_t i = 0; i < n; i++)
        place[class_of(run[i]) + 1]++;
    for (size_t c = 0; c < CLASSES; c++)
        place[c + 1] += place[c];
    for (size_t i = 0; i < n; i++)
        scratch[place[class_of(run[i])]++] = run[i];
    memcpy(run, scratch, n * sizeof *run);
}

/* Runs of characters whose class is not 0 are put into its order. */
static void order_marks(decomposed *d)
{
    for (size_t at = 0, end; at < d->count; at = end + 1) {
        unsigned before = 0;
        bool ordered = true;
        for (end = at; end < d->count; end++) {
            unsigned class = class_of(d->character[end]);
            if (class == 0)
                break;
            ordered &= class >= before;
            before = class;
        }
        if (!ordered)
            sort_run(d->character + at, end - at, d->scratch);
    }
}

static tacit_status take_room(decomposed *d, size_t count, tacit_error *err)
{
    static const char what[] = "a text in normal form C", advice[] = "give a shorter text";
    void *character, *scratch;
    d->count = count;
    tacit_status status =
        tacit_memory_alloc(&character, count + 1, sizeof *d->character, what, advice, err);
    if (status != TACIT_OK)
        return status;
    d->character = character;
    status = tacit_memory_alloc(&scratch, count, sizeof *d->scratch, what, advice, err);
    d->scratch = scratch;
    return status;
}

tacit_status normal_form_c(char **out, size_t *n, const char *text, size_t size, tacit_error *err)
{
    decomposed d = {0};
    utf8proc_ssize_t made = decompose(NULL, 0, text, size);
    tacit_status status = TACIT_OK;
    *out = NULL;
    if (made >= 0)
        status = take_room(&d, (size_t)made, err);
    if (status == TACIT_OK && made >= 0)
        made = decompose(d.character, d.count, text, size);
    if (status == TACIT_OK && made >= 0) {
        order_marks(&d);
        made = utf8proc_reencode(d.character, made, FORM_C);
    }
    if (status == TACIT_OK && made < 0)
        status =
            tacit_fail(err, TACIT_FAILED, "cannot normalize the text: %s", utf8proc_errmsg(made));
    tacit_wipe_free(d.scratch);
    if (status != TACIT_OK) {
        tacit_wipe_free(d.character);
        return status;
    }
    *out = (char *)d.character;
    *n = (size_t)made;
    return TACIT_OK;
}
