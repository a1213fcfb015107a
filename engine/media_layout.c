#include "engine/media_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char around[] = "<fake_token_around_image>";

/* How the forms differ. */
static const struct {
    const char *name;
    bool opens_twice;       /* one more <F> before the first tile */
    const char *before_all; /* what stands between the tiles and the overview */
    bool needs_tiles;
} forms[] = {
    [MEDIA_FORM_HF] = {"hf", false, "\n\n", false},
    [MEDIA_FORM_HF_FRAME] = {"hf-frame", false, "\n\n", false},
    [MEDIA_FORM_MTMD] = {"mtmd", false, "\n\n", true},
    [MEDIA_FORM_MTMD_IK] = {"mtmd-ik", true, "\n", true},
};

tacit_status media_form_choose(media_form *out, const char *name, tacit_error *err)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (!name || strcmp(forms[i].name, name) == 0) {
            *out = (media_form)i;
            return TACIT_OK;
        }
    return tacit_fail(err, TACIT_USAGE, "--form %s: expected " MEDIA_FORM_NAMES, name);
}

typedef struct layout_builder {
    media_layout *out;
    const tacit_tokenizer *tokenizer;
    size_t capacity;
    tacit_error *err;
} layout_builder;

static tacit_status push(layout_builder *b, int32_t token, int32_t frame)
{
    media_layout *l = b->out;
    if (l->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 16;
        media_step *grown = realloc(l->step, capacity * sizeof *grown);
        if (!grown)
            return tacit_fail(b->err, TACIT_NO_MEMORY, "no memory for the tokens of a picture");
        l->step = grown;
        b->capacity = capacity;
    }
    l->step[l->count++] = (media_step){token, frame};
    return TACIT_OK;
}

static tacit_status push_frame(layout_builder *b)
{
    return push(b, -1, (int32_t)b->out->frames++);
}

static tacit_status push_marker(layout_builder *b, const char *text)
{
    int32_t id = tacit_tokenizer_find(b->tokenizer, text);
    if (id < 0)
        return tacit_fail(b->err, TACIT_BAD_INPUT,
                          "the vocabulary has no token '%s': this text model does not go with "
                          "pictures of this form",
                          text);
    return push(b, id, -1);
}

/* Line breaks are ordinary text: one token where the vocabulary has one. */
static tacit_status push_text(layout_builder *b, const char *text)
{
    tacit_tokens tokens = {0};
    tacit_status status = tacit_tokenize(b->tokenizer, text, strlen(text), false, &tokens, b->err);
    for (size_t i = 0; i < tokens.count && status == TACIT_OK; i++)
        status = push(b, tokens.id[i], -1);
    tacit_tokens_free(&tokens);
    return status;
}

static tacit_status push_tile(layout_builder *b, uint32_t row, uint32_t col)
{
    char name[32];
    tacit_status status;
    snprintf(name, sizeof name, "<row_%u_col_%u>", row + 1, col + 1);
    TACIT_TRY(push_marker(b, around), done);
    TACIT_TRY(push_marker(b, name), done);
    status = push_frame(b);
done:
    return status;
}

static tacit_status push_tiles(layout_builder *b, media_form form, uint32_t rows, uint32_t cols)
{
    tacit_status status = forms[form].opens_twice ? push_marker(b, around) : TACIT_OK;
    for (uint32_t r = 0; r < rows && status == TACIT_OK; r++) {
        for (uint32_t c = 0; c < cols && status == TACIT_OK; c++)
            status = push_tile(b, r, c);
        if (status == TACIT_OK)
            status = push_text(b, r + 1 < rows ? "\n" : forms[form].before_all);
    }
    return status;
}

tacit_status media_layout_make(media_layout *out, const tacit_tokenizer *tokenizer, media_form form,
                               uint32_t grid_rows, uint32_t grid_cols, tacit_error *err)
{
    layout_builder b = {out, tokenizer, 0, err};
    tacit_status status;
    *out = (media_layout){0};
    if (grid_rows > MEDIA_MAX_GRID || grid_cols > MEDIA_MAX_GRID || !grid_rows != !grid_cols ||
        (forms[form].needs_tiles && grid_rows == 0))
        return tacit_fail(err, TACIT_USAGE, "no picture of %u x %u tiles in the form %s", grid_rows,
                          grid_cols, forms[form].name);
    TACIT_TRY(push_tiles(&b, form, grid_rows, grid_cols), done);
    TACIT_TRY(push_marker(&b, around), done);
    TACIT_TRY(push_marker(&b, "<global-img>"), done);
    TACIT_TRY(push_frame(&b), done);
    TACIT_TRY(push_marker(&b, around), done);
done:
    if (status != TACIT_OK)
        media_layout_free(out);
    return status;
}

void media_layout_free(media_layout *l)
{
    free(l->step);
    *l = (media_layout){0};
}
