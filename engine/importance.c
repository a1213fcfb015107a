#include "engine/importance.h"

#include "common/memory_limit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUMS ".in_sum2"
#define COUNTS ".counts"

static void entry_free(importance_entry *e)
{
    free(e->name);
    free(e->sum);
    free(e->rows);
}

void importance_free(importance *m)
{
    for (size_t i = 0; i < m->count; i++)
        entry_free(&m->entry[i]);
    free(m->entry);
    free(m->dataset);
    *m = (importance){0};
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const importance_entry *)a)->name, ((const importance_entry *)b)->name);
}

const importance_entry *importance_find(const importance *m, const char *name)
{
    const importance_entry sought = {.name = (char *)(uintptr_t)name};
    if (m->sorted)
        return bsearch(&sought, m->entry, m->count, sizeof *m->entry, compare_entries);
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->entry[i].name, name) == 0)
            return &m->entry[i];
    return NULL;
}

/* `name` is none of those that are there. Sums of a sparse file take nothing there. */
static tacit_status append(importance *m, importance_entry **out, const char *name, size_t columns,
                           size_t matrices, tacit_error *err)
{
    static const char advice[] = "make one of a smaller model";
    char what[GGUF_MAX_NAME + 64];
    void *sum, *rows;
    size_t values;
    importance_entry *grown = reallocarray(m->entry, m->count + 1, sizeof *grown);
    *out = NULL;
    if (!grown || !tacit_mul_size(columns, matrices, &values))
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the importance of %s", name);
    m->entry = grown;
    importance_entry *e = &grown[m->count];
    *e = (importance_entry){.name = strdup(name), .columns = columns, .matrices = matrices};
    snprintf(what, sizeof what, "the importance of %s", name);
    tacit_status status = tacit_memory_alloc(&sum, values, sizeof *e->sum, what, advice, err);
    e->sum = sum;
    if (status == TACIT_OK) {
        status = tacit_memory_alloc(&rows, matrices, sizeof *e->rows, what, advice, err);
        e->rows = rows;
    }
    if (status == TACIT_OK && !e->name)
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for the importance of %s", name);
    if (status != TACIT_OK) {
        entry_free(e);
        return status;
    }
    m->count++;
    m->sorted = false;
    *out = e;
    return TACIT_OK;
}

importance_entry *importance_add(importance *m, const char *name, size_t columns, size_t matrices)
{
    importance_entry *there = (importance_entry *)(uintptr_t)importance_find(m, name);
    if (!there && append(m, &there, name, columns, matrices, NULL) != TACIT_OK)
        return NULL;
    return there;
}

void importance_mean(const importance_entry *e, size_t matrix, float *out)
{
    const double *sum = e->sum + matrix * e->columns;
    double rows = e->rows[matrix];
    for (size_t i = 0; i < e->columns; i++)
        out[i] = rows > 0 ? (float)(sum[i] / rows) : 1;
}

/* ---- reading ---- */

static bool has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), end = strlen(suffix);
    return size > end && strcmp(name + size - end, suffix) == 0;
}

/* The tensor beside t: its name with `from` replaced by `to` at the end. `base` receives what is
 * before. */
static const gguf_tensor *beside(const gguf_file *file, const gguf_tensor *t, const char *from,
                                 const char *to, char base[GGUF_MAX_NAME + 1])
{
    char name[GGUF_MAX_NAME + 16];
    size_t size = strlen(t->name) - strlen(from);
    memcpy(base, t->name, size);
    base[size] = '\0';
    snprintf(name, sizeof name, "%s%s", base, to);
    return gguf_tensor_find(file, name);
}

/* Numbers of an F32 tensor as double: finite and not negative. The means must fit a float. */
static tacit_status read_numbers(const gguf_file *file, const gguf_tensor *t, double *out,
                                 tacit_error *err)
{
    size_t n = t->bytes / sizeof(float);
    for (size_t i = 0; i < n; i++) {
        float v;
        t->traits->to_f32(&v, t->data + i * sizeof v, 1);
        if (!isfinite(v) || v < 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: tensor %s: value %zu is %g; expected finite numbers, none "
                              "negative; make the importance matrix anew",
                              gguf_name(file), t->name, i, (double)v);
        out[i] = (double)v;
    }
    return TACIT_OK;
}

static tacit_status check_pair(const gguf_file *file, const gguf_tensor *sums,
                               const gguf_tensor *counts, tacit_error *err)
{
    if (!counts)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s has no counts beside it",
                          gguf_name(file), sums->name);
    if (sums->type != TACIT_TYPE_F32 || counts->type != TACIT_TYPE_F32)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensors %s and %s: expected f32, found %s and %s", gguf_name(file),
                          sums->name, counts->name, tacit_type_ggml_name(sums->type),
                          tacit_type_ggml_name(counts->type));
    if (counts->bytes / sizeof(float) != sums->rows)
        return tacit_fail(
            err, TACIT_BAD_INPUT, "%s: tensor %s: expected %zu counts, one a matrix, found %zu",
            gguf_name(file), counts->name, (size_t)sums->rows, counts->bytes / sizeof(float));
    return TACIT_OK;
}

