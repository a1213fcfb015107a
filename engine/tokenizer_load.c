#include "engine/tokenizer_parts.h"

#include "common/log.h"
#include "engine/spm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char key_tokens[] = "tokenizer.ggml.tokens";
static const char key_types[] = "tokenizer.ggml.token_type";
static const char key_merges[] = "tokenizer.ggml.merges";
static const char key_scores[] = "tokenizer.ggml.scores";

static tacit_status fail_memory(const gguf_file *file, tacit_error *err)
{
    return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for the tokenizer", gguf_name(file));
}

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

/* ---- the table of tokens ----------------------------------------------------------------- */

static tacit_status copy_texts(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        gguf_string text = gguf_array_string(file, key_tokens, i);
        if (text.size > TOKENIZER_MOST_TOKEN_BYTES)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: token %zu: expected at most %d bytes, found %zu",
                              gguf_name(file), i, TOKENIZER_MOST_TOKEN_BYTES, text.size);
        bytes += text.size;
        t->longest = text.size > t->longest ? text.size : t->longest;
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
    t->slot_shift = 60;
    for (; slots < 2 * t->count; slots *= 2)
        t->slot_shift--;
    t->slot = malloc(slots * sizeof *t->slot);
    if (!t->slot)
        return fail_memory(file, err);
    memset(t->slot, 0xff, slots * sizeof *t->slot);
    t->slot_mask = slots - 1;
    randombytes_buf(t->hash_key, sizeof t->hash_key);
    randombytes_buf(&t->hash_add, sizeof t->hash_add);
    randombytes_buf(&t->hash_multiply, sizeof t->hash_multiply);
    t->hash_multiply |= 1;
    for (size_t i = 0; i < t->count; i++) {
        int32_t *slot = tokenizer_find_slot(t, t->token[i].text, t->token[i].size);
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
    if (t->count == 0 || t->count > TOKENIZER_MOST_TOKENS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected 1 to %d tokens, found %zu",
                          gguf_name(file), TOKENIZER_MOST_TOKENS, t->count);
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
        t->has_unused |= kind == TOKEN_UNUSED;
    }
    return TACIT_OK;
}

/* ---- byte-level BPE ---------------------------------------------------------------------- */

static void find_bytes(tacit_tokenizer *t)
{
    char text[2];
    for (unsigned b = 0; b < 256; b++) {
        int32_t id =
            tokenizer_find_text(t, text, tokenizer_encode_character(text, t->byte_character[b]));
        t->byte_token[b] = id >= 0 && tokenizer_is_ordinary(t, id) ? id : -1;
    }
}

/* "left right": both parts are in the vocabulary, and so is what they make. */
static tacit_status add_merge(tacit_tokenizer *t, const gguf_file *file, size_t rank,
                              gguf_string text, tacit_error *err)
{
    char joined[2 * TOKENIZER_MOST_TOKEN_BYTES];
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    size_t left = space ? (size_t)(space - text.data) : 0;
    size_t right = space ? text.size - left - 1 : 0;
    if (!right || left + right > sizeof joined)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: merge %zu: expected two parts, found '%.*s'",
                          gguf_name(file), rank, (int)(text.size < 64 ? text.size : 64), text.data);
    memcpy(joined, text.data, left);
    memcpy(joined + left, space + 1, right);
    int32_t left_id = tokenizer_find_text(t, joined, left),
            right_id = tokenizer_find_text(t, space + 1, right);
    int32_t merged = tokenizer_find_text(t, joined, left + right);
    if (left_id < 0 || right_id < 0 || merged < 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: merge %zu ('%.*s'): %s is not a token",
                          gguf_name(file), rank, (int)text.size, text.data,
                          left_id < 0    ? "its left part"
                          : right_id < 0 ? "its right part"
                                         : "its result");
    if (!tokenizer_is_ordinary(t, merged))
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
    if (count > TOKENIZER_MOST_TOKENS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected at most %d merges, found %zu",
                          gguf_name(file), TOKENIZER_MOST_TOKENS, count);
    t->merges = bpe_merges_new(count);
    if (!t->merges)
        return fail_memory(file, err);
    for (size_t rank = 0; rank < count && status == TACIT_OK; rank++)
        status = add_merge(t, file, rank, gguf_array_string(file, key_merges, rank), err);
    return status;
}

