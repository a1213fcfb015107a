#include "engine/tokenizer.h"

#include "common/secret.h"
#include "engine/bpe.h"
#include "engine/pretokenize.h"

#include <limits.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TOKENS = 1 << 22,
    MOST_TOKEN_BYTES = 1024,
    MOST_TEXT = 1 << 28, /* of one call */
    ALPHABET_END = 0x144 /* one past the last character that stands for a byte */
};

/* tokenizer.ggml.token_type */
typedef enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_kind;

typedef struct token {
    const char *text; /* in `texts`, as the file has it */
    uint32_t size;
    uint8_t kind;
    bool is_end;
} token;

/* Distinct lengths of the tokens that are matched in raw text, longest first. */
typedef struct lengths {
    uint32_t *size;
    size_t count;
} lengths;

struct tacit_tokenizer {
    token *token;
    size_t count;
    char *texts;
    int32_t *slot; /* ids by hash of the text, -1: empty; a power of two of them */
    size_t slot_mask;
    uint8_t hash_key[crypto_shorthash_KEYBYTES];
    bpe_merges *merges;
    pretokenizer *pretokenizer;
    int32_t byte_token[256]; /* -1: the vocabulary lacks that byte */
    uint16_t byte_character[256];
    int16_t character_byte[ALPHABET_END];
    lengths whole[2];       /* [special]: what is matched as a whole */
    bool starts_whole[256]; /* first bytes of such tokens */
    int32_t bos, eos, end_of_turn, end_of_message;
    char *chat_template;
};

/* ---- the alphabet ------------------------------------------------------------------------ */

/* GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others in ascending order
 * for the characters from U+0100 on. */
static void fill_alphabet(tacit_tokenizer *t)
{
    uint16_t next = 0x100;
    memset(t->character_byte, -1, sizeof t->character_byte);
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        t->byte_character[b] = printable ? (uint16_t)b : next++;
        t->character_byte[t->byte_character[b]] = (int16_t)b;
    }
}

/* Both ranges of the alphabet lie below U+0800. */
static size_t encode_character(char *out, uint16_t character)
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

static int32_t *find_slot(const tacit_tokenizer *t, const char *text, size_t size)
{
    uint8_t hash[crypto_shorthash_BYTES];
    size_t at;
    crypto_shorthash(hash, (const uint8_t *)text, size, t->hash_key);
    memcpy(&at, hash, sizeof at);
    for (at &= t->slot_mask; t->slot[at] >= 0; at = (at + 1) & t->slot_mask) {
        const token *found = &t->token[t->slot[at]];
        if (found->size == size && memcmp(found->text, text, size) == 0)
            break;
    }
    return &t->slot[at];
}

static int32_t find_text(const tacit_tokenizer *t, const char *text, size_t size)
{
    return *find_slot(t, text, size);
}

int32_t tacit_tokenizer_find(const tacit_tokenizer *t, const char *text)
{
    return find_text(t, text, strlen(text));
}

/* ---- loading ----------------------------------------------------------------------------- */

static const char key_tokens[] = "tokenizer.ggml.tokens";
static const char key_types[] = "tokenizer.ggml.token_type";
static const char key_merges[] = "tokenizer.ggml.merges";

static tacit_status fail_memory(const gguf_file *file, tacit_error *err)
{
    return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for the tokenizer", gguf_name(file));
}

static tacit_status copy_texts(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        gguf_string text = gguf_array_string(file, key_tokens, i);
        if (text.size > MOST_TOKEN_BYTES)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: token %zu: expected at most %d bytes, found %zu",
                              gguf_name(file), i, MOST_TOKEN_BYTES, text.size);
        bytes += text.size;
    }
    char *to = t->texts = malloc(bytes + 1);
    if (!to)
        return fail_memory(file, err);
    for (size_t i = 0; i < t->count; i++) {
        gguf_string text = gguf_array_string(file, key_tokens, i);
        t->token[i] = (token){.text = to, .size = (uint32_t)text.size, .kind = TOKEN_NORMAL};
        if (text.size)
            memcpy(to, text.data, text.size);
        to += text.size;
    }
    return TACIT_OK;
}

