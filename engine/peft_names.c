#include "engine/peft_names.h"

#include "engine/model_parts.h"
#include "engine/vision_parts.h"
#include "engine/vision_projector.h"

#include <stdio.h>
#include <string.h>

enum { MOST_FORMS = 3 };

typedef struct peft_arch {
    const char *name;               /* general.architecture */
    const char *prefix[MOST_FORMS]; /* of layers, by form */
    bool interleaved;               /* rows of q and k, in files */
    const char *linear[TEXT_LINEARS];
} peft_arch;

/* clang-format off */
#define USUAL_LINEARS                                                                              \
    {[TEXT_Q] = "self_attn.q_proj", [TEXT_K] = "self_attn.k_proj", [TEXT_V] = "self_attn.v_proj",  \
     [TEXT_O] = "self_attn.o_proj", [TEXT_GATE] = "mlp.gate_proj", [TEXT_UP] = "mlp.up_proj",      \
     [TEXT_DOWN] = "mlp.down_proj"}
#define LFM2_LINEARS                                                                               \
    {[TEXT_Q] = "self_attn.q_proj", [TEXT_K] = "self_attn.k_proj", [TEXT_V] = "self_attn.v_proj",  \
     [TEXT_O] = "self_attn.out_proj", [TEXT_GATE] = "feed_forward.w1",                             \
     [TEXT_UP] = "feed_forward.w3", [TEXT_DOWN] = "feed_forward.w2",                               \
     [TEXT_CONV_IN] = "conv.in_proj", [TEXT_CONV_OUT] = "conv.out_proj"}

/* Gemma 3's models of text alone come first, those with pictures after them, new and old names. */
static const peft_arch archs[] = {
    {"llama", {"model."}, true, USUAL_LINEARS},
    {"qwen2", {"model."}, false, USUAL_LINEARS},
    {"qwen3", {"model."}, false, USUAL_LINEARS},
    {"qwen2vl", {"model.language_model.", "model."}, false, USUAL_LINEARS},
    {"gemma3", {"model.", "model.language_model.", "language_model.model."}, false, USUAL_LINEARS},
    {"lfm2", {"model."}, false, LFM2_LINEARS},
};

/* What holds a text model, by the projector of the pictures' encoder. */
typedef struct peft_holder {
    const char *projector;
    const char *prefix[MOST_FORMS]; /* of the text model's layers, before the architecture's own */
    const char *blocks;             /* prefix of the tower's blocks; NULL: not known */
    const char *last;               /* the projector's only linear */
} peft_holder;

static const peft_holder holders[] = {
    {"idefics3", {"model.text_model."}, "model.vision_model.encoder.layers.",
     "model.connector.modality_projection.proj"},
    {"mlp", {"model.language_model.", "language_model.model."}, NULL, NULL},
};

static const char *const block_linears[VISION_PARTS] = {
    [VISION_Q] = "self_attn.q_proj", [VISION_K] = "self_attn.k_proj",
    [VISION_V] = "self_attn.v_proj", [VISION_OUT] = "self_attn.out_proj",
    [VISION_UP] = "mlp.fc1", [VISION_DOWN] = "mlp.fc2",
};
/* clang-format on */

static const peft_arch *find_arch(const tacit_model *m)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strcmp(archs[i].name, m->text.architecture) == 0)
            return &archs[i];
    return NULL;
}

static const peft_holder *find_holder(const tacit_model *m)
{
    const tacit_vision *v = model_vision(m);
    for (size_t i = 0; v && i < sizeof holders / sizeof holders[0]; i++)
        if (strcmp(holders[i].projector, v->projector->name) == 0)
            return &holders[i];
    return NULL;
}

static size_t count_prefixes(const char *const prefix[MOST_FORMS])
{
    size_t n = 0;
    while (n < MOST_FORMS && prefix[n])
        n++;
    return n;
}

size_t peft_forms(const tacit_model *m)
{
    const peft_arch *a = find_arch(m);
    const peft_holder *h = find_holder(m);
    return a ? count_prefixes(a->prefix) + (h ? count_prefixes(h->prefix) : 0) : 0;
}

/* The holder's forms come before the architecture's. */
static const char *prefix_of(const tacit_model *m, const peft_arch *a, size_t form)
{
    const peft_holder *h = find_holder(m);
    size_t held = h ? count_prefixes(h->prefix) : 0;
    return form < held ? h->prefix[form] : a->prefix[form - held];
}

static bool encoder_module(char out[PEFT_MODULE_MAX], const tacit_model *m, const lora_site *s)
{
    const peft_holder *h = find_holder(m);
    const model_encoder *e = &m->encoder[s->encoder];
    if (!h || !h->blocks || e->kind->modality != TACIT_MODALITY_IMAGE)
        return false;
    const tacit_vision *v = e->self;
    if (s->part >= v->first_projector) {
        snprintf(out, PEFT_MODULE_MAX, "%s", h->last);
        return true;
    }
    size_t at = s->part - v->first_block, layer = at / VISION_PARTS;
    const char *name = s->part >= v->first_block && layer < v->shape.layers
                           ? block_linears[at % VISION_PARTS]
                           : NULL;
    if (name)
        snprintf(out, PEFT_MODULE_MAX, "%s%zu.%s", h->blocks, layer, name);
    return name != NULL;
}

bool peft_module(char out[PEFT_MODULE_MAX], const tacit_model *m, const lora_site *s, size_t form)
{
    const peft_arch *a = find_arch(m);
    if (!a || form >= peft_forms(m))
        return false;
    if (s->place == LORA_ENCODER)
        return encoder_module(out, m, s);
    if (s->place == LORA_OUTPUT) {
        snprintf(out, PEFT_MODULE_MAX, "lm_head");
        return true;
    }
    if (a->linear[s->which])
        snprintf(out, PEFT_MODULE_MAX, "%slayers.%zu.%s", prefix_of(m, a, form), s->layer,
                 a->linear[s->which]);
    return a->linear[s->which] != NULL;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

const char *peft_short_name(const tacit_model *m, text_linear which)
{
    const peft_arch *a = find_arch(m);
    if (!a || !a->linear[which] || find_holder(m))
        return NULL;
    const char *end = last_part(a->linear[which]);
    for (int i = 0; i < TEXT_LINEARS; i++)
        if (i != (int)which && a->linear[i] && strcmp(last_part(a->linear[i]), end) == 0)
            return a->linear[which];
    return end;
}

size_t peft_head_rows(const tacit_model *m, const lora_site *s)
{
    const peft_arch *a = find_arch(m);
    bool turned = s->place == LORA_LAYER && (s->which == TEXT_Q || s->which == TEXT_K);
    return a && a->interleaved && turned ? m->text.head_dim : 0;
}

size_t peft_file_row(size_t row, size_t head_rows)
{
    if (head_rows == 0)
        return row;
    size_t in_head = row % head_rows, half = head_rows / 2;
    return row - in_head + 2 * (in_head % half) + in_head / half;
}