static tacit_status load_pretokenizer(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    gguf_string name = {"default", 7};
    tacit_status status = TACIT_OK;
    if (gguf_has_key(file, "tokenizer.ggml.pre"))
        status = gguf_get_string(file, "tokenizer.ggml.pre", &name, err);
    else
        tacit_log_warn("%s: no tokenizer.ggml.pre: text is split in a way that may not be the "
                       "model's; convert the model anew",
                       gguf_name(file));
    if (status == TACIT_OK)
        status = pretokenizer_new(&t->pretokenizer, name.data, name.size, err);
    return status == TACIT_BAD_INPUT ? tacit_fail_context(err, "%s", gguf_name(file)) : status;
}

/* ---- SentencePiece ----------------------------------------------------------------------- */

/* A file without types has them in the texts. */
static void guess_kinds(tacit_tokenizer *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (spm_byte_of(t->token[i].text, t->token[i].size) >= 0)
            t->token[i].kind = TOKEN_BYTE;
    if (t->unknown >= 0)
        t->token[t->unknown].kind = TOKEN_UNKNOWN;
}

/* Byte tokens spell their byte; what a file calls a byte token and does not is refused. The same
 * text in a token of another type is ordinary text. */
static tacit_status find_spm_bytes(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    memset(t->byte_token, 0xff, sizeof t->byte_token);
    for (size_t i = 0; i < t->count; i++) {
        const token *k = &t->token[i];
        if (k->kind != TOKEN_BYTE)
            continue;
        int byte = spm_byte_of(k->text, k->size);
        if (byte < 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: token %zu: expected a byte token from <0x00> to <0xFF>, found "
                              "'%.*s'",
                              gguf_name(file), i, (int)(k->size < 64 ? k->size : 64), k->text);
        t->byte_token[byte] = (int32_t)i;
    }
    return TACIT_OK;
}

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int by_falling_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x < y) - (x > y);
}

static tacit_status rank_scores(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    scored *all = calloc(t->count, sizeof *all);
    t->rank = calloc(t->count, sizeof *t->rank);
    if (!all || !t->rank) {
        free(all);
        return fail_memory(file, err);
    }
    for (size_t i = 0; i < t->count; i++)
        all[i] = (scored){(float)gguf_array_number(file, key_scores, i), (uint32_t)i};
    qsort(all, t->count, sizeof *all, by_falling_score);
    for (size_t i = 1; i < t->count; i++)
        t->rank[all[i].id] = t->rank[all[i - 1].id] + (all[i].score < all[i - 1].score);
    free(all);
    return TACIT_OK;
}

static tacit_status load_scores(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    size_t count;
    tacit_status status = gguf_get_array(file, key_scores, GGUF_F32, &count, err);
    if (status != TACIT_OK)
        return status;
    if (count != t->count)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected %zu token scores, found %zu",
                          gguf_name(file), t->count, count);
    for (size_t i = 0; i < count; i++)
        if (isnan(gguf_array_number(file, key_scores, i)))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: token %zu: expected a score, found one that is not a number",
                              gguf_name(file), i);
    return rank_scores(t, file, err);
}

/* ---- ids and what steers the model ------------------------------------------------------- */

/* An optional id; absent it is `otherwise`, -1 when the vocabulary does not reach so far. */
static tacit_status load_id(const tacit_tokenizer *t, const gguf_file *file, const char *key,
                            int32_t otherwise, int32_t *out, tacit_error *err)
{
    uint64_t id;
    *out = otherwise < (int64_t)t->count ? otherwise : -1;
    if (!gguf_has_key(file, key))
        return TACIT_OK;
    tacit_status status = gguf_get_u64(file, key, 0, t->count - 1, &id, err);
    if (status == TACIT_OK)
        *out = (int32_t)id;
    return status;
}