static tacit_status index_texts(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    size_t slots = 16;
    while (slots < 2 * t->count)
        slots *= 2;
    t->slot = malloc(slots * sizeof *t->slot);
    if (!t->slot)
        return fail_memory(file, err);
    memset(t->slot, 0xff, slots * sizeof *t->slot);
    t->slot_mask = slots - 1;
    randombytes_buf(t->hash_key, sizeof t->hash_key);
    for (size_t i = 0; i < t->count; i++) {
        int32_t *slot = find_slot(t, t->token[i].text, t->token[i].size);
        if (*slot >= 0)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: tokens %d and %zu are both '%.*s'",
                              gguf_name(file), *slot, i, (int)t->token[i].size, t->token[i].text);
        *slot = (int32_t)i;
    }
    return TACIT_OK;
}

static tacit_status load_tokens(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    tacit_status status = gguf_get_array(file, key_tokens, GGUF_STRING, &t->count, err);
    if (status != TACIT_OK)
        return status;
    if (t->count == 0 || t->count > MOST_TOKENS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected 1 to %d tokens, found %zu",
                          gguf_name(file), MOST_TOKENS, t->count);
    t->token = calloc(t->count, sizeof *t->token);
    if (!t->token)
        return fail_memory(file, err);
    status = copy_texts(t, file, err);
    return status == TACIT_OK ? index_texts(t, file, err) : status;
}

static tacit_status load_kinds(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    size_t count;
    if (!gguf_has_key(file, key_types))
        return TACIT_OK;
    tacit_status status = gguf_get_array(file, key_types, GGUF_I32, &count, err);
    if (status != TACIT_OK)
        return status;
    if (count != t->count)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected %zu token types, found %zu",
                          gguf_name(file), t->count, count);
    for (size_t i = 0; i < count; i++) {
        double kind = gguf_array_number(file, key_types, i);
        if (kind < TOKEN_NORMAL || kind > TOKEN_BYTE)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: token %zu: expected a type from %d to %d, found %.0f",
                              gguf_name(file), i, TOKEN_NORMAL, TOKEN_BYTE, kind);
        t->token[i].kind = (uint8_t)kind;
    }
    return TACIT_OK;
}

/* What a text may become by itself: everything but what steers the model. */
static bool is_ordinary(const tacit_tokenizer *t, int32_t id)
{
    return t->token[id].kind != TOKEN_CONTROL && t->token[id].kind != TOKEN_UNKNOWN;
}

static void find_bytes(tacit_tokenizer *t)
{
    char text[2];
    for (unsigned b = 0; b < 256; b++) {
        int32_t id = find_text(t, text, encode_character(text, t->byte_character[b]));
        t->byte_token[b] = id >= 0 && is_ordinary(t, id) ? id : -1;
    }
}

/* "left right": both parts are in the vocabulary, and so is what they make. */
static tacit_status add_merge(tacit_tokenizer *t, const gguf_file *file, size_t rank,
                              gguf_string text, tacit_error *err)
{
    char joined[2 * MOST_TOKEN_BYTES];
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    size_t left = space ? (size_t)(space - text.data) : 0;
    size_t right = space ? text.size - left - 1 : 0;
    if (!right || left + right > sizeof joined)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: merge %zu: expected two parts, found '%.*s'",
                          gguf_name(file), rank, (int)(text.size < 64 ? text.size : 64), text.data);
    memcpy(joined, text.data, left);
    memcpy(joined + left, space + 1, right);
    int32_t left_id = find_text(t, joined, left), right_id = find_text(t, space + 1, right);
    int32_t merged = find_text(t, joined, left + right);
    if (left_id < 0 || right_id < 0 || merged < 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: merge %zu ('%.*s'): %s is not a token",
                          gguf_name(file), rank, (int)text.size, text.data,
                          left_id < 0    ? "its left part"
                          : right_id < 0 ? "its right part"
                                         : "its result");
    if (!is_ordinary(t, merged))
        return tacit_fail(
            err, TACIT_BAD_INPUT,
            "%s: merge %zu ('%.*s'): its result is a control token, which no text may "
            "become",
            gguf_name(file), rank, (int)text.size, text.data);
    if (!bpe_merges_add(t->merges, left_id, right_id, merged, (uint32_t)rank))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: merge %zu ('%.*s') is there twice",
                          gguf_name(file), rank, (int)text.size, text.data);
    return TACIT_OK;
}

