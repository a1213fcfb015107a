#include "engine/fast_model.h"

#include "common/memory_limit.h"
#include "engine/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

struct fast_packing {
    pthread_mutex_t lock;
    fast_model *model; /* NULL before the first use */
};

fast_packing *fast_packing_new(void)
{
    fast_packing *p = calloc(1, sizeof *p);
    if (p)
        pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void free_model(fast_model *m)
{
    if (!m)
        return;
    if (m->memory)
        munmap(m->memory, m->bytes);
    free(m->layer);
    free(m);
}

void fast_packing_free(fast_packing *p)
{
    if (!p)
        return;
    free_model(p->model);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* The i-th linear of a model, the output last. */
static const tacit_linear *linear_at(const tacit_text_model *m, size_t i)
{
    bool last = i == m->n_layers * TEXT_LINEARS;
    return last ? &m->output : &m->layer[i / TEXT_LINEARS].linear[i % TEXT_LINEARS];
}

static fast_weight *weight_at(fast_model *f, const tacit_text_model *m, size_t i)
{
    return i == m->n_layers * TEXT_LINEARS ? &f->output : &f->layer[i];
}

size_t fast_model_plan(fast_weight *w, const tacit_linear *l)
{
    *w = (fast_weight){.n_out = l->n_out};
    bool exact = l->type->type == TACIT_TYPE_F32 || l->type->type == TACIT_TYPE_F16;
    return exact ? 0 : fast_weight_plan(w, kernels()->fast, l);
}

/* Panels of all weights in one map, which large pages may back. */
static tacit_status reserve(fast_model *f, const tacit_text_model *m, tacit_error *err)
{
    size_t count = m->n_layers * TEXT_LINEARS + 1;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = fast_model_plan(weight_at(f, m, i), linear_at(m, i));
        if (__builtin_add_overflow(f->bytes, bytes, &f->bytes))
            return tacit_fail(err, TACIT_NO_MEMORY, "the packed weights exceed the address space");
    }
    if (f->bytes == 0)
        return TACIT_OK;
    void *memory = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return tacit_memory_fail(f->bytes, "packing the weights", "exact precision does without",
                                 err);
    (void)madvise(memory, f->bytes, MADV_HUGEPAGE);
    f->memory = memory;
    return TACIT_OK;
}

static void pack(fast_model *f, const tacit_text_model *m, const gguf_file *file, tacit_pool *pool)
{
    size_t count = m->n_layers * TEXT_LINEARS + 1;
    uint8_t *at = f->memory;
    for (size_t i = 0; i < count; i++) {
        const tacit_linear *l = linear_at(m, i);
        fast_weight *w = weight_at(f, m, i);
        size_t bytes = fast_model_plan(w, l);
        if (bytes > 0)
            fast_weight_move(w, l, file, pool, at);
        at += bytes;
    }
}

static tacit_status make(fast_packing *p, const tacit_text_model *m, const gguf_file *file,
                         tacit_pool *pool, tacit_error *err)
{
    tacit_status status;
    fast_model *f = calloc(1, sizeof *f);
    if (f)
        f->layer = calloc(m->n_layers * TEXT_LINEARS, sizeof *f->layer);
    if (!f || !f->layer) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack a model");
        goto failed;
    }
    TACIT_TRY(reserve(f, m, err), failed);
    pack(f, m, file, pool);
    p->model = f;
    return TACIT_OK;
failed:
    free_model(f);
    return status;
}

tacit_status fast_packing_get(fast_packing *p, const fast_model **out, const tacit_text_model *m,
                              const gguf_file *file, tacit_pool *pool, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    pthread_mutex_lock(&p->lock);
    if (!p->model)
        status = make(p, m, file, pool, err);
    *out = p->model;
    pthread_mutex_unlock(&p->lock);
    return status;
}
