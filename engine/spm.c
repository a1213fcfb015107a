#include "engine/spm.h"

#include "common/secret.h"
#include "common/text.h"
#include "engine/merge_queue.h"
#include "engine/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* A symbol of the text; neighbours by index, so that merging is O(1). */
typedef struct spm_symbol {
    uint32_t begin, size; /* in the escaped text; size 0 once merged into the left neighbour */
    uint32_t previous, next;
    int32_t token; /* -1: none */
} spm_symbol;

enum { NO_SYMBOL = UINT32_MAX, SPACE_BYTES = 3 };

static const char escaped_space[SPACE_BYTES + 1] = "\xe2\x96\x81";

void spm_scratch_free(spm_scratch *s)
{
    tacit_wipe_free(s->text);
    tacit_wipe_free(s->symbol);
    free(s->heap);
    free(s->split);
    *s = (spm_scratch){0};
}

/* ---- escaping ---------------------------------------------------------------------------- */

static size_t escape(char *to, const char *text, size_t size, bool space_first)
{
    char *at = to;
    if (space_first)
        at = (char *)memcpy(at, escaped_space, SPACE_BYTES) + SPACE_BYTES;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ' ')
            at = (char *)memcpy(at, escaped_space, SPACE_BYTES) + SPACE_BYTES;
        else
            *at++ = text[i];
    }
    return (size_t)(at - to);
}

static size_t escaped_size(const char *text, size_t size, bool space_first)
{
    size_t spaces = space_first;
    for (size_t i = 0; i < size; i++)
        spaces += text[i] == ' ';
    return size - (spaces - space_first) + spaces * SPACE_BYTES;
}

static tacit_status reserve_text(spm_scratch *s, size_t size)
{
    if (size <= s->text_capacity)
        return TACIT_OK;
    if (size >= UINT32_MAX)
        return TACIT_BAD_INPUT;
    tacit_wipe_free(s->text);
    s->text = malloc(size);
    s->text_capacity = s->text ? size : 0;
    return s->text ? TACIT_OK : TACIT_NO_MEMORY;
}

static tacit_status reserve_symbols(spm_scratch *s, size_t count)
{
    if (count <= s->symbol_capacity)
        return TACIT_OK;
    count += count / 2;
    tacit_wipe_free(s->symbol);
    free(s->heap);
    s->symbol = reallocarray(NULL, count, sizeof *s->symbol);
    s->heap = reallocarray(NULL, MERGE_QUEUED_PER_SYMBOL * count, sizeof *s->heap);
    s->symbol_capacity = s->symbol && s->heap ? count : 0;
    return s->symbol_capacity ? TACIT_OK : TACIT_NO_MEMORY;
}

/* ---- symbols ----------------------------------------------------------------------------- */

static size_t character_size(const char *text, size_t left)
{
    uint8_t lead = (uint8_t)*text;
    size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return n <= left && tacit_utf8_valid((const uint8_t *)text, n) ? n : 0;
}

static size_t count_symbols(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t at = 0; at < size; count++) {
        size_t n = character_size(text + at, size - at);
        at += n ? n : 1;
    }
    return count;
}

/* Control, unknown and byte tokens are no pieces of text. */
static int32_t find_piece(const tacit_tokenizer *t, const char *text, size_t size)
{
    int32_t id = size <= t->longest ? tokenizer_find_text(t, text, size) : -1;
    if (id < 0)
        return -1;
    uint8_t kind = t->token[id].kind;
    return kind == TOKEN_NORMAL || kind == TOKEN_USER_DEFINED || kind == TOKEN_UNUSED ? id : -1;
}

static size_t make_symbols(const tacit_tokenizer *t, spm_scratch *s, size_t from, size_t to)
{
    size_t count = 0;
    for (size_t at = from; at < to; count++) {
        size_t n = character_size(s->text + at, to - at);
        s->symbol[count] = (spm_symbol){.begin = (uint32_t)at,
                                        .size = (uint32_t)(n ? n : 1),
                                        .previous = count ? (uint32_t)(count - 1) : NO_SYMBOL,
                                        .next = (uint32_t)(count + 1),
                                        .token = n ? find_piece(t, s->text + at, n) : -1};
        at += n ? n : 1;
    }
    if (count)
        s->symbol[count - 1].next = NO_SYMBOL;
    return count;
}

