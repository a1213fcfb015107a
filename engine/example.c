#include "engine/example.h"

#include "common/file.h"
#include "common/secret.h"
#include "engine/chat.h"
#include "engine/model_parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MEDIA 65535 /* tacit_row.media is 16 bits wide */

typedef struct example_builder {
    const tacit_model *model;
    tacit_example_options options;
    const tacit_message *messages;
    size_t n_messages;
    tacit_input *in;
    size_t capacity, media_capacity;
    size_t beyond;  /* rows that the limit leaves no place for: counted, to be told, not kept */
    bool unread;    /* media came behind the limit, which count as a row each */
    uint32_t next;  /* position of the next token or medium */
    uint32_t group; /* the last mask group */
    int32_t bos;
    tacit_error *err;
} example_builder;

static tacit_status push_row(example_builder *b, tacit_row row)
{
    tacit_input *in = b->in;
    if (in->count == b->options.max_rows) {
        b->beyond++;
        return TACIT_OK;
    }
    if (in->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 64;
        tacit_row *grown = realloc(in->row, capacity * sizeof *grown);
        if (!grown)
            return tacit_fail(b->err, TACIT_NO_MEMORY, "no memory for %zu rows", capacity);
        in->row = grown;
        b->capacity = capacity;
    }
    in->row[in->count++] = row;
    return TACIT_OK;
}

/* A limit below the context is the caller's; the context is the model's own. */
static tacit_status check_length(const example_builder *b)
{
    size_t rows = b->in->count + b->beyond, context = b->model->text.context_length;
    const char *least = b->unread ? "at least " : "";
    if (b->beyond == 0)
        return TACIT_OK;
    if (b->options.max_rows >= context)
        return tacit_fail(b->err, TACIT_BAD_INPUT,
                          "a conversation of %s%zu rows: the model's context holds %zu; shorten it",
                          least, rows, context);
    return tacit_fail(b->err, TACIT_BAD_INPUT,
                      "a conversation of %s%zu rows: at most %zu are taken here, the model's "
                      "context holds %zu; shorten it or raise the limit",
                      least, rows, b->options.max_rows, context);
}

static tacit_status push_token(example_builder *b, int32_t token, bool trained)
{
    return push_row(b, (tacit_row){.token = token, .trained = trained, .position = b->next++});
}

/* A template may print the BOS that the tokenizer asks for too: one stays. */
static bool repeats_bos(const example_builder *b, int32_t token)
{
    return b->bos >= 0 && token == b->bos && b->in->count == 1;
}

/* `after_text`: the piece goes on where an ordinary text ended. */
static tacit_status push_text(example_builder *b, const tacit_piece *piece, bool after_text)
{
    tacit_tokens tokens = {0};
    tacit_status status = (after_text ? tacit_tokenize_more : tacit_tokenize)(
        b->model->tokenizer, piece->text, piece->size, piece->kind == TACIT_PIECE_CONTROL, &tokens,
        b->err);
    for (size_t i = 0; i < tokens.count && status == TACIT_OK; i++)
        if (i > 0 || !repeats_bos(b, tokens.id[0]))
            status = push_token(b, tokens.id[i], piece->trained);
    tacit_tokens_free(&tokens);
    return status;
}

/* The index of a medium among those of the input, which takes its values. Beyond the limit nothing
 * is kept. Equal ones are one: in a form with tiles a picture of one tile appears twice. */
static tacit_status add_media(example_builder *b, tacit_media *media, uint16_t *index)
{
    tacit_input *in = b->in;
    size_t i = 0;
    while (i < in->n_media &&
           (in->media[i].modality != media->modality ||
            memcmp(in->media[i].digest, media->digest, sizeof media->digest) != 0))
        i++;
    *index = (uint16_t)i;
    if (i < in->n_media || in->count == b->options.max_rows) {
        tacit_wipe_free(media->values);
        return TACIT_OK;
    }
    if (in->n_media == b->media_capacity) {
        size_t capacity = b->media_capacity ? 2 * b->media_capacity : 4;
        tacit_media *grown =
            capacity <= MAX_MEDIA ? realloc(in->media, capacity * sizeof *grown) : NULL;
        if (!grown) {
            tacit_wipe_free(media->values);
            return tacit_fail(b->err, TACIT_NO_MEMORY, "no room for %zu media", capacity);
        }
        in->media = grown;
        b->media_capacity = capacity;
    }
    in->media[in->n_media++] = *media;
    return TACIT_OK;
}

