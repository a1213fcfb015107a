#include "engine/cmd_session.h"

#include "engine/chat.h"
#include "engine/chat_forms.h"
#include "engine/example.h"
#include "engine/kernels.h"
#include "engine/kv_page.h"
#include "engine/row_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_CACHE_BYTES ((size_t)64 << 20)

static tacit_status read_kv(const cmd_session_options *o, tacit_context_spec *spec,
                            tacit_error *err)
{
    const kv_form *form = o->kv ? kv_form_by_name(o->kv) : kv_form_of(spec->kv);
    if (!form)
        return tacit_fail(err, TACIT_USAGE, "--kv '%s': expected f32, f16 or int8", o->kv);
    spec->kv = form->type;
    return TACIT_OK;
}

/* The templates that the model's vocabulary can spell, with commas between. */
static void list_templates(char *out, size_t size, const tacit_model *m)
{
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = chat_form_names(); *at; at += strspn(at, ", ")) {
        char name[64];
        tacit_chat chat;
        tacit_error none;
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        at += n;
        if (tacit_chat_choose(&chat, name, &none) == TACIT_OK &&
            tacit_chat_check_tokens(&chat, tacit_model_tokenizer(m), &none) == TACIT_OK &&
            used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", name);
    }
}

static tacit_status advise_chat(const tacit_model *m, tacit_error *err)
{
    const tacit_error why = *err;
    char names[320] = "";
    bool listed = strstr(why.message, chat_form_names()) != NULL;
    if (!listed)
        list_templates(names, sizeof names, m);
    if (!listed && !names[0])
        return tacit_fail(err, TACIT_BAD_INPUT, "%s; it can spell none of those that are known",
                          why.message);
    return tacit_fail(err, TACIT_BAD_INPUT, "%s; choose one with --chat-template%s%s", why.message,
                      listed ? "" : ": ", names);
}

tacit_status cmd_choose_chat(tacit_model *m, const char *name, tacit_error *err)
{
    tacit_status status =
        name ? tacit_model_choose_chat(m, name, err) : tacit_model_check_chat(m, err);
    return status == TACIT_BAD_INPUT || status == TACIT_NOT_FOUND ? advise_chat(m, err) : status;
}

tacit_status cmd_session_open(cmd_session *s, const cmd_session_options *o, size_t max_rows,
                              tacit_error *err)
{
    s->precision = o->exact ? TACIT_EXACT : TACIT_FAST;
    tacit_context_spec spec = {.precision = s->precision,
                               .max_rows = o->context > 0 ? (size_t)o->context : max_rows};
    tacit_status status;
    TACIT_TRY(kernels_check(err), done);
    TACIT_TRY(read_kv(o, &spec, err), done);
    TACIT_TRY(
        tacit_status_of_input(
            tacit_model_load(&s->model, o->model, o->mmproj.item, o->mmproj.count, NULL, err), err),
        done);
    if (o->chat_template)
        TACIT_TRY(cmd_choose_chat(s->model, o->chat_template, err), done);
    TACIT_TRY(tacit_pool_new(&s->pool, (size_t)o->threads, err), done);
    TACIT_TRY(tacit_context_new(&s->context, s->model, &spec, s->pool, err), done);
    if (o->adapter) {
        TACIT_TRY(
            tacit_status_of_input(tacit_adapter_load(&s->adapter, s->model, o->adapter, err), err),
            done);
        TACIT_TRY(tacit_context_bind(s->context, s->adapter, err), done);
    }
done:
    return status;
}

void cmd_session_close(cmd_session *s)
{
    tacit_context_free(s->context);
    tacit_adapter_free(s->adapter);
    tacit_pool_free(s->pool);
    tacit_model_free(s->model);
    memset(s, 0, sizeof *s);
}

typedef struct media_list {
    const tacit_option_list *list;
    tacit_content_kind kind;
} media_list;

enum { MEDIA_LISTS = 3 };

/* In the order of a turn. */
static void list_media(media_list out[MEDIA_LISTS], const cmd_session_options *o)
{
    out[0] = (media_list){&o->image, TACIT_CONTENT_IMAGE};
    out[1] = (media_list){&o->audio, TACIT_CONTENT_AUDIO};
    out[2] = (media_list){&o->sensor, TACIT_CONTENT_SENSOR};
}

