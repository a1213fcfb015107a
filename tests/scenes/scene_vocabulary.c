#include "scenes/scene_vocabulary.h"

#include "scenes/scene_senses.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_TOKENS 256
#define RESERVED_TOKENS 12
#define IMAGE_GRID 4
#define WORDS_MAX 1024
#define WORD_BYTES 32
#define TOKEN_BYTES 96 /* 32 bytes, each at most two in GPT-2's alphabet, and controls */
#define MERGE_BYTES (2 * TOKEN_BYTES)

static const char chat_template[] =
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

static const char *const control_words[] = {
    "<|im_start|>", "<|im_end|>", "<end_of_utterance>", "<image>",  "<fake_token_around_image>",
    "<global-img>", "<audio>",    "</audio>",           "<sensor>", "</sensor>",
};
#define CONTROL_WORDS (sizeof control_words / sizeof control_words[0])

/* Ordinary sentences about displays, so that the vocabulary serves more than the templates. */
static const char *const sentences[] = {
    "The driver looks at the display and reads the speed of the vehicle on the road",
    "The nurse looks at the screen and reads the heart rate of the patient in the room",
    "A warning lamp comes on when the pressure in the engine is too low or too high",
    "The number on the left is small and the number on the right is large",
    "Please answer with one word or with one number and say nothing more",
    "This picture was taken by a camera in the morning and that one at night",
    "There is a red light above the green line and a blue bar under the white text",
    "The signal is normal now but it was critical an hour before the service",
    "Stop the vehicle and open the door when the brake does not work",
    "Record the time and the value then send the report to the station",
    "If the sensor is lost or the cable is not connected the screen stays dark",
    "Every device has its own style of digits and its own colour",
    "I can see three arrows, two bars and four symbols between them",
    "Which of these states would you call stable, which one dangerous or unknown",
};
#define SENTENCES (sizeof sentences / sizeof sentences[0])

/* How much a text counts. New labels count as much as the templates and so become single tokens:
 * a fleet has few noised steps, and each further token of an answer must be learned in them too. */
enum { WEIGHT_TEMPLATE = 1000, WEIGHT_SENTENCE = 10 };

typedef struct word {
    char text[WORD_BYTES];
    uint32_t weight;
    uint16_t piece[WORD_BYTES]; /* token ids */
    size_t pieces;
} word;

typedef struct learner {
    word *list;
    size_t count;
    scene_vocabulary *out;
} learner;

/* ---- GPT-2's printable alphabet of bytes ---- */