static tacit_status read_entry(importance *out, const gguf_file *file, const gguf_tensor *sums,
                               tacit_error *err)
{
    char name[GGUF_MAX_NAME + 1];
    const gguf_tensor *counts = beside(file, sums, SUMS, COUNTS, name);
    tacit_status status = check_pair(file, sums, counts, err);
    if (status != TACIT_OK)
        return status;
    /* Names of tensors are there once, and so are these: none is looked for. */
    importance_entry *e;
    status = append(out, &e, name, (size_t)sums->ne[0], (size_t)sums->rows, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "%s", gguf_name(file));
    TACIT_TRY(read_numbers(file, sums, e->sum, err), done);
    TACIT_TRY(read_numbers(file, counts, e->rows, err), done);
    for (size_t i = 0; i < e->columns * e->matrices; i++)
        if (e->rows[i / e->columns] > 0 && !(e->sum[i] / e->rows[i / e->columns] <= (double)1e30f))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: tensor %s: the mean of value %zu is beyond 1e30",
                              gguf_name(file), sums->name, i);
done:
    return status;
}

static tacit_status read_tensors(importance *out, const gguf_file *file, tacit_error *err)
{
    char name[GGUF_MAX_NAME + 1];
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < gguf_tensor_count(file) && status == TACIT_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        if (has_suffix(t->name, SUMS))
            status = read_entry(out, file, t, err);
        else if (has_suffix(t->name, COUNTS) && !beside(file, t, COUNTS, SUMS, name))
            status = tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s has no sums beside it",
                                gguf_name(file), t->name);
    }
    if (status == TACIT_OK && out->count == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: holds no tensor NAME" SUMS, gguf_name(file));
    if (status == TACIT_OK)
        qsort(out->entry, out->count, sizeof *out->entry, compare_entries);
    out->sorted = status == TACIT_OK;
    return status;
}

static tacit_status read_origin(importance *out, const gguf_file *file, tacit_error *err)
{
    uint64_t chunks = 0, size = 0;
    gguf_string first = gguf_array_string(file, "imatrix.datasets", 0);
    if (gguf_get_u64(file, "imatrix.chunk_count", 0, UINT32_MAX, &chunks, NULL) == TACIT_OK)
        out->chunks = (uint32_t)chunks;
    if (gguf_get_u64(file, "imatrix.chunk_size", 0, UINT32_MAX, &size, NULL) == TACIT_OK)
        out->chunk_size = (uint32_t)size;
    if (first.data && !(out->dataset = strndup(first.data, first.size)))
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", gguf_name(file));
    return TACIT_OK;
}

tacit_status importance_read(importance *out, const gguf_file *file, tacit_error *err)
{
    gguf_string type;
    tacit_status status = TACIT_OK;
    *out = (importance){0};
    if (gguf_get_string(file, "general.type", &type, NULL) != TACIT_OK || type.size != 7 ||
        memcmp(type.data, "imatrix", 7) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected an importance matrix (general.type \"imatrix\"); make one "
                          "with tacit calibrate",
                          gguf_name(file));
    TACIT_TRY(read_origin(out, file, err), done);
    TACIT_TRY(read_tensors(out, file, err), done);
done:
    if (status != TACIT_OK)
        importance_free(out);
    return status;
}

tacit_status importance_load(importance *out, const char *path, tacit_error *err)
{
    gguf_file *file;
    *out = (importance){0};
    tacit_status status = gguf_open(&file, path, err);
    if (status != TACIT_OK)
        return status;
    status = importance_read(out, file, err);
    gguf_close(file);
    return status;
}

/* ---- writing ---- */

static tacit_status put_numbers(gguf_writer *w, const char *base, const char *suffix,
                                size_t columns, size_t rows, const double *values)
{
    char name[GGUF_MAX_NAME + 16];
    const uint64_t ne[] = {columns, rows};
    float *narrow = calloc(columns * rows, sizeof *narrow);
    if (!narrow)
        return TACIT_NO_MEMORY;
    for (size_t i = 0; i < columns * rows; i++)
        narrow[i] = (float)values[i];
    snprintf(name, sizeof name, "%s%s", base, suffix);
    gguf_put_tensor(w, name, 2, ne, TACIT_TYPE_F32, narrow);
    free(narrow);
    return TACIT_OK;
}

tacit_status importance_save(const importance *m, const char *path, tacit_error *err)
{
    const char *dataset = m->dataset ? m->dataset : "";
    const gguf_string datasets[] = {{dataset, strlen(dataset)}};
    gguf_writer *w = gguf_writer_new();
    tacit_status status = TACIT_OK;
    gguf_put_string(w, "general.type", "imatrix", 7);
    gguf_put_strings(w, "imatrix.datasets", datasets, 1);
    gguf_put_u32(w, "imatrix.chunk_count", m->chunks);
    gguf_put_u32(w, "imatrix.chunk_size", m->chunk_size);
    for (size_t i = 0; i < m->count && status == TACIT_OK; i++) {
        const importance_entry *e = &m->entry[i];
        status = put_numbers(w, e->name, SUMS, e->columns, e->matrices, e->sum);
        if (status == TACIT_OK)
            status = put_numbers(w, e->name, COUNTS, 1, e->matrices, e->rows);
    }
    status = status == TACIT_OK ? gguf_write(w, path, err)
                                : tacit_fail(err, status, "%s: no memory to write it", path);
    gguf_writer_free(w);
    return status;
}
