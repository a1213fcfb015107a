#include "engine/lora_sites.h"

#include "engine/model_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN_MAX 96
#define WEIGHT ".weight"

/* ---- names ---- */

static bool find_layer_linear(lora_site *s, const tacit_text_model *m, const char *tensor)
{
    char name[sizeof s->tensor];
    size_t digits = strncmp(tensor, "blk.", 4) == 0 ? strspn(tensor + 4, "0123456789") : 0;
    if (digits == 0 || digits > 6)
        return false;
    size_t layer = strtoul(tensor + 4, NULL, 10);
    if (layer >= m->n_layers)
        return false;
    for (int i = 0; i < TEXT_LINEARS; i++) {
        const tacit_linear *l = &m->layer[layer].linear[i];
        snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, text_linear_name((text_linear)i));
        if (strcmp(name, tensor) != 0 || !text_has_linear(&m->layer[layer], (text_linear)i))
            continue;
        *s = (lora_site){.place = LORA_LAYER, .layer = layer, .which = (text_linear)i};
        s->n_in = l->n_in;
        s->n_out = l->n_out;
        return true;
    }
    return false;
}

static bool find_output(lora_site *s, const tacit_text_model *m, const char *tensor)
{
    if (m->tied || strcmp(tensor, "output.weight") != 0)
        return false;
    *s = (lora_site){.place = LORA_OUTPUT, .n_in = m->output.n_in, .n_out = m->output.n_out};
    return true;
}

/* Tensor `part` of an encoder, where a pair can stand beside it. */
static bool encoder_site(lora_site *s, const tacit_model *model, size_t encoder, size_t part)
{
    const model_encoder *e = &model->encoder[encoder];
    encoder_tensor t = e->kind->tensor_at(e->self, part);
    size_t size = strlen(t.name), tail = strlen(WEIGHT);
    if (!t.linear || size >= sizeof s->tensor || size <= tail ||
        strcmp(t.name + size - tail, WEIGHT) != 0)
        return false;
    *s = (lora_site){.place = LORA_ENCODER, .encoder = encoder, .part = part};
    s->n_in = t.cols;
    s->n_out = t.rows;
    memcpy(s->tensor, t.name, size + 1);
    return true;
}

static bool find_encoder_linear(lora_site *s, const tacit_model *model, const char *tensor)
{
    for (size_t k = 0; k < model->n_encoders; k++) {
        const model_encoder *e = &model->encoder[k];
        for (size_t i = 0; i < e->kind->tensor_count(e->self); i++)
            if (encoder_site(s, model, k, i) && strcmp(s->tensor, tensor) == 0)
                return true;
    }
    return false;
}

bool lora_site_find(lora_site *out, const tacit_model *model, const char *tensor)
{
    if (!find_layer_linear(out, &model->text, tensor) && !find_output(out, &model->text, tensor))
        return find_encoder_linear(out, model, tensor);
    snprintf(out->tensor, sizeof out->tensor, "%s", tensor);
    return true;
}

/* ---- targets ---- */

typedef struct lora_target {
    char pattern[PATTERN_MAX + 1];
    uint32_t rank;
    bool is_short; /* about short names */
} lora_target;

static tacit_status check_rank(uint64_t rank, const char *of, tacit_error *err)
{
    return rank >= 1 && rank <= TACIT_TRAINABLE_RANK_MAX
               ? TACIT_OK
               : tacit_fail(err, TACIT_USAGE, "adapter: rank %llu%s%s; expected 1 to %d",
                            (unsigned long long)rank, *of ? " of " : "", of,
                            TACIT_TRAINABLE_RANK_MAX);
}