static tacit_status load_merges(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    size_t count;
    tacit_status status = gguf_get_array(file, key_merges, GGUF_STRING, &count, err);
    if (status != TACIT_OK)
        return status;
    if (count > MOST_TOKENS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected at most %d merges, found %zu",
                          gguf_name(file), MOST_TOKENS, count);
    t->merges = bpe_merges_new(count);
    if (!t->merges)
        return fail_memory(file, err);
    for (size_t rank = 0; rank < count && status == TACIT_OK; rank++)
        status = add_merge(t, file, rank, gguf_array_string(file, key_merges, rank), err);
    return status;
}

/* An optional id; absent or with a false `wanted` it is -1. */
static tacit_status load_id(const tacit_tokenizer *t, const gguf_file *file, const char *key,
                            int32_t *out, tacit_error *err)
{
    uint64_t id;
    *out = -1;
    if (!gguf_has_key(file, key))
        return TACIT_OK;
    tacit_status status = gguf_get_u64(file, key, 0, t->count - 1, &id, err);
    if (status == TACIT_OK)
        *out = (int32_t)id;
    return status;
}

static tacit_status load_ids(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    bool add_bos = false;
    tacit_status status;
    if (gguf_has_key(file, "tokenizer.ggml.add_bos_token"))
        TACIT_TRY(gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &add_bos, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.bos_token_id", &t->bos, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.eos_token_id", &t->eos, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.eot_token_id", &t->end_of_turn, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.eom_token_id", &t->end_of_message, err), done);
    if (!add_bos)
        t->bos = -1;
done:
    return status;
}

/* Texts that end generation in every vocabulary that has them. */
static const char *const end_texts[] = {
    "<|eot_id|>",    "<|im_end|>", "<|end|>", "<end_of_turn>",
    "<|endoftext|>", "<|eom_id|>", "<EOT>",   "<end_of_utterance>",
};

/* Texts that steer a model, beside what its chat template spells. */
static const char *const control_texts[] = {
    "<|im_start|>", "<image>", "<fake_token_around_image>", "<global-img>", "<|begin_of_text|>",
};

static void mark(tacit_tokenizer *t, int32_t id, bool is_end)
{
    if (id < 0)
        return;
    t->token[id].is_end |= is_end;
    if (t->token[id].kind == TOKEN_USER_DEFINED || t->token[id].is_end)
        t->token[id].kind = TOKEN_CONTROL;
}

/* Some files list control tokens as user-defined ones, which are found in anybody's text. */
static void mark_control_tokens(tacit_tokenizer *t)
{
    int32_t end_ids[] = {t->eos, t->end_of_turn, t->end_of_message};
    for (size_t i = 0; i < sizeof end_ids / sizeof *end_ids; i++)
        mark(t, end_ids[i], true);
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++)
        mark(t, tacit_tokenizer_find(t, end_texts[i]), true);
    mark(t, t->bos, false);
    for (size_t i = 0; i < sizeof control_texts / sizeof *control_texts; i++)
        mark(t, tacit_tokenizer_find(t, control_texts[i]), false);
    size_t template_size = t->chat_template ? strlen(t->chat_template) : 0;
    for (size_t i = 0; i < t->count; i++) {
        const token *k = &t->token[i];
        bool row = k->size > 5 && memcmp(k->text, "<row_", 5) == 0;
        if (k->kind == TOKEN_USER_DEFINED && k->size &&
            (row || (template_size && memmem(t->chat_template, template_size, k->text, k->size))))
            mark(t, (int32_t)i, false);
    }
}