static tacit_status take_token(void *ctx, int32_t id)
{
    return push_token(ctx, id, false);
}

/* Row i of a medium that begins at position `first`: behind the rows before it, or all at one time
 * in the rows and columns of a picture (M-RoPE, arXiv 2409.12191, section 2.1). */
static tacit_row media_row(const tacit_media *media, size_t i, uint32_t first)
{
    tacit_row row = {.token = (int32_t)i, .modality = media->modality};
    uint32_t width = media->grid[1];
    row.position = first + (width > 0 ? 0 : (uint32_t)i);
    if (width > 0) {
        row.shift[0] = (int32_t)(i / width);
        row.shift[1] = (int32_t)(i % width);
    }
    return row;
}

/* Positions that a medium takes up: what follows stands behind all its numbers. */
static uint32_t media_extent(const tacit_media *media)
{
    const uint32_t *grid = media->grid;
    if (grid[1] == 0)
        return (uint32_t)media->n_rows;
    return grid[0] > grid[1] ? grid[0] : grid[1];
}

static tacit_status take_media(void *ctx, tacit_media *media)
{
    example_builder *b = ctx;
    const tacit_media m = *media;
    uint16_t index = 0;
    tacit_status status = add_media(b, media, &index);
    uint32_t group = m.together ? ++b->group : 0;
    for (size_t i = 0; i < m.n_rows && status == TACIT_OK; i++) {
        tacit_row row = media_row(&m, i, b->next);
        row.media = index;
        row.group = group;
        status = push_row(b, row);
    }
    b->next += media_extent(&m);
    return status;
}

/* Media number `index` of the conversation. */
static const tacit_content *media_content(const example_builder *b, size_t index)
{
    for (size_t m = 0; m < b->n_messages; m++)
        for (size_t c = 0; c < b->messages[m].n_content; c++) {
            const tacit_content *content = &b->messages[m].content[c];
            if (content->kind != TACIT_CONTENT_TEXT && index-- == 0)
                return content;
        }
    return NULL;
}

static size_t count_media(const example_builder *b, tacit_content_kind kind)
{
    size_t n = 0;
    for (size_t m = 0; m < b->n_messages; m++)
        for (size_t c = 0; c < b->messages[m].n_content; c++)
            n += b->messages[m].content[c].kind == kind;
    return n;
}

static tacit_status read_media(const example_builder *b, const char *path, size_t cap,
                               uint8_t **data, size_t *size)
{
    const tacit_media_source *source = b->options.source;
    return source ? source->read(source->ctx, path, data, size, b->err)
                  : tacit_file_read(path, cap, data, size, b->err);
}

static tacit_status push_marker(example_builder *b, int32_t token)
{
    return token < 0 ? TACIT_OK : push_token(b, token, false);
}

static tacit_status lay_out_media(example_builder *b, const model_encoder *e, const char *path)
{
    const media_sink sink = {b, take_token, take_media};
    media_request request = {.name = path,
                             .tokenizer = b->model->tokenizer,
                             .form = b->options.form,
                             .several = count_media(b, e->kind->content) > 1};
    uint8_t *data = NULL;
    size_t size = 0;
    tacit_status status;
    TACIT_TRY(read_media(b, path, e->kind->max_file, &data, &size), done);
    request.data = data;
    request.size = size;
    TACIT_TRY(push_marker(b, e->begin), done);
    TACIT_TRY(e->kind->lay_out(e->self, &request, &sink, b->err), done);
    status = push_marker(b, e->end);
done:
    tacit_wipe_free(data);
    return status;
}

