#include "engine/adapter_about.h"

#include "engine/layout.h"
#include "engine/soft_prompt.h"

#include <stdlib.h>
#include <string.h>

/* "blk.12.attn_q.weight" becomes "blk.*.attn_q": parts that are numbers, and the end. */
static void generalize(char *name)
{
    size_t to = 0, size = strlen(name), tail = strlen(".weight");
    if (size > tail && strcmp(name + size - tail, ".weight") == 0)
        name[size - tail] = '\0';
    for (size_t i = 0; name[i]; i++) {
        size_t digits = i == 0 || name[i - 1] == '.' ? strspn(name + i, "0123456789") : 0;
        if (digits > 0 && (name[i + digits] == '.' || name[i + digits] == '\0')) {
            name[to++] = '*';
            i += digits - 1;
        } else {
            name[to++] = name[i];
        }
    }
    name[to] = '\0';
}

static tacit_status count_pair(adapter_about *a, const gguf_file *file, const char *name,
                               uint64_t rank, tacit_error *err)
{
    size_t i = 0;
    while (i < a->n_targets && (a->target[i].rank != rank || strcmp(a->target[i].name, name) != 0))
        i++;
    if (i == ADAPTER_TARGETS_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected pairs of at most %d kinds and ranks; it is damaged",
                          gguf_name(file), ADAPTER_TARGETS_MAX);
    if (i == a->n_targets) {
        a->target[i].rank = rank;
        memcpy(a->target[i].name, name, strlen(name) + 1);
        a->n_targets++;
    }
    a->target[i].pairs++;
    a->pairs++;
    return TACIT_OK;
}

static tacit_status count_prompt(adapter_about *a, const gguf_file *file, const gguf_tensor *t,
                                 tacit_error *err)
{
    bool text = strcmp(t->name, soft_prompt_name(SOFT_PROMPT_TEXT)) == 0;
    if ((!text && strcmp(t->name, soft_prompt_name(SOFT_PROMPT_IMAGE)) != 0) || t->n_dims > 2)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s: expected %s or %s", gguf_name(file),
                          t->name, soft_prompt_name(SOFT_PROMPT_TEXT),
                          soft_prompt_name(SOFT_PROMPT_IMAGE));
    *(text ? &a->text_rows : &a->image_rows) = t->rows;
    a->values += t->rows * t->ne[0];
    return TACIT_OK;
}

/* Pairs are counted by their A, or their core. */
static tacit_status count_tensor(adapter_about *a, const gguf_file *file, const gguf_tensor *t,
                                 tacit_error *err)
{
    char name[GGUF_MAX_NAME + 1];
    if (strcmp(a->keys.type, ADAPTER_TYPE_PROMPT) == 0)
        return count_prompt(a, file, t, err);
    char part = layout_base_name(t->name, name, sizeof name);
    if (!part || t->n_dims != 2)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s: expected a matrix whose name ends in .lora_a, .lora_b or "
                          ".lora_core",
                          gguf_name(file), t->name);
    a->values += t->rows * t->ne[0];
    if (part == 'b')
        return TACIT_OK;
    generalize(name);
    return count_pair(a, file, name, t->ne[1], err);
}

tacit_status adapter_about_read(adapter_about *out, const gguf_file *file, tacit_error *err)
{
    *out = (adapter_about){0};
    tacit_status status = adapter_keys_read(&out->keys, file, err);
    if (status == TACIT_OK)
        status = gguf_get_string(file, "general.architecture", &out->architecture, err);
    if (status == TACIT_NOT_FOUND)
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: no general.architecture: it is damaged",
                            gguf_name(file));
    if (status != TACIT_OK)
        return status;
    out->target = calloc(ADAPTER_TARGETS_MAX, sizeof *out->target);
    if (!out->target)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", gguf_name(file));
    for (size_t i = 0; i < gguf_tensor_count(file) && status == TACIT_OK; i++)
        status = count_tensor(out, file, gguf_tensor_at(file, i), err);
    if (status != TACIT_OK)
        adapter_about_free(out);
    return status;
}

void adapter_about_free(adapter_about *a)
{
    free(a->target);
    *a = (adapter_about){0};
}
