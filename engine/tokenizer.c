#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/spm.h"
#include "engine/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 1 << 28 };    /* of one call */
enum { JUDGED_PIECE = 1 << 16 }; /* shorter ones take a few megabytes */

/* ---- the alphabet ------------------------------------------------------------------------ */

/* Both ranges of the alphabet lie below U+0800. */
size_t tokenizer_encode_character(char *out, uint16_t character)
{
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3f));
    return 2;
}

/* The byte that the text at `at` stands for, or -1; *size is how much of the text that is. */
static int decode_character(const tacit_tokenizer *t, const char *at, size_t left, size_t *size)
{
    const uint8_t *b = (const uint8_t *)at;
    unsigned character = b[0];
    *size = 1;
    if (left > 1 && (b[0] & 0xe0) == 0xc0 && (b[1] & 0xc0) == 0x80) {
        character = (b[0] & 0x1fu) << 6 | (b[1] & 0x3f);
        *size = 2;
    } else if (b[0] >= 0x80) {
        return -1;
    }
    return character < ALPHABET_END ? t->character_byte[character] : -1;
}

/* ---- finding tokens ---------------------------------------------------------------------- */

/* Keyed, so that no vocabulary can be made whose texts all fall into one slot: short texts by a
 * secret multiplier (Dietzfelbinger 1997), long ones by SipHash. */
static size_t first_slot(const tacit_tokenizer *t, const char *text, size_t size)
{
    uint64_t hash = 0;
    if (size <= sizeof hash) {
        memcpy(&hash, text, size);
        hash = (hash + t->hash_add) * t->hash_multiply;
    } else {
        crypto_shorthash((uint8_t *)&hash, (const uint8_t *)text, size, t->hash_key);
    }
    return (size_t)(hash >> t->slot_shift);
}

int32_t *tokenizer_find_slot(const tacit_tokenizer *t, const char *text, size_t size)
{
    size_t at = first_slot(t, text, size);
    for (; t->slot[at] >= 0; at = (at + 1) & t->slot_mask) {
        const token *found = &t->token[t->slot[at]];
        if (found->size == size && memcmp(found->text, text, size) == 0)
            break;
    }
    return &t->slot[at];
}

int32_t tokenizer_find_text(const tacit_tokenizer *t, const char *text, size_t size)
{
    return *tokenizer_find_slot(t, text, size);
}

bool tokenizer_is_whole(const token *k, bool special)
{
    return k->size && (k->kind == TOKEN_USER_DEFINED ||
                       (special && (k->kind == TOKEN_CONTROL || k->kind == TOKEN_UNKNOWN)));
}

bool tokenizer_is_ordinary(const tacit_tokenizer *t, int32_t id)
{
    return t->token[id].kind != TOKEN_CONTROL && t->token[id].kind != TOKEN_UNKNOWN;
}

int32_t tacit_tokenizer_find(const tacit_tokenizer *t, const char *text)
{
    return tokenizer_find_text(t, text, strlen(text));
}

void tacit_tokenizer_free(tacit_tokenizer *t)
{
    if (!t)
        return;
    bpe_merges_free(t->merges);
    pretokenizer_free(t->pretokenizer);
    free(t->token);
    free(t->texts);
    free(t->slot);
    whole_tokens_free(&t->whole[0]);
    whole_tokens_free(&t->whole[1]);
    free(t->rank);
    free(t->chat_template);
    free(t);
}

/* ---- text to tokens ---------------------------------------------------------------------- */

typedef struct encoding {
    const tacit_tokenizer *t;
    tacit_tokens *out;
    int32_t *at;      /* what begins at each byte of the text (whole_tokens.h) */
    int32_t *symbol;  /* scratch, as many as the text has bytes */
    size_t n_symbols; /* room for them */
    bpe_scratch bpe;
    spm_scratch spm;
    tacit_error *err;
} encoding;

/* The token whose text is the whole piece, or -1. */
static int32_t whole_piece(const tacit_tokenizer *t, const char *text, size_t size)
{
    char mapped[TOKENIZER_MOST_TOKEN_BYTES + 2];
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (n > t->longest)
            return -1;
        n += tokenizer_encode_character(mapped + n, t->byte_character[(uint8_t)text[i]]);
    }
    int32_t id = tokenizer_find_text(t, mapped, n);
    return id >= 0 && tokenizer_is_ordinary(t, id) ? id : -1;
}

