/* Sizes come from the parts that allocate: the layout, the workspace of the text model, the
 * encoders' passes. What they say grows with rows and rank but for workspaces that keep more where
 * little is kept, so what is advised is tried, not computed backwards. */
#include "engine/train_memory.h"

#include "common/memory_limit.h"
#include "engine/context_plan.h"
#include "engine/layout.h"
#include "engine/model_parts.h"
#include "engine/model_write.h"
#include "engine/text_attention.h"
#include "engine/text_train.h"
#include "engine/train_values.h"

#include <stdio.h>
#include <string.h>

#define UNIT_LANES 8
#define LANE_VALUES ((size_t)4 << 20)         /* above: one lane a unit */
#define SIDE_BY_SIDE_BYTES ((size_t)96 << 20) /* largest workspace of a thread */
#define FLIGHT_BYTES ((size_t)8 << 20)        /* gradients of lanes that are in flight */
#define FLIGHT_MAX 64
#define LEAST_ROWS 32 /* shorter examples are no advice */
#define ADVISED_RANK 8
#define TABLE_BYTES ((uint64_t)256 << 10) /* plans, lanes and whatever else is small */
#define WRITER_BYTES ((uint64_t)4 << 20)  /* what a file is written through */

/* ---- the way ---- */

static bool has_plain_weights(const tacit_text_model *m)
{
    for (size_t i = 0; i < m->n_layers; i++)
        for (int k = 0; k < TEXT_LINEARS; k++) {
            const tacit_linear *l = &m->layer[i].linear[k];
            if (!l->expanded && l->type->type != TACIT_TYPE_F32)
                return false;
        }
    return true;
}

train_way train_way_of(const train_plan *plan, size_t values, size_t max_rows, size_t threads)
{
    text_train_options options = {.max_rows = max_rows};
    bool plain = has_plain_weights(plan->model) && values <= LANE_VALUES;
    train_way w = {.lanes_of_unit = plain ? UNIT_LANES : 1};
    w.side_by_side = plain && text_train_bytes(plan, &options, 1) <= SIDE_BY_SIDE_BYTES;
    w.workers = w.side_by_side ? threads : 1;
    size_t flight = FLIGHT_BYTES / sizeof(float) / (values ? values : 1);
    flight = flight > FLIGHT_MAX ? FLIGHT_MAX : flight;
    w.n_lanes = flight > w.lanes_of_unit ? flight : w.lanes_of_unit;
    return w;
}

/* ---- sizes ---- */

/* A training whose values are not there. */
typedef struct sizing {
    const tacit_model *model;
    tacit_training training;
    tacit_pool *pool;
    tacit_layout layout;
    tacit_text_model shape; /* of TACIT_TRAIN_ALL: every weight fp32 */
    train_plan plan;
    size_t frozen; /* values that are drawn */
    bool encodes;  /* encoders are trained, too */
} sizing;

static void close_sizing(sizing *s)
{
    train_plan_free(&s->plan);
    train_model_unbind(&s->shape);
    tacit_layout_free(&s->layout);
}

static tacit_status size_pairs(sizing *s, tacit_error *err)
{
    lora_sites sites;
    tacit_status status = lora_sites_of(&sites, s->model, s->training.spec, err);
    if (status != TACIT_OK)
        return status;
    s->plan.pairs.max_rank = sites.max_rank;
    s->frozen = train_values_frozen(&sites, s->training.spec->kind);
    s->encodes = sites.encoders;
    lora_sites_free(&sites);
    return TACIT_OK;
}

static tacit_status open_sizing(sizing *s, const tacit_model *model, const tacit_training *training,
                                tacit_pool *pool, tacit_error *err)
{
    const tacit_trainable_spec *spec = training->spec;
    const tacit_text_model *text = &model->text;
    tacit_status status;
    *s = (sizing){.model = model, .training = *training, .pool = pool};
    s->encodes = !layout_is_adapter(spec->kind);
    TACIT_TRY(tacit_layout_make(&s->layout, model, spec, err), fail);
    if (spec->kind == TACIT_TRAIN_ALL) {
        TACIT_TRY(train_model_shape(&s->shape, model, err), fail);
        text = &s->shape;
    }
    TACIT_TRY(train_plan_new(&s->plan, text, err), fail);
    if (layout_is_lora(spec->kind))
        TACIT_TRY(size_pairs(s, err), fail);
    return TACIT_OK;
fail:
    close_sizing(s);
    return status;
}

/* Pages of files that every step reads; what is trained is read once. */
static uint64_t weight_bytes(const sizing *s)
{
    tacit_trainable_kind kind = s->training.spec->kind;
    uint64_t bytes = 0, mapped;
    if (kind == TACIT_TRAIN_ALL)
        return 0;
    bytes = context_plan_weights(&s->model->text, TACIT_EXACT, &mapped);
    for (size_t k = 0; k < s->model->n_encoders; k++) {
        const model_encoder *e = &s->model->encoder[k];
        for (size_t i = 0; i < e->kind->tensor_count(e->self); i++) {
            encoder_tensor t = e->kind->tensor_at(e->self, i);
            bytes += kind == TACIT_TRAIN_PROJECTOR && t.projector ? 0 : t.data->bytes;
        }
    }
    return bytes;
}