/* ---- merging ----------------------------------------------------------------------------- */

/* Queues the pair that begins at `left` when its text is a token. Bytes that are no UTF-8 are part
 * of no token's text unless the vocabulary is damaged: then they merge too, and decode the same. */
static void consider(const tacit_tokenizer *t, spm_scratch *s, size_t *queued, uint32_t left)
{
    if (left == NO_SYMBOL || s->symbol[left].next == NO_SYMBOL)
        return;
    const spm_symbol *l = &s->symbol[left], *r = &s->symbol[l->next];
    int32_t id = find_piece(t, s->text + l->begin, (size_t)l->size + r->size);
    if (id < 0)
        return;
    merge_queue_push(s->heap, queued, (merge_candidate){t->rank[id], left, l->size, r->size, id});
    if (s->split && t->token[id].kind == TOKEN_UNUSED)
        s->split[id] = l->size;
}

static bool is_current(const spm_scratch *s, const merge_candidate *c)
{
    const spm_symbol *left = &s->symbol[c->left];
    return left->size == c->left_was && left->next != NO_SYMBOL &&
           s->symbol[left->next].size == c->right_was;
}

static void join(spm_scratch *s, const merge_candidate *c)
{
    spm_symbol *left = &s->symbol[c->left], *right = &s->symbol[left->next];
    left->size += right->size;
    left->next = right->next;
    left->token = c->merged;
    if (right->next != NO_SYMBOL)
        s->symbol[right->next].previous = c->left;
    right->size = 0;
}

static void merge(const tacit_tokenizer *t, spm_scratch *s, size_t count)
{
    size_t queued = 0;
    for (size_t i = 0; i + 1 < count; i++)
        consider(t, s, &queued, (uint32_t)i);
    while (queued) {
        merge_candidate c = merge_queue_pop(s->heap, &queued);
        if (!is_current(s, &c))
            continue;
        join(s, &c);
        consider(t, s, &queued, s->symbol[c.left].previous);
        consider(t, s, &queued, c.left);
    }
}

/* ---- tokens ------------------------------------------------------------------------------ */

/* True when all bytes of the text were appended as byte tokens. */
static bool put_bytes(const tacit_tokenizer *t, const char *text, size_t size, tacit_tokens *out,
                      tacit_status *status)
{
    for (size_t i = 0; i < size; i++)
        if (t->byte_token[(uint8_t)text[i]] < 0)
            return false;
    for (size_t i = 0; i < size && *status == TACIT_OK; i++)
        *status = tacit_tokens_push(out, t->byte_token[(uint8_t)text[i]]);
    return true;
}

/* What a vocabulary calls unused takes part in merging but comes apart in the end: the way it was
 * queued last, as the reference has it. No deeper than a token is long. */
static tacit_status put_unused(const tacit_tokenizer *t, const spm_scratch *s, spm_symbol symbol,
                               tacit_tokens *out)
{
    struct part {
        uint32_t begin, size;
    } part[TOKENIZER_MOST_TOKEN_BYTES] = {{symbol.begin, symbol.size}};
    size_t left = 1;
    tacit_status status = TACIT_OK;
    while (left && status == TACIT_OK) {
        struct part p = part[--left];
        int32_t id = find_piece(t, s->text + p.begin, p.size);
        uint32_t split = id >= 0 && t->token[id].kind == TOKEN_UNUSED ? s->split[id] : 0;
        if (split > 0 && split < p.size) {
            part[left++] = (struct part){p.begin + split, p.size - split};
            part[left++] = (struct part){p.begin, split};
        } else if (id >= 0) {
            status = tacit_tokens_push(out, id);
        } else if (!put_bytes(t, s->text + p.begin, p.size, out, &status) && t->unknown >= 0) {
            status = tacit_tokens_push(out, t->unknown);
        }
    }
    return status;
}