static bool byte_is_printable(unsigned b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

/* UTF-8 of the character that stands for a byte. */
static void byte_text(unsigned b, char out[3])
{
    unsigned code = b;
    if (!byte_is_printable(b)) {
        code = 256;
        for (unsigned i = 0; i < b; i++)
            code += !byte_is_printable(i);
    }
    if (code < 128) {
        out[0] = (char)code;
        out[1] = '\0';
        return;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    out[2] = '\0';
}

/* ---- words of the corpus, cut as the pre-tokenizer "smollm" cuts them ---- */

static void add_word(learner *l, const char *text, size_t n, uint32_t weight)
{
    if (n == 0 || n >= WORD_BYTES)
        return;
    for (size_t i = 0; i < l->count; i++) {
        if (strlen(l->list[i].text) == n && memcmp(l->list[i].text, text, n) == 0) {
            l->list[i].weight += weight;
            return;
        }
    }
    if (l->count == WORDS_MAX)
        return;
    word *w = &l->list[l->count++];
    *w = (word){.weight = weight, .pieces = n};
    memcpy(w->text, text, n);
    for (size_t i = 0; i < n; i++)
        w->piece[i] = (uint8_t)text[i];
}

/* Letters with one space before them, single digits, and runs of signs, of ASCII text. */
static void add_text(learner *l, const char *text, uint32_t weight)
{
    for (const char *p = text; *p;) {
        const char *start = p;
        if (*p == ' ' && p[1] && !isdigit((unsigned char)p[1]))
            p++;
        if (isalpha((unsigned char)*p))
            while (isalpha((unsigned char)*p))
                p++;
        else if (isdigit((unsigned char)*p) || *p == ' ')
            p++;
        else
            while (*p && *p != ' ' && !isalnum((unsigned char)*p))
                p++;
        add_word(l, start, (size_t)(p - start), weight);
    }
}

/* As the first text after a picture, and as the text of a later turn. */
static void add_turn(learner *l, const char *text, uint32_t weight)
{
    char spaced[SCENE_TRANSCRIPT_MAX];
    snprintf(spaced, sizeof spaced, " %s", text);
    add_text(l, text, weight);
    add_text(l, spaced, weight);
}

static void add_states(learner *l, scene_field field)
{
    for (int i = 0; i < SCENE_STATES; i++) {
        char spaced[SCENE_TEXT_MAX];
        snprintf(spaced, sizeof spaced, " %s", scene_new_label(field, i));
        add_text(l, spaced, WEIGHT_TEMPLATE);
    }
}

static void add_field(learner *l, scene_field field)
{
    scene s = {0};
    for (size_t i = 0; i < scene_question_count(field); i++)
        add_turn(l, scene_question(field, i), WEIGHT_TEMPLATE);
    for (size_t i = 0; i < scene_new_question_count(field); i++)
        add_turn(l, scene_new_question(field, i), WEIGHT_TEMPLATE);
    s.kind = field < SCENE_HEART ? SCENE_CLUSTER : SCENE_MONITOR;
    s.shown[field] = true;
    for (int i = 0; i < SCENE_STATES; i++) {
        char text[SCENE_TRANSCRIPT_MAX], spaced[SCENE_TRANSCRIPT_MAX + 1];
        scene_prng prng = {(uint64_t)i};
        scene_draw_values(&s, s.kind, &prng);
        if (scene_field_has_states(field))
            s.value[field] = i;
        scene_transcript(&s, text);
        snprintf(spaced, sizeof spaced, " %s", text);
        add_text(l, spaced, WEIGHT_TEMPLATE);
    }
    if (scene_field_has_states(field))
        add_states(l, field);
}

static void add_senses(learner *l)
{
    for (size_t i = 0; i < scene_ask_count(); i++)
        for (int k = 0; k < SCENE_WORDINGS; k++)
            add_turn(l, scene_ask_at(i)->wording[k], WEIGHT_TEMPLATE);
    for (size_t i = 0; i < scene_sense_word_count(); i++) {
        char spaced[SCENE_TEXT_MAX];
        snprintf(spaced, sizeof spaced, " %s", scene_sense_word(i));
        add_text(l, spaced, WEIGHT_TEMPLATE);
    }
}

static void add_corpus(learner *l)
{
    add_word(l, "\n\n", 2, WEIGHT_TEMPLATE);
    add_word(l, "User", 4, WEIGHT_TEMPLATE);
    add_word(l, "Assistant", 9, WEIGHT_TEMPLATE);
    add_word(l, "System", 6, WEIGHT_TEMPLATE);
    add_turn(l, scene_transcript_question(), WEIGHT_TEMPLATE);
    for (int f = 0; f < SCENE_FIELD_COUNT; f++)
        add_field(l, (scene_field)f);
    add_senses(l);
    for (size_t i = 0; i < SENTENCES; i++)
        add_turn(l, sentences[i], WEIGHT_SENTENCE);
}

/* ---- merging ---- */

typedef struct pair_count {
    uint16_t left, right;
    uint32_t count;
} pair_count;

static void count_pair(pair_count *pairs, size_t *n, uint16_t left, uint16_t right, uint32_t weight)
{
    for (size_t i = 0; i < *n; i++) {
        if (pairs[i].left == left && pairs[i].right == right) {
            pairs[i].count += weight;
            return;
        }
    }
    pairs[(*n)++] = (pair_count){left, right, weight};
}

static bool pair_precedes(const scene_vocabulary *v, const pair_count *a, const pair_count *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    int order = strcmp(v->token[a->left], v->token[b->left]);
    return order ? order < 0 : strcmp(v->token[a->right], v->token[b->right]) < 0;
}

/* The most frequent pair; false when every word is one token. */
static bool best_pair(const learner *l, pair_count *pairs, pair_count *best)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        for (size_t k = 0; k + 1 < l->list[i].pieces; k++)
            count_pair(pairs, &n, l->list[i].piece[k], l->list[i].piece[k + 1], l->list[i].weight);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || pair_precedes(l->out, &pairs[i], best))
            *best = pairs[i];
    return n > 0;
}

static void apply_merge(learner *l, const pair_count *pair, uint16_t id)
{
    for (size_t i = 0; i < l->count; i++) {
        word *w = &l->list[i];
        size_t to = 0;
        for (size_t k = 0; k < w->pieces; to++) {
            bool hit =
                k + 1 < w->pieces && w->piece[k] == pair->left && w->piece[k + 1] == pair->right;
            w->piece[to] = hit ? id : w->piece[k];
            k += hit ? 2 : 1;
        }
        w->pieces = to;
    }
}

static bool add_token(scene_vocabulary *v, const char *text, int32_t type)
{
    v->token[v->count] = strdup(text);
    v->type[v->count] = type;
    return v->token[v->count++] != NULL;
}

