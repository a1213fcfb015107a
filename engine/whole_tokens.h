/* Tokens that are found in raw text as they are: longer ones before shorter ones, of one length
 * from left to right, none within another. Private to the engine room. */
#ifndef TACIT_ENGINE_WHOLE_TOKENS_H
#define TACIT_ENGINE_WHOLE_TOKENS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WHOLE_MOST_BYTES = 256 };

typedef struct whole_token {
    const char *text; /* not empty, at most WHOLE_MOST_BYTES */
    uint32_t size;
    int32_t id;
    int32_t shorter; /* index of the longest other one that this one begins with, or -1 */
} whole_token;

typedef struct whole_tokens {
    whole_token *token; /* ascending by text */
    size_t count;
    bool starts[256]; /* first bytes of any */
} whole_tokens;

/* The `count` tokens of `token` (malloc'd; taken over) in any order, no two of one text; the texts
 * outlive the set. */
void whole_tokens_make(whole_tokens *out, whole_token *token, size_t count);
void whole_tokens_free(whole_tokens *w);

/* What begins at each byte of a text: none, a token's id, or nothing because one covers it. */
enum { WHOLE_NONE = -1, WHOLE_COVERED = -2 };

/* Fills at[size]. `scratch` has room for `size` numbers. Time is that of sorting the places where a
 * token begins, whatever the text and the tokens are. TACIT_NO_MEMORY. */
tacit_status whole_tokens_find(const whole_tokens *w, const char *text, size_t size, int32_t *at,
                               int32_t *scratch) TACIT_MUST_CHECK;

#endif