static bool is_whole(const token *k, bool special)
{
    return k->size && (k->kind == TOKEN_USER_DEFINED ||
                       (special && (k->kind == TOKEN_CONTROL || k->kind == TOKEN_UNKNOWN)));
}

static tacit_status collect_lengths(tacit_tokenizer *t, bool special)
{
    bool seen[MOST_TOKEN_BYTES + 1] = {false};
    lengths *to = &t->whole[special];
    for (size_t i = 0; i < t->count; i++) {
        const token *k = &t->token[i];
        if (!is_whole(k, special))
            continue;
        to->count += !seen[k->size];
        seen[k->size] = true;
        t->starts_whole[(uint8_t)k->text[0]] = true;
    }
    to->size = calloc(to->count + 1, sizeof *to->size);
    if (!to->size)
        return TACIT_NO_MEMORY;
    for (uint32_t size = MOST_TOKEN_BYTES, n = 0; size > 0; size--)
        if (seen[size])
            to->size[n++] = size;
    return TACIT_OK;
}

static tacit_status load_chat_template(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    gguf_string text;
    if (!gguf_has_key(file, "tokenizer.chat_template"))
        return TACIT_OK;
    tacit_status status = gguf_get_string(file, "tokenizer.chat_template", &text, err);
    if (status != TACIT_OK)
        return status;
    t->chat_template = strndup(text.size ? text.data : "", text.size);
    return t->chat_template ? TACIT_OK : fail_memory(file, err);
}

static tacit_status load_pretokenizer(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    gguf_string name;
    tacit_status status = gguf_get_string(file, "tokenizer.ggml.pre", &name, err);
    if (status == TACIT_OK)
        status = pretokenizer_new(&t->pretokenizer, name.data, name.size, err);
    return status == TACIT_BAD_INPUT ? tacit_fail_context(err, "%s", gguf_name(file)) : status;
}

static tacit_status check_model(const gguf_file *file, tacit_error *err)
{
    gguf_string model;
    tacit_status status = gguf_get_string(file, "tokenizer.ggml.model", &model, err);
    if (status != TACIT_OK)
        return status;
    if (model.size != 4 || memcmp(model.data, "gpt2", 4) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tokenizer '%.*s' is not supported (supported: gpt2, byte-level BPE)",
                          gguf_name(file), (int)(model.size < 64 ? model.size : 64), model.data);
    return TACIT_OK;
}

tacit_status tacit_tokenizer_load(tacit_tokenizer **out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    tacit_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return fail_memory(file, err);
    fill_alphabet(t);
    TACIT_TRY(check_model(file, err), fail);
    TACIT_TRY(load_pretokenizer(t, file, err), fail);
    TACIT_TRY(load_tokens(t, file, err), fail);
    TACIT_TRY(load_kinds(t, file, err), fail);
    TACIT_TRY(load_ids(t, file, err), fail);
    TACIT_TRY(load_chat_template(t, file, err), fail);
    mark_control_tokens(t);
    find_bytes(t);
    TACIT_TRY(load_merges(t, file, err), fail);
    if (collect_lengths(t, false) != TACIT_OK || collect_lengths(t, true) != TACIT_OK)
        TACIT_TRY(fail_memory(file, err), fail);
    *out = t;
    return TACIT_OK;
fail:
    tacit_tokenizer_free(t);
    return status;
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
    free(t->whole[0].size);
    free(t->whole[1].size);
    free(t->chat_template);
    free(t);
}

/* ---- text to tokens ---------------------------------------------------------------------- */

typedef struct encoding {
    const tacit_tokenizer *t;
    tacit_tokens *out;
    int32_t *symbol; /* scratch, as many as the text has bytes */
    bpe_scratch scratch;
    tacit_error *err;
} encoding;