static tacit_status learn_merges(learner *l, size_t merges, tacit_error *err)
{
    pair_count *pairs = malloc(WORDS_MAX * WORD_BYTES * sizeof *pairs), best;
    scene_vocabulary *v = l->out;
    tacit_status status = TACIT_OK;
    if (!pairs)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to count pairs of tokens");
    while (v->n_merges < merges && status == TACIT_OK) {
        char text[MERGE_BYTES];
        if (!best_pair(l, pairs, &best)) {
            status = tacit_fail(err, TACIT_FAILED,
                                "the corpus of the vocabulary yields %zu merges, expected %zu",
                                v->n_merges, merges);
            break;
        }
        apply_merge(l, &best, (uint16_t)v->count);
        snprintf(text, sizeof text, "%s %s", v->token[best.left], v->token[best.right]);
        v->merge[v->n_merges] = strdup(text);
        snprintf(text, sizeof text, "%s%s", v->token[best.left], v->token[best.right]);
        if (!v->merge[v->n_merges++] || !add_token(v, text, 1))
            status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a token");
    }
    free(pairs);
    return status;
}

static bool add_controls(scene_vocabulary *v)
{
    char text[TOKEN_BYTES];
    bool ok = true;
    for (size_t i = 0; i < CONTROL_WORDS; i++)
        ok = ok && add_token(v, control_words[i], 3);
    for (int i = 0; i < IMAGE_GRID * IMAGE_GRID; i++) {
        snprintf(text, sizeof text, "<row_%d_col_%d>", i / IMAGE_GRID + 1, i % IMAGE_GRID + 1);
        ok = ok && add_token(v, text, 3);
    }
    for (int i = 0; i < RESERVED_TOKENS; i++) {
        snprintf(text, sizeof text, "<reserved_%d>", i);
        ok = ok && add_token(v, text, 3);
    }
    return ok;
}

tacit_status scene_vocabulary_make(scene_vocabulary *out, tacit_error *err)
{
    enum { CONTROLS = CONTROL_WORDS + IMAGE_GRID * IMAGE_GRID + RESERVED_TOKENS };
    enum { MERGES = SCENE_VOCABULARY_TOKENS - BYTE_TOKENS - CONTROLS };
    learner l = {calloc(WORDS_MAX, sizeof *l.list), 0, out};
    bool ok = l.list != NULL;
    *out = (scene_vocabulary){.token = calloc(SCENE_VOCABULARY_TOKENS, sizeof *out->token),
                              .type = calloc(SCENE_VOCABULARY_TOKENS, sizeof *out->type),
                              .merge = calloc(MERGES, sizeof *out->merge)};
    ok = ok && out->token && out->type && out->merge;
    for (unsigned b = 0; ok && b < BYTE_TOKENS; b++) {
        char text[3];
        byte_text(b, text);
        ok = add_token(out, text, 1);
    }
    tacit_status status = TACIT_NO_MEMORY;
    if (ok) {
        add_corpus(&l);
        status = learn_merges(&l, MERGES, err);
    }
    if (status == TACIT_OK && !add_controls(out))
        status = TACIT_NO_MEMORY;
    if (status == TACIT_NO_MEMORY)
        tacit_fail(err, status, "no memory for the vocabulary");
    free(l.list);
    if (status != TACIT_OK)
        scene_vocabulary_free(out);
    return status;
}

void scene_vocabulary_free(scene_vocabulary *v)
{
    for (size_t i = 0; v->token && i < v->count; i++)
        free(v->token[i]);
    for (size_t i = 0; v->merge && i < v->n_merges; i++)
        free(v->merge[i]);
    free(v->token);
    free(v->type);
    free(v->merge);
    *v = (scene_vocabulary){0};
}

int32_t scene_vocabulary_find(const scene_vocabulary *v, const char *text)
{
    for (size_t i = 0; i < v->count; i++)
        if (strcmp(v->token[i], text) == 0)
            return (int32_t)i;
    return -1;
}

static void put_text(gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

static void put_list(gguf_writer *w, const char *key, char *const *text, size_t n)
{
    gguf_string list[SCENE_VOCABULARY_TOKENS];
    for (size_t i = 0; i < n; i++)
        list[i] = (gguf_string){text[i], strlen(text[i])};
    gguf_put_strings(w, key, list, n);
}

void scene_vocabulary_put(const scene_vocabulary *v, gguf_writer *w)
{
    uint32_t start = (uint32_t)scene_vocabulary_find(v, "<|im_start|>");
    uint32_t end = (uint32_t)scene_vocabulary_find(v, "<end_of_utterance>");
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_text(w, "tokenizer.ggml.pre", "smollm");
    put_list(w, "tokenizer.ggml.tokens", v->token, v->count);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, v->count);
    put_list(w, "tokenizer.ggml.merges", v->merge, v->n_merges);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", start);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", end);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id",
                 (uint32_t)scene_vocabulary_find(v, "<|im_end|>"));
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id",
                 (uint32_t)scene_vocabulary_find(v, "<reserved_0>"));
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token", false);
    put_text(w, "tokenizer.chat_template", chat_template);
}