/* The passes of one medium of each kind, and its rows: one where rows are cached, else one a
 * worker. */
static uint64_t encoder_bytes(const sizing *s, size_t rows, size_t workers)
{
    bool cached = !s->encodes;
    uint64_t bytes = 0, passes = 0;
    for (size_t k = 0; k < s->model->n_encoders; k++) {
        const model_encoder *e = &s->model->encoder[k];
        bytes += rows * (uint64_t)s->model->text.embedding * sizeof(float);
        passes = tacit_memory_sum(passes,
                                  e->kind->pass_bytes(e->self, 1, cached ? PASS_EXACT : PASS_TRAIN,
                                                      cached ? s->pool : NULL));
    }
    return tacit_memory_sum(tacit_memory_product(bytes, workers),
                            tacit_memory_product(passes, cached ? 1 : workers));
}

static uint64_t working_bytes(const sizing *s, size_t rows, const train_way *way)
{
    text_train_options options = {.max_rows = rows};
    size_t threads = way->side_by_side ? 1 : tacit_pool_threads(s->pool);
    uint64_t row = sizeof(text_place) + sizeof(size_t) + sizeof(int32_t) + sizeof(text_span);
    return TABLE_BYTES +
           way->workers * (text_train_bytes(&s->plan, &options, threads) + rows * row);
}

static size_t moments_of(const tacit_optimizer_spec *o)
{
    return !o ? 0 : o->kind == TACIT_SGD ? 1 : 2;
}

/* Of an adapter's file all tensors are held at once, and what is drawn is drawn anew. */
static uint64_t saving_bytes(const sizing *s)
{
    uint64_t adapter = (s->layout.values + 2 * (uint64_t)s->frozen) * sizeof(float);
    if (!s->training.saves)
        return 0;
    return WRITER_BYTES +
           (layout_is_adapter(s->training.spec->kind) ? adapter : model_save_bytes(s->model));
}

static tacit_training_plan plan_of(const sizing *s, size_t rows)
{
    uint64_t values = s->layout.values, vector = values * sizeof(float);
    train_way way = train_way_of(&s->plan, s->layout.values, rows, tacit_pool_threads(s->pool));
    tacit_training_plan p = {
        .weights = weight_bytes(s),
        .values = vector + (uint64_t)s->frozen * sizeof(float),
        .gradients = way.n_lanes * vector,
        .optimizer = moments_of(s->training.optimizer) * vector,
        .working = working_bytes(s, rows, &way),
        .encoders = encoder_bytes(s, rows, way.workers),
        .beside =
            tacit_memory_sum(tacit_memory_product(s->training.beside, values), saving_bytes(s))};
    const uint64_t part[] = {p.weights, p.values,   p.gradients, p.optimizer,
                             p.working, p.encoders, p.beside};
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        p.total = tacit_memory_sum(p.total, part[i]);
    return p;
}

tacit_status tacit_training_plan_of(tacit_training_plan *out, const tacit_model *model,
                                    const tacit_training *training, tacit_pool *pool,
                                    tacit_error *err)
{
    sizing s;
    *out = (tacit_training_plan){0};
    tacit_status status = open_sizing(&s, model, training, pool, err);
    if (status != TACIT_OK)
        return status;
    *out = plan_of(&s, training->max_rows);
    close_sizing(&s);
    return TACIT_OK;
}

/* ---- what would fit ---- */

static bool fits(const tacit_model *model, const tacit_training *training, tacit_pool *pool,
                 uint64_t available)
{
    tacit_training_plan p;
    tacit_error none;
    return tacit_training_plan_of(&p, model, training, pool, &none) == TACIT_OK &&
           p.total <= available;
}

/* The most rows or ranks below `most` that were found to fit; 0: none. */
static size_t rows_that_fit(const sizing *s, uint64_t available)
{
    size_t least = 0, most = s->training.max_rows;
    while (most - least > 1) {
        size_t middle = least + (most - least) / 2;
        *(plan_of(s, middle).total <= available ? &least : &most) = middle;
    }
    return least;
}

static uint32_t rank_that_fits(const sizing *s, uint64_t available)
{
    tacit_trainable_spec spec = *s->training.spec;
    tacit_training training = s->training;
    uint32_t least = 0, most = spec.rank;
    training.spec = &spec;
    while (layout_is_lora(spec.kind) && most - least > 1) {
        spec.rank = least + (most - least) / 2;
        *(fits(s->model, &training, s->pool, available) ? &least : &most) = spec.rank;
    }
    return least;
}