/* A line of a data set may name a picture of seconds tens of thousands of times: behind the limit
 * none is read. */
static tacit_status push_media(example_builder *b, size_t index)
{
    if (b->in->count == b->options.max_rows) {
        b->beyond++;
        b->unread = true;
        return TACIT_OK;
    }
    const tacit_content *content = media_content(b, index);
    if (!content)
        return tacit_fail(b->err, TACIT_FAILED, "the template asks for medium %zu of fewer", index);
    const encoder_kind *kind = encoder_kind_of_content(content->kind);
    const model_encoder *e = kind ? model_encoder_of(b->model, kind->modality) : NULL;
    if (!e)
        return model_encoder_missing(kind ? kind->modality : TACIT_MODALITY_TOKEN, content->text,
                                     b->err);
    return lay_out_media(b, e, content->text);
}

/* A BOS that the template prints is the one that the tokenizer asks for. That there is one was
 * checked with the template (tacit_chat_check_tokens). */
static tacit_status push_mark(example_builder *b, const tacit_piece *piece)
{
    bool bos = piece->kind == TACIT_PIECE_BOS;
    int32_t id = bos ? tacit_tokenizer_bos_token(b->model->tokenizer)
                     : tacit_tokenizer_eos(b->model->tokenizer);
    return bos && repeats_bos(b, id) ? TACIT_OK : push_token(b, id, piece->trained);
}

static tacit_status push_piece(example_builder *b, const tacit_pieces *pieces, size_t i)
{
    const tacit_piece *piece = &pieces->piece[i];
    switch (piece->kind) {
    case TACIT_PIECE_MEDIA:
        return push_media(b, piece->media);
    case TACIT_PIECE_BOS:
    case TACIT_PIECE_EOS:
        return push_mark(b, piece);
    default:
        return push_text(b, piece, i > 0 && piece[-1].kind == TACIT_PIECE_TEXT);
    }
}

static tacit_status push_pieces(example_builder *b, const tacit_pieces *pieces)
{
    tacit_status status = b->bos >= 0 ? push_token(b, b->bos, false) : TACIT_OK;
    for (size_t i = 0; i < pieces->count && status == TACIT_OK; i++)
        status = push_piece(b, pieces, i);
    return status;
}

static tacit_status build(tacit_input *out, const tacit_model *model, const tacit_message *messages,
                          size_t n, bool generate, const tacit_example_options *options,
                          tacit_error *err)
{
    tacit_pieces pieces = {0};
    tacit_status status;
    example_builder b = {.model = model, .messages = messages, .n_messages = n, .in = out};
    b.err = err;
    b.bos = tacit_tokenizer_bos(model->tokenizer);
    if (options)
        b.options = *options;
    if (b.options.max_rows == 0)
        b.options.max_rows = model->text.context_length;
    *out = (tacit_input){0};
    TACIT_TRY(tacit_model_check_chat(model, err), done);
    TACIT_TRY(tacit_chat_render(&model->chat, messages, n, generate, &pieces, err), done);
    TACIT_TRY(push_pieces(&b, &pieces), done);
    status = check_length(&b);
done:
    tacit_pieces_free(&pieces);
    if (status != TACIT_OK)
        tacit_input_free(out);
    return status;
}

tacit_status tacit_example_build(tacit_input *out, const tacit_model *model,
                                 const tacit_record *record, const tacit_example_options *options,
                                 tacit_error *err)
{
    tacit_status status =
        build(out, model, record->message, record->n_messages, false, options, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 1; i < out->count; i++)
        if (out->row[i].trained)
            return TACIT_OK;
    tacit_input_free(out);
    return tacit_fail(err, TACIT_BAD_INPUT, "record '%s' has no answer to train on", record->id);
}

tacit_status tacit_example_prompt(tacit_input *out, const tacit_model *model,
                                  const tacit_message *messages, size_t n,
                                  const tacit_example_options *options, tacit_error *err)
{
    return build(out, model, messages, n, true, options, err);
}
