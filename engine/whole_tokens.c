/* Of the tokens that a text begins with the longest is the last one in order that does not come
 * after the text, or one of those that this one begins with in turn: all between them share that
 * beginning. So one binary search finds it, and the chain of `shorter` all others.
 *
 * Every place has one candidate in a queue. One that runs into a token which is there already gives
 * way to the longest that ends before it. That happens at most eight times a place: the next token
 * in the way is at least as long as the new candidate and lies before the last one, so that the
 * distance to it halves. */
#include "engine/whole_tokens.h"

#include "common/secret.h"

#include <stdlib.h>
#include <string.h>

/* ---- the set ---- */

static int compare_texts(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int by_text(const void *a, const void *b)
{
    const whole_token *x = a, *y = b;
    return compare_texts(x->text, x->size, y->text, y->size);
}

static bool begins(const whole_token *t, const char *text, size_t size)
{
    return t->size <= size && memcmp(t->text, text, t->size) == 0;
}

void whole_tokens_make(whole_tokens *out, whole_token *token, size_t count)
{
    *out = (whole_tokens){.token = token, .count = count};
    if (count > 0)
        qsort(token, count, sizeof *token, by_text);
    for (size_t i = 0; i < count; i++) {
        int32_t before = (int32_t)i - 1;
        while (before >= 0 && !begins(&token[before], token[i].text, token[i].size))
            before = token[before].shorter;
        token[i].shorter = before;
        out->starts[(uint8_t)token[i].text[0]] = true;
    }
}

void whole_tokens_free(whole_tokens *w)
{
    free(w->token);
    *w = (whole_tokens){0};
}

/* The longest of at most `most` bytes that token `i` begins with, itself included; -1: none. */
static int32_t at_most(const whole_tokens *w, int32_t i, size_t most)
{
    while (i >= 0 && w->token[i].size > most)
        i = w->token[i].shorter;
    return i;
}

/* The longest that the text begins with, or -1. */
static int32_t longest_at(const whole_tokens *w, const char *text, size_t size)
{
    size_t least = 0, most = w->count, same = 0;
    while (least < most) {
        size_t middle = least + (most - least) / 2;
        const whole_token *t = &w->token[middle];
        if (compare_texts(t->text, t->size, text, size) <= 0)
            least = middle + 1;
        else
            most = middle;
    }
    if (least == 0)
        return -1;
    const whole_token *last = &w->token[least - 1];
    while (same < size && same < last->size && last->text[same] == text[same])
        same++;
    return at_most(w, (int32_t)least - 1, same);
}

/* ---- the queue: a binary heap, longer ones first, then left ones ---- */

typedef uint64_t place; /* WHOLE_MOST_BYTES less the length, then where it begins */

static place make_place(size_t length, size_t at)
{
    return (place)(WHOLE_MOST_BYTES - length) << 32 | (uint32_t)at;
}

static void push(place *heap, size_t *count, place p)
{
    size_t at = (*count)++;
    for (; at > 0 && p < heap[(at - 1) / 2]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = p;
}

static place pop(place *heap, size_t *count)
{
    place top = heap[0], last = heap[--*count];
    size_t at = 0;
    for (size_t child = 1; child < *count; child = 2 * at + 1) {
        child += child + 1 < *count && heap[child + 1] < heap[child];
        if (last <= heap[child])
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* ---- finding ---- */

/* candidate[i]: the longest token at each byte, or -1. Returns how many there are. */
static size_t find_candidates(const whole_tokens *w, const char *text, size_t size,
                              int32_t *candidate)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        candidate[i] = w->starts[(uint8_t)text[i]] ? longest_at(w, text + i, size - i) : -1;
        count += candidate[i] >= 0;
    }
    return count;
}

static size_t free_bytes(const int32_t *at, size_t most)
{
    size_t n = 0;
    while (n < most && at[n] == WHOLE_NONE)
        n++;
    return n;
}

static void put(int32_t *at, const whole_token *t)
{
    at[0] = t->id;
    for (uint32_t j = 1; j < t->size; j++)
        at[j] = WHOLE_COVERED;
}

tacit_status whole_tokens_find(const whole_tokens *w, const char *text, size_t size, int32_t *at,
                               int32_t *scratch)
{
    size_t count = 0, candidates = find_candidates(w, text, size, scratch);
    for (size_t i = 0; i < size; i++)
        at[i] = WHOLE_NONE;
    if (candidates == 0)
        return TACIT_OK;
    place *heap = reallocarray(NULL, candidates, sizeof *heap);
    if (!heap)
        return TACIT_NO_MEMORY;
    for (size_t i = 0; i < size; i++)
        if (scratch[i] >= 0)
            push(heap, &count, make_place(w->token[scratch[i]].size, i));
    while (count > 0) {
        size_t i = (uint32_t)pop(heap, &count);
        size_t length = w->token[scratch[i]].size, room = free_bytes(at + i, length);
        if (room == length) {
            put(at + i, &w->token[scratch[i]]);
            continue;
        }
        scratch[i] = at_most(w, scratch[i], room);
        if (scratch[i] >= 0)
            push(heap, &count, make_place(w->token[scratch[i]].size, i));
    }
    tacit_wipe_free(heap);
    return TACIT_OK;
}