/* From what trains most to what trains least. */
static const struct {
    tacit_trainable_kind kind;
    const char *words;
} kinds[] = {
    {TACIT_TRAIN_ALL, "every tensor"},
    {TACIT_TRAIN_PROJECTOR, "the projector alone"},
    {TACIT_TRAIN_LORA, "a LoRA adapter"},
    {TACIT_TRAIN_LORA_FFA, "an adapter with its half A frozen (ffa)"},
    {TACIT_TRAIN_LORA_CORE, "an adapter of cores between frozen halves (core)"},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

/* The next smaller kind of training that fits; false: none does. */
static bool kind_that_fits(const sizing *s, uint64_t available, char *out, size_t size)
{
    tacit_trainable_spec spec = *s->training.spec;
    tacit_training training = s->training;
    size_t i = 0;
    training.spec = &spec;
    if (!layout_is_lora(spec.kind)) {
        spec.rank = ADVISED_RANK;
        spec.alpha = 2 * ADVISED_RANK;
        spec.target[0] = "attn_q";
        spec.target[1] = "attn_v";
        spec.n_targets = 2;
    }
    while (i < KINDS && kinds[i].kind != s->training.spec->kind)
        i++;
    for (i++; i < KINDS; i++) {
        spec.kind = kinds[i].kind;
        if (!fits(s->model, &training, s->pool, available))
            continue;
        if (layout_is_lora(spec.kind))
            snprintf(out, size, "%s of rank %u on %s%s", kinds[i].words, spec.rank, spec.target[0],
                     spec.n_targets > 1 ? " and others" : "");
        else
            snprintf(out, size, "%s", kinds[i].words);
        return true;
    }
    return false;
}

/* Makes "A" of nothing, "A, or B" of "A". */
static void append_choice(char *out, size_t size, const char *choice)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", used ? ", or " : "", choice);
}

static void advise(char *out, size_t size, const sizing *s, uint64_t available)
{
    char choice[128];
    size_t rows = rows_that_fit(s, available);
    uint32_t rank = rank_that_fits(s, available);
    out[0] = '\0';
    if (rows >= LEAST_ROWS) {
        snprintf(choice, sizeof choice, "examples of at most %zu rows", rows);
        append_choice(out, size, choice);
    }
    if (rank > 0) {
        snprintf(choice, sizeof choice, "rank %u", rank);
        append_choice(out, size, choice);
    }
    if (kind_that_fits(s, available, choice, sizeof choice))
        append_choice(out, size, choice);
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s",
             used ? " would fit" : "use a smaller model, or a file of a smaller element type");
}

/* ", optimizer 1.5 GiB" where there is any. */
static void append_part(char *out, size_t size, const char *name, uint64_t bytes)
{
    char text[TACIT_MEMORY_TEXT];
    size_t used = strlen(out);
    if (bytes > 0)
        snprintf(out + used, size - used, "%s%s %s", used ? ", " : "", name,
                 tacit_memory_text(text, bytes));
}

static void list_parts(char *out, size_t size, const tacit_training_plan *p, size_t rows)
{
    char working[64];
    snprintf(working, sizeof working, "working memory for %zu rows", rows);
    out[0] = '\0';
    append_part(out, size, "weights", p->weights);
    append_part(out, size, "values", p->values);
    append_part(out, size, "gradients", p->gradients);
    append_part(out, size, "optimizer", p->optimizer);
    append_part(out, size, working, p->working);
    append_part(out, size, "encoders", p->encoders);
    append_part(out, size, "what is kept beside", p->beside);
}

tacit_status train_memory_check(const tacit_model *model, const tacit_training *training,
                                tacit_pool *pool, uint64_t available, tacit_error *err)
{
    sizing s;
    char total[TACIT_MEMORY_TEXT], there[TACIT_MEMORY_TEXT], parts[320], advice[320];
    tacit_status status = open_sizing(&s, model, training, pool, err);
    if (status != TACIT_OK)
        return status;
    tacit_training_plan p = plan_of(&s, training->max_rows);
    if (p.total > available) {
        list_parts(parts, sizeof parts, &p, training->max_rows);
        advise(advice, sizeof advice, &s, available);
        status = tacit_fail(err, TACIT_NO_MEMORY, "training needs %s (%s), %s are available: %s",
                            tacit_memory_text(total, p.total), parts,
                            tacit_memory_text(there, available), advice);
    }
    close_sizing(&s);
    return status;
}

tacit_status tacit_training_check(const tacit_model *model, const tacit_training *training,
                                  tacit_pool *pool, tacit_error *err)
{
    tacit_training_plan p;
    tacit_status status = tacit_training_plan_of(&p, model, training, pool, err);
    if (status != TACIT_OK)
        return status;
    return train_memory_check(model, training, pool, tacit_memory_available_beside(p.weights), err);
}