/* The FIM tokens of the specification that end generation too. */
static const char *const fim_keys[] = {"tokenizer.ggml.fim_pad_token_id",
                                       "tokenizer.ggml.fim_rep_token_id",
                                       "tokenizer.ggml.fim_sep_token_id"};

/* SentencePiece files may leave the ids out that its trainer gives. The peers also have defaults
 * for byte-level BPE, which are ordinary tokens there: those are not taken. */
static tacit_status load_ids(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    const char *add_bos = "tokenizer.ggml.add_bos_token";
    const bool spm = t->is_spm;
    tacit_status status;
    t->adds_bos = spm || pretokenizer_adds_bos(t->pretokenizer);
    if (gguf_has_key(file, add_bos))
        TACIT_TRY(gguf_get_bool(file, add_bos, &t->adds_bos, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.bos_token_id", spm ? 1 : -1, &t->bos, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.eos_token_id", spm ? 2 : -1, &t->eos, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.unknown_token_id", spm ? 0 : -1, &t->unknown, err),
              done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.eot_token_id", -1, &t->end_of_turn, err), done);
    TACIT_TRY(load_id(t, file, "tokenizer.ggml.eom_token_id", -1, &t->end_of_message, err), done);
    for (size_t i = 0; i < sizeof fim_keys / sizeof *fim_keys; i++) {
        int32_t id;
        TACIT_TRY(load_id(t, file, fim_keys[i], -1, &id, err), done);
        if (id >= 0)
            t->token[id].is_end = true;
    }
done:
    return status;
}

/* Texts that end generation in every vocabulary that has them. */
static const char *const end_texts[] = {
    "<|eot_id|>",         "<|im_end|>", "<|end|>",     "<end_of_turn>", "<|endoftext|>",
    "<|eom_id|>",         "<EOT>",      "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
    "<end_of_utterance>",
};

/* Texts that steer a model, beside what its chat template spells. */
static const char *const control_texts[] = {
    "<|im_start|>", "<image>",           "<fake_token_around_image>",
    "<global-img>", "<|begin_of_text|>", "<start_of_turn>",
};

static void mark(tacit_tokenizer *t, int32_t id, bool is_end)
{
    if (id < 0)
        return;
    t->token[id].is_end |= is_end;
    if (t->token[id].kind == TOKEN_USER_DEFINED || t->token[id].is_end)
        t->token[id].kind = TOKEN_CONTROL;
}

static bool may_be_template_mark(const token *k)
{
    return k->kind == TOKEN_USER_DEFINED && k->size && (k->text[0] == '<' || k->text[0] == '[') &&
           k->size <= WHOLE_MOST_BYTES;
}

/* User-defined tokens that the chat template spells as marks ("<think>"), not as white space. They
 * stay part of what an answer shows. The template is walked, not the vocabulary: a search for each
 * of millions of tokens would take minutes. */
static void find_template_marks(tacit_tokenizer *t)
{
    bool sizes[WHOLE_MOST_BYTES + 1] = {false};
    const char *text = t->chat_template ? t->chat_template : "";
    size_t left = strlen(text);
    for (size_t i = 0; i < t->count; i++)
        if (may_be_template_mark(&t->token[i]))
            sizes[t->token[i].size] = true;
    for (; left > 0; text++, left--)
        for (size_t n = 1; (*text == '<' || *text == '[') && n < sizeof sizes && n <= left; n++) {
            int32_t id = sizes[n] ? tokenizer_find_text(t, text, n) : -1;
            if (id >= 0 && may_be_template_mark(&t->token[id]))
                t->token[id].is_shown = true;
        }
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
    if (t->is_spm && t->bos >= 0) /* any text may be merged there */
        t->token[t->bos].kind = TOKEN_CONTROL;
    for (size_t i = 0; i < sizeof control_texts / sizeof *control_texts; i++)
        mark(t, tacit_tokenizer_find(t, control_texts[i]), false);
    find_template_marks(t);
    for (size_t i = 0; i < t->count; i++) {
        const token *k = &t->token[i];
        bool row = k->size > 5 && memcmp(k->text, "<row_", 5) == 0;
        if (k->is_end || k->is_shown || (k->kind == TOKEN_USER_DEFINED && row))
            mark(t, (int32_t)i, false);
    }
    /* Nor does text that no piece has become a token that steers: it is left out. */
    if (t->unknown >= 0 && (t->token[t->unknown].is_end || t->unknown == t->bos))
        t->unknown = -1;
}

/* What is matched in raw text; `special` says with control tokens or without. */
static tacit_status collect_whole(tacit_tokenizer *t, const gguf_file *file, bool special,
                                  tacit_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += tokenizer_is_whole(&t->token[i], special);
    whole_token *whole = calloc(count + 1, sizeof *whole);
    if (!whole)
        return fail_memory(file, err);
    count = 0;
    for (size_t i = 0; i < t->count; i++) {
        const token *k = &t->token[i];
        if (!tokenizer_is_whole(k, special))
            continue;
        if (k->size > WHOLE_MOST_BYTES) {
            free(whole);
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: token %zu, which is matched in raw text: expected at most %d "
                              "bytes, found %u",
                              gguf_name(file), i, WHOLE_MOST_BYTES, k->size);
        }
        whole[count++] = (whole_token){.text = k->text, .size = k->size, .id = (int32_t)i};
    }
    whole_tokens_make(&t->whole[special], whole, count);
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
    if (text.size > TOKENIZER_MOST_TEMPLATE_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: key 'tokenizer.chat_template': expected at most %d bytes, found %zu",
                          gguf_name(file), TOKENIZER_MOST_TEMPLATE_BYTES, text.size);
    t->chat_template = strndup(text.size ? text.data : "", text.size);
    return t->chat_template ? TACIT_OK : fail_memory(file, err);
}

static tacit_status load_kind_of_model(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    gguf_string model;
    tacit_status status = gguf_get_string(file, "tokenizer.ggml.model", &model, err);
    if (status != TACIT_OK)
        return status;
    t->is_spm = model.size == 5 && memcmp(model.data, "llama", 5) == 0;
    if (!t->is_spm && (model.size != 4 || memcmp(model.data, "gpt2", 4) != 0))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tokenizer '%.*s' is not supported (supported: gpt2, byte-level BPE; "
                          "llama, SentencePiece BPE)",
                          gguf_name(file), (int)(model.size < 64 ? model.size : 64), model.data);
    return TACIT_OK;
}

static tacit_status load_bpe(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    find_bytes(t);
    return load_merges(t, file, err);
}

static tacit_status load_spm(tacit_tokenizer *t, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    t->adds_space = true;
    if (gguf_has_key(file, "tokenizer.ggml.add_space_prefix"))
        TACIT_TRY(gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &t->adds_space, err),
                  done);
    TACIT_TRY(find_spm_bytes(t, file, err), done);
    t->words_stay_apart = !t->has_unused; /* which come apart the way that came last anywhere */
    for (size_t i = 0; i < t->count; i++)
        t->words_stay_apart &=
            spm_next_word(t->token[i].text, t->token[i].size, 0) == t->token[i].size;
    status = load_scores(t, file, err);
done:
    return status;
}

tacit_status tacit_tokenizer_load(tacit_tokenizer **out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    tacit_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return fail_memory(file, err);
    fill_alphabet(t);
    TACIT_TRY(load_kind_of_model(t, file, err), fail);
    if (!t->is_spm)
        TACIT_TRY(load_pretokenizer(t, file, err), fail);
    TACIT_TRY(load_tokens(t, file, err), fail);
    TACIT_TRY(load_kinds(t, file, err), fail);
    TACIT_TRY(load_ids(t, file, err), fail);
    if (t->is_spm && !gguf_has_key(file, key_types))
        guess_kinds(t);
    TACIT_TRY(load_chat_template(t, file, err), fail);
    mark_control_tokens(t);
    TACIT_TRY(t->is_spm ? load_spm(t, file, err) : load_bpe(t, file, err), fail);
    TACIT_TRY(collect_whole(t, file, false, err), fail);
    TACIT_TRY(collect_whole(t, file, true, err), fail);
    *out = t;
    return TACIT_OK;
fail:
    tacit_tokenizer_free(t);
    return status;
}