tacit_status tokenizer_judge_piece(size_t size, uint64_t bytes, tacit_error *err)
{
    char what[96];
    if (size < JUDGED_PIECE)
        return TACIT_OK;
    snprintf(what, sizeof what, "a piece of %zu bytes, in which nothing divides a text,", size);
    return tacit_memory_judge(bytes, what, "give a shorter text", err);
}

/* Pieces may be longer than the text was: normalizing can lengthen it. */
static tacit_status reserve_symbols(encoding *e, size_t count)
{
    if (count <= e->n_symbols)
        return TACIT_OK;
    tacit_wipe_free(e->symbol);
    e->symbol = reallocarray(NULL, count, sizeof *e->symbol);
    e->n_symbols = e->symbol ? count : 0;
    return e->symbol ? TACIT_OK : TACIT_NO_MEMORY;
}

/* Bytes that the vocabulary lacks yield nothing, as in the reference implementations. */
static tacit_status encode_piece(void *ctx, const char *text, size_t size)
{
    encoding *e = ctx;
    const tacit_tokenizer *t = e->t;
    size_t count = 0;
    tacit_status status;
    int32_t whole = pretokenizer_ignores_merges(t->pretokenizer) ? whole_piece(t, text, size) : -1;
    if (whole >= 0) {
        TACIT_TRY(tacit_tokens_push(e->out, whole), done);
        return TACIT_OK;
    }
    TACIT_TRY(reserve_symbols(e, size), done);
    for (size_t i = 0; i < size; i++) {
        int32_t id = t->byte_token[(uint8_t)text[i]];
        if (id >= 0)
            e->symbol[count++] = id;
    }
    status = tokenizer_judge_piece(size, bpe_scratch_bytes(count), e->err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(bpe_merge(t->merges, &e->bpe, e->symbol, &count), done);
    for (size_t i = 0; i < count && status == TACIT_OK; i++)
        status = tacit_tokens_push(e->out, e->symbol[i]);
done:
    return status == TACIT_OK ? status : tacit_fail(e->err, status, "no memory for the tokens");
}

static tacit_status encode_free(encoding *e, const char *text, size_t size, bool space_first)
{
    if (!e->t->is_spm)
        return pretokenizer_run(e->t->pretokenizer, text, size, encode_piece, e, e->err);
    return spm_encode(e->t, &e->spm, text, size, space_first, e->out, e->err);
}

/* A space is put before what begins a text or follows a whole token. */
static tacit_status encode_between(encoding *e, const char *text, size_t size, bool continues)
{
    tacit_status status = TACIT_OK;
    size_t i = 0;
    while (i < size && status == TACIT_OK) {
        size_t begin = i;
        if (e->at[i] != WHOLE_NONE) {
            status = tacit_tokens_push(e->out, e->at[i]);
            for (i++; i < size && e->at[i] == WHOLE_COVERED; i++)
                ;
            continue;
        }
        while (i < size && e->at[i] == WHOLE_NONE)
            i++;
        status =
            encode_free(e, text + begin, i - begin, e->t->adds_space && !(continues && begin == 0));
    }
    return status;
}

/* What begins at each byte, the symbols of a piece, and the queue of whole tokens. */
static tacit_status judge_text(size_t size, tacit_error *err)
{
    char what[64];
    if (size < JUDGED_PIECE)
        return TACIT_OK;
    snprintf(what, sizeof what, "a text of %zu bytes", size);
    return tacit_memory_judge(16 * (uint64_t)size, what, "give a shorter text", err);
}

static tacit_status tokenize(const tacit_tokenizer *t, const char *text, size_t size, bool special,
                             bool continues, tacit_tokens *out, tacit_error *err)
{
    if (size > MOST_TEXT)
        return tacit_fail(err, TACIT_BAD_INPUT, "expected a text of at most %d bytes, found %zu",
                          MOST_TEXT, size);
    encoding e = {.t = t, .out = out, .err = err};
    tacit_status status = judge_text(size, err);
    if (status != TACIT_OK)
        return status;
    e.at = malloc((size + 1) * sizeof *e.at);
    status = reserve_symbols(&e, size + 1);
    if (!e.at)
        status = TACIT_NO_MEMORY;
    if (status == TACIT_OK)
        status = whole_tokens_find(&t->whole[special], text, size, e.at, e.symbol);
    if (status == TACIT_OK)
        status = encode_between(&e, text, size, continues);
    else
        status = tacit_fail(err, status, "no memory for a text of %zu bytes", size);
    bpe_scratch_free(&e.bpe);
    spm_scratch_free(&e.spm);
    tacit_wipe_free(e.symbol);
    tacit_wipe_free(e.at);
    return status;
}

tacit_status tacit_tokenize(const tacit_tokenizer *t, const char *text, size_t size, bool special,
                            tacit_tokens *out, tacit_error *err)
{
    return tokenize(t, text, size, special, false, out, err);
}

tacit_status tacit_tokenize_more(const tacit_tokenizer *t, const char *text, size_t size,
                                 bool special, tacit_tokens *out, tacit_error *err)
{
    return tokenize(t, text, size, special, true, out, err);
}

/* ---- tokens to text ---------------------------------------------------------------------- */

/* Characters outside the alphabet are kept as they are. */
static tacit_status append_decoded(const tacit_tokenizer *t, const token *k, tacit_buffer *out)
{
    tacit_status status = TACIT_OK;
    size_t step;
    for (size_t i = 0; i < k->size && status == TACIT_OK; i += step) {
        int byte = decode_character(t, k->text + i, k->size - i, &step);
        uint8_t decoded = (uint8_t)byte;
        status = byte >= 0 ? tacit_buffer_append(out, &decoded, 1)
                           : tacit_buffer_append(out, k->text + i, step);
    }
    return status;
}

static tacit_status append_spm(const token *k, tacit_buffer *out)
{
    if (k->kind != TOKEN_BYTE)
        return spm_append_decoded(k->text, k->size, out);
    uint8_t byte = (uint8_t)spm_byte_of(k->text, k->size);
    return tacit_buffer_append(out, &byte, 1);
}

tacit_status tacit_detokenize(const tacit_tokenizer *t, int32_t id, bool special, tacit_buffer *out,
                              tacit_error *err)
{
    if (id < 0 || (size_t)id >= t->count)
        return tacit_fail(err, TACIT_BAD_INPUT, "token %d: expected an id from 0 to %zu", id,
                          t->count - 1);
    const token *k = &t->token[id];
    tacit_status status = TACIT_OK;
    if (k->kind == TOKEN_NORMAL || k->kind == TOKEN_BYTE || k->kind == TOKEN_UNUSED)
        status = t->is_spm ? append_spm(k, out) : append_decoded(t, k, out);
    else if (special || k->is_shown || k->kind == TOKEN_USER_DEFINED)
        status = tacit_buffer_append(out, k->text, k->size);
    if (status != TACIT_OK)
        return tacit_fail(err, status, "token %d: the text has no room for it", id);
    return TACIT_OK;
}

/* ---- asking ------------------------------------------------------------------------------ */

size_t tacit_tokenizer_vocab(const tacit_tokenizer *t)
{
    return t->count;
}

int32_t tacit_tokenizer_bos(const tacit_tokenizer *t)
{
    return t->adds_bos ? t->bos : -1;
}

int32_t tacit_tokenizer_bos_token(const tacit_tokenizer *t)
{
    return t->bos;
}

bool tacit_tokenizer_adds_space(const tacit_tokenizer *t)
{
    return t->adds_space;
}

int32_t tacit_tokenizer_eos(const tacit_tokenizer *t)
{
    return t->eos;
}

bool tacit_tokenizer_is_end(const tacit_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->count && t->token[id].is_end;
}

const char *tacit_tokenizer_chat_template(const tacit_tokenizer *t)
{
    return t->chat_template;
}

void tacit_tokens_free(tacit_tokens *t)
{
    tacit_wipe_free(t->id);
    *t = (tacit_tokens){0};
}

tacit_status tacit_tokens_push(tacit_tokens *t, int32_t id)
{
    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        int32_t *grown = reallocarray(t->id, capacity, sizeof *grown);
        if (!grown)
            return TACIT_NO_MEMORY;
        t->id = grown;
        t->capacity = capacity;
    }
    t->id[t->count++] = id;
    return TACIT_OK;
}