/* Bytes that the vocabulary lacks yield nothing, as in the reference implementations. */
static tacit_status encode_piece(void *ctx, const char *text, size_t size)
{
    encoding *e = ctx;
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        int32_t id = e->t->byte_token[(uint8_t)text[i]];
        if (id >= 0)
            e->symbol[count++] = id;
    }
    tacit_status status = bpe_merge(e->t->merges, &e->scratch, e->symbol, &count);
    for (size_t i = 0; i < count && status == TACIT_OK; i++)
        status = tacit_tokens_push(e->out, e->symbol[i]);
    return status == TACIT_OK ? status : tacit_fail(e->err, status, "no memory for the tokens");
}

/* What begins at each byte of the text: FREE, a whole token's id, or COVERED by one. */
enum { FREE = -1, COVERED = -2 };

static bool is_free(const int32_t *at, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (at[i] != FREE)
            return false;
    return true;
}

/* Longest tokens first; of one length from left to right. */
static void find_whole_tokens(const tacit_tokenizer *t, const char *text, size_t size, bool special,
                              int32_t *at)
{
    const lengths *whole = &t->whole[special];
    for (size_t n = 0; n < whole->count; n++) {
        size_t length = whole->size[n];
        for (size_t i = 0; length <= size && i <= size - length; i++) {
            if (!t->starts_whole[(uint8_t)text[i]] || !is_free(at + i, length))
                continue;
            int32_t id = find_text(t, text + i, length);
            if (id < 0 || !is_whole(&t->token[id], special))
                continue;
            at[i] = id;
            for (size_t j = 1; j < length; j++)
                at[i + j] = COVERED;
            i += length - 1;
        }
    }
}

static tacit_status encode_between(encoding *e, const char *text, size_t size, const int32_t *at)
{
    tacit_status status = TACIT_OK;
    size_t i = 0;
    while (i < size && status == TACIT_OK) {
        size_t begin = i;
        if (at[i] != FREE) {
            status = tacit_tokens_push(e->out, at[i]);
            for (i++; i < size && at[i] == COVERED; i++)
                ;
            continue;
        }
        while (i < size && at[i] == FREE)
            i++;
        status =
            pretokenizer_run(e->t->pretokenizer, text + begin, i - begin, encode_piece, e, e->err);
    }
    return status;
}

tacit_status tacit_tokenize(const tacit_tokenizer *t, const char *text, size_t size, bool special,
                            tacit_tokens *out, tacit_error *err)
{
    if (size > MOST_TEXT)
        return tacit_fail(err, TACIT_BAD_INPUT, "expected a text of at most %d bytes, found %zu",
                          MOST_TEXT, size);
    encoding e = {.t = t, .out = out, .err = err};
    int32_t *at = malloc((size + 1) * sizeof *at);
    e.symbol = malloc((size + 1) * sizeof *e.symbol);
    tacit_status status;
    if (at && e.symbol) {
        for (size_t i = 0; i < size; i++)
            at[i] = FREE;
        find_whole_tokens(t, text, size, special, at);
        status = encode_between(&e, text, size, at);
    } else {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a text of %zu bytes", size);
    }
    bpe_scratch_free(&e.scratch);
    tacit_wipe_free(e.symbol);
    free(at);
    return status;
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

tacit_status tacit_detokenize(const tacit_tokenizer *t, int32_t id, bool special, tacit_buffer *out,
                              tacit_error *err)
{
    if (id < 0 || (size_t)id >= t->count)
        return tacit_fail(err, TACIT_BAD_INPUT, "token %d: expected an id from 0 to %zu", id,
                          t->count - 1);
    const token *k = &t->token[id];
    tacit_status status = TACIT_OK;
    if (k->kind == TOKEN_NORMAL || k->kind == TOKEN_BYTE || k->kind == TOKEN_UNUSED)
        status = append_decoded(t, k, out);
    else if (special || k->kind == TOKEN_USER_DEFINED)
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
    return t->bos;
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