static tacit_status put_symbols(const tacit_tokenizer *t, spm_scratch *s, tacit_tokens *out)
{
    tacit_status status = TACIT_OK;
    for (uint32_t i = 0; i != NO_SYMBOL && status == TACIT_OK; i = s->symbol[i].next) {
        const spm_symbol *symbol = &s->symbol[i];
        bool was_unknown = s->unknown;
        s->unknown = false;
        if (symbol->token >= 0 && t->token[symbol->token].kind == TOKEN_UNUSED && s->split)
            status = put_unused(t, s, *symbol, out);
        else if (symbol->token >= 0)
            status = tacit_tokens_push(out, symbol->token);
        else
            s->unknown = !put_bytes(t, s->text + symbol->begin, symbol->size, out, &status);
        if (s->unknown && !was_unknown && t->unknown >= 0)
            status = tacit_tokens_push(out, t->unknown);
    }
    return status;
}

static tacit_status fail_memory(tacit_status status, tacit_error *err)
{
    return tacit_fail(err, status, "no memory for the tokens");
}

static tacit_status encode_word(const tacit_tokenizer *t, spm_scratch *s, size_t from, size_t to,
                                tacit_tokens *out, tacit_error *err)
{
    size_t symbols = count_symbols(s->text + from, to - from);
    uint64_t bytes = (symbols + symbols / 2) *
                     (uint64_t)(sizeof *s->symbol + MERGE_QUEUED_PER_SYMBOL * sizeof *s->heap);
    tacit_status status = tokenizer_judge_piece(to - from, bytes, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(reserve_symbols(s, symbols), done);
    merge(t, s, make_symbols(t, s, from, to));
    TACIT_TRY(put_symbols(t, s, out), done);
done:
    return status == TACIT_OK ? status : fail_memory(status, err);
}

size_t spm_next_word(const char *text, size_t size, size_t from)
{
    for (size_t at = from + 1; at + SPACE_BYTES <= size; at++) {
        bool after_space = at >= from + SPACE_BYTES &&
                           memcmp(text + at - SPACE_BYTES, escaped_space, SPACE_BYTES) == 0;
        if (text[at] == escaped_space[0] && !after_space &&
            memcmp(text + at, escaped_space, SPACE_BYTES) == 0)
            return at;
    }
    return size;
}

/* Merging cannot cross the beginning of a word where no token does, and the order of merges in one
 * word does not depend on other words: word by word the tokens are the same, and sooner found. */
tacit_status spm_encode(const tacit_tokenizer *t, spm_scratch *s, const char *text, size_t size,
                        bool space_first, tacit_tokens *out, tacit_error *err)
{
    size_t escaped = escaped_size(text, size, space_first);
    if (size == 0)
        return TACIT_OK;
    s->unknown = false;
    tacit_status status = reserve_text(s, escaped);
    if (status != TACIT_OK)
        return fail_memory(status, err);
    escape(s->text, text, size, space_first);
    if (t->has_unused && !s->split)
        s->split = calloc(t->count, sizeof *s->split);
    if (t->has_unused && !s->split)
        return fail_memory(TACIT_NO_MEMORY, err);
    for (size_t at = 0, next; at < escaped && status == TACIT_OK; at = next) {
        next = t->words_stay_apart ? spm_next_word(s->text, escaped, at) : escaped;
        status = encode_word(t, s, at, next, out, err);
    }
    return status;
}

/* ---- back to text ------------------------------------------------------------------------ */

tacit_status spm_append_decoded(const char *text, size_t size, tacit_buffer *out)
{
    tacit_status status = TACIT_OK;
    size_t at = 0;
    while (at < size && status == TACIT_OK) {
        const char *space = memmem(text + at, size - at, escaped_space, SPACE_BYTES);
        size_t before = space ? (size_t)(space - text) - at : size - at;
        status = tacit_buffer_append(out, text + at, before);
        if (space && status == TACIT_OK)
            status = tacit_buffer_append(out, " ", 1);
        at += before + (space ? SPACE_BYTES : 0);
    }
    return status;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int spm_byte_of(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = digit_of(text[3]), low = digit_of(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