static tacit_status parse_target(lora_target *out, const char *text, uint32_t rank,
                                 tacit_error *err)
{
    size_t size = strcspn(text, "=");
    if (size < 1 || size > PATTERN_MAX)
        return tacit_fail(err, TACIT_USAGE,
                          "adapter: target '%.*s': expected PATTERN or PATTERN=RANK, PATTERN of at "
                          "most %d characters",
                          PATTERN_MAX, text, PATTERN_MAX);
    *out = (lora_target){.rank = rank};
    memcpy(out->pattern, text, size);
    out->is_short = !strchr(out->pattern, '.') || text_linear_find(out->pattern) < TEXT_LINEARS;
    if (text[size] == '\0')
        return TACIT_OK;
    const char *digits = text + size + 1;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 6 || digits[n] != '\0')
        return tacit_fail(err, TACIT_USAGE,
                          "adapter: target '%.*s': expected a number as the rank behind '='",
                          2 * PATTERN_MAX, text);
    out->rank = (uint32_t)strtoul(digits, NULL, 10);
    return check_rank(out->rank, out->pattern, err);
}

/* Whether `pattern` fits the whole of the `size` bytes at `text`. Where it does not, the last * is
 * tried at a later place: that is enough, as an earlier one would only leave less. */
static bool fits_pattern(const char *pattern, const char *text, size_t size)
{
    const char *star = NULL;
    size_t at = 0, retry = 0;
    while (at < size) {
        if (*pattern == '*') {
            star = pattern++;
            retry = at;
        } else if (*pattern == '?' || *pattern == text[at]) {
            pattern++;
            at++;
        } else if (star) {
            pattern = star + 1;
            at = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool fits_target(const lora_target *t, const lora_site *s)
{
    const char *name = t->is_short && s->place == LORA_LAYER ? text_linear_name(s->which) : NULL;
    if (name)
        return fits_pattern(t->pattern, name, strlen(name));
    if (t->is_short && s->place == LORA_ENCODER)
        return false;
    return fits_pattern(t->pattern, s->tensor, strlen(s->tensor) - strlen(WEIGHT));
}

/* ---- sites ---- */

typedef struct site_builder {
    const tacit_trainable_spec *spec;
    lora_target target[TACIT_TRAINABLE_TARGETS_MAX];
    bool fitted[TACIT_TRAINABLE_TARGETS_MAX], took[TACIT_TRAINABLE_TARGETS_MAX];
    lora_sites *out;
} site_builder;

float lora_file_alpha(const tacit_trainable_spec *spec)
{
    return (float)(spec->rslora ? spec->alpha * sqrt(spec->rank) : spec->alpha);
}

float lora_file_factor(const tacit_trainable_spec *spec, uint32_t rank)
{
    return spec->rslora ? (float)sqrt((double)rank / spec->rank) : 1.0f;
}

/* As a reader of the file would take it. */
static float scale_of(const tacit_trainable_spec *spec, uint32_t rank)
{
    double read = (double)lora_file_alpha(spec) / rank;
    return (float)(read * (double)lora_file_factor(spec, rank));
}

/* Target `i` takes the site where it fits, and no earlier one does. */
static void offer(site_builder *b, size_t i, const lora_site *site)
{
    if (!fits_target(&b->target[i], site))
        return;
    b->fitted[i] = true;
    for (size_t k = 0; k < i; k++)
        if (fits_target(&b->target[k], site))
            return;
    lora_site *s = &b->out->site[b->out->count++];
    *s = *site;
    s->rank = b->target[i].rank;
    s->scale = scale_of(b->spec, s->rank);
    b->took[i] = true;
    b->out->encoders |= s->place == LORA_ENCODER;
    b->out->max_rank = s->rank > b->out->max_rank ? s->rank : b->out->max_rank;
}

static void offer_layers(site_builder *b, const tacit_model *model)
{
    size_t layers = model->text.n_layers, last = b->spec->last_layers;
    for (size_t layer = last > 0 && last < layers ? layers - last : 0; layer < layers; layer++)
        for (size_t i = 0; i < b->spec->n_targets; i++)
            for (int k = 0; k < TEXT_LINEARS; k++) {
                lora_site site;
                char name[sizeof site.tensor];
                snprintf(name, sizeof name, "blk.%zu.%s.weight", layer,
                         text_linear_name((text_linear)k));
                if (lora_site_find(&site, model, name))
                    offer(b, i, &site);
            }
}

static void offer_output(site_builder *b, const tacit_model *model)
{
    lora_site site;
    for (size_t i = 0; i < b->spec->n_targets; i++)
        if (lora_site_find(&site, model, "output.weight"))
            offer(b, i, &site);
}

static void offer_encoders(site_builder *b, const tacit_model *model)
{
    for (size_t k = 0; k < model->n_encoders; k++) {
        const model_encoder *e = &model->encoder[k];
        for (size_t part = 0; part < e->kind->tensor_count(e->self); part++)
            for (size_t i = 0; i < b->spec->n_targets; i++) {
                lora_site site;
                if (encoder_site(&site, model, k, part))
                    offer(b, i, &site);
            }
    }
}

/* At least as many as there are. */
static size_t most_sites(const tacit_model *model)
{
    size_t n = model->text.n_layers * TEXT_LINEARS + 1;
    for (size_t k = 0; k < model->n_encoders; k++)
        n += model->encoder[k].kind->tensor_count(model->encoder[k].self);
    return n;
}

static tacit_status refuse_unfitted(const tacit_model *model, const lora_target *t, bool fitted,
                                    tacit_error *err)
{
    char names[160];
    bool shared = model->text.tied && strcmp(t->pattern, "output") == 0;
    if (fitted)
        return tacit_fail(err, TACIT_USAGE,
                          "adapter: target '%s' is named twice: earlier ones take all that it fits",
                          t->pattern);
    if (shared || strcmp(t->pattern, "token_embd") == 0)
        return tacit_fail(
            err, TACIT_USAGE,
            "adapter: target '%s' is %s, which no pair can stand beside; leave it out", t->pattern,
            shared ? "an output that is the embedding's tensor" : "an embedding");
    return tacit_fail(err, TACIT_USAGE,
                      "adapter: nothing of the model, which is of architecture %s, fits the target "
                      "'%s'; expected a linear of a layer (%s), output, or a tensor's name, with * "
                      "and ? (\"attn_*\", \"blk.1?.attn_q\")",
                      model->text.architecture, t->pattern, text_linear_names(names, sizeof names));
}

static tacit_status check_spec(const tacit_trainable_spec *spec, const tacit_model *model,
                               tacit_error *err)
{
    tacit_status status = check_rank(spec->rank, "", err);
    if (status != TACIT_OK)
        return status;
    if (!(spec->alpha > 0.0) || !isfinite((float)spec->alpha))
        return tacit_fail(err, TACIT_USAGE, "adapter: alpha %g; expected a finite number above 0",
                          spec->alpha);
    if (spec->n_targets < 1 || spec->n_targets > TACIT_TRAINABLE_TARGETS_MAX)
        return tacit_fail(err, TACIT_USAGE, "adapter: %zu targets; expected 1 to %d",
                          spec->n_targets, TACIT_TRAINABLE_TARGETS_MAX);
    if (spec->last_layers > model->text.n_layers)
        return tacit_fail(err, TACIT_USAGE, "adapter: the last %u layers; the model has %zu",
                          spec->last_layers, model->text.n_layers);
    return TACIT_OK;
}

tacit_status lora_sites_of(lora_sites *out, const tacit_model *model,
                           const tacit_trainable_spec *spec, tacit_error *err)
{
    site_builder b = {.spec = spec, .out = out};
    *out = (lora_sites){0};
    tacit_status status = check_spec(spec, model, err);
    for (size_t i = 0; i < spec->n_targets && status == TACIT_OK; i++)
        status = parse_target(&b.target[i], spec->target[i], spec->rank, err);
    if (status != TACIT_OK)
        return status;
    out->site = calloc(most_sites(model), sizeof *out->site);
    if (!out->site)
        return tacit_fail(err, TACIT_NO_MEMORY, "adapter: no memory for %zu layers",
                          model->text.n_layers);
    offer_layers(&b, model);
    offer_output(&b, model);
    offer_encoders(&b, model);
    for (size_t i = 0; i < spec->n_targets && status == TACIT_OK; i++)
        if (!b.took[i])
            status = refuse_unfitted(model, &b.target[i], b.fitted[i], err);
    if (status != TACIT_OK)
        lora_sites_free(out);
    return status;
}

void lora_sites_free(lora_sites *s)
{
    free(s->site);
    *s = (lora_sites){0};
}