size_t cmd_session_media(const cmd_session_options *o)
{
    return o->image.count + o->audio.count + o->sensor.count;
}

/* A user's turn whose strings point into the command line: nothing in it is freed. */
static tacit_message user_turn(tacit_content *content, const cmd_session_options *o,
                               const char *prompt)
{
    media_list lists[MEDIA_LISTS];
    size_t n = 0;
    list_media(lists, o);
    for (size_t k = 0; k < MEDIA_LISTS; k++)
        for (size_t i = 0; i < lists[k].list->count; i++)
            content[n++] =
                (tacit_content){lists[k].kind, (char *)(uintptr_t)lists[k].list->item[i]};
    content[n++] = (tacit_content){TACIT_CONTENT_TEXT, (char *)(uintptr_t)prompt};
    return (tacit_message){.role = TACIT_ROLE_USER, .content = content, .n_content = n};
}

tacit_status cmd_session_chat(const cmd_session *s, const cmd_session_options *o,
                              const char *prompt, tacit_input *out, tacit_error *err)
{
    tacit_content content[MEDIA_LISTS * TACIT_OPTION_LIST_MAX + 1];
    tacit_content said = {TACIT_CONTENT_TEXT, (char *)(uintptr_t)o->system};
    const tacit_message turn[] = {{.role = TACIT_ROLE_SYSTEM, .content = &said, .n_content = 1},
                                  user_turn(content, o, prompt)};
    const size_t first = o->system ? 0 : 1;
    tacit_example_options how = {0};
    tacit_row_cache *cache = NULL;
    tacit_status status = media_form_choose(&how.form, o->form, err);
    if (status == TACIT_OK && !o->chat_template)
        status = cmd_choose_chat(s->model, NULL, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_status_of_input(
        tacit_example_prompt(out, s->model, turn + first, 2 - first, &how, err), err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_adapter_prepend(s->adapter, s->model, out, err), done);
    if (out->n_media == 0)
        return TACIT_OK;
    TACIT_TRY(tacit_row_cache_new(&cache, s->model, ROW_CACHE_BYTES, NULL, s->pool, err), done);
    tacit_row_cache_use(cache, s->precision);
    TACIT_TRY(tacit_row_cache_bind(cache, s->adapter, err), done);
    TACIT_TRY(tacit_status_of_input(tacit_row_cache_fill(cache, out, err), err), done);
done:
    tacit_row_cache_free(cache);
    if (status != TACIT_OK)
        tacit_input_free(out);
    return status;
}

tacit_status cmd_session_raw(const cmd_session *s, const char *prompt, bool special,
                             tacit_input *out, tacit_error *err)
{
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(s->model);
    tacit_tokens tokens = {0};
    tacit_status status = TACIT_OK;
    int32_t bos = tacit_tokenizer_bos(tokenizer);
    *out = (tacit_input){0};
    if (bos >= 0)
        TACIT_TRY(tacit_tokens_push(&tokens, bos), done);
    TACIT_TRY(tacit_tokenize(tokenizer, prompt, strlen(prompt), special, &tokens, err), done);
    /* A prompt may spell the BOS that the model asks for: one stays. */
    size_t skipped = bos >= 0 && tokens.count > 1 && tokens.id[1] == bos;
    out->row = calloc(tokens.count ? tokens.count : 1, sizeof *out->row);
    if (!out->row) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu tokens", tokens.count);
        goto done;
    }
    out->count = tokens.count - skipped;
    for (size_t i = 0; i < out->count; i++) {
        out->row[i].token = tokens.id[i + skipped];
        out->row[i].position = (uint32_t)i;
    }
    status = tacit_adapter_prepend(s->adapter, s->model, out, err);
done:
    tacit_tokens_free(&tokens);
    return status;
}

/* From the kernel's own count: getrusage's is inherited over exec from a larger parent. */
uint64_t cmd_session_peak_rss(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtoull(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kib * 1024;
}
