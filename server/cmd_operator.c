/* The operator's verbs on the command line: options from the verb's row, words to the control
 * socket, the answer as JSON or as a table for people. */
#include "server/commands_server.h"

#include "common/clock.h"
#include "common/config.h"
#include "common/envelope.h"
#include "common/json_print.h"
#include "common/link.h"
#include "common/message.h"
#include "proto/wire.pb-c.h"
#include "server/lineage_start.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const control_verb *operator_find(int argc, char **argv, int *words)
{
    for (const control_verb *v = control_verbs; v->name; v++) {
        char name[64];
        *words = strchr(v->name, ' ') ? 2 : 1;
        if (argc < 1 + *words)
            continue;
        snprintf(name, sizeof name, "%s%s%s", argv[1], *words == 2 ? " " : "",
                 *words == 2 ? argv[2] : "");
        if (strcmp(name, v->name) == 0)
            return v;
    }
    return NULL;
}

typedef struct operator_call {
    const char *dir;
    bool json, until_done;
    const char *plan;                   /* file with options, or NULL */
    char *planned[CONTROL_OPTIONS_MAX]; /* what it says */
    const char *value[CONTROL_OPTIONS_MAX];
    const char *argument;
    char absolute[PATH_MAX];
    char *words[2 * CONTROL_OPTIONS_MAX + 4];
    size_t n_words;
    tacit_link *link;
    tacit_caller *caller;
} operator_call;

static tacit_status connect_control(operator_call *o, tacit_error *err)
{
    char url[PATH_MAX + 32], real[PATH_MAX];
    if (!realpath(o->dir, real))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: no such folder", o->dir);
    snprintf(url, sizeof url, "ipc://%s/control.sock", real);
    tacit_link_setup setup = {.url = url, .connect_ms = 3000, .reply_ms = 120000};
    tacit_status status = tacit_link_open(&o->link, &setup, err);
    if (status != TACIT_OK)
        return status;
    tacit_caller_setup caller = {.link = o->link, .control = true, .patience_ms = 3000};
    return tacit_caller_new(&o->caller, &caller, err);
}

static tacit_status ask(operator_call *o, json_t **result, tacit_error *err)
{
    Tacit__ControlRequest request = TACIT__CONTROL_REQUEST__INIT;
    tacit_answer answer = {0};
    uint8_t *body = NULL;
    size_t size = 0;
    request.words = o->words;
    request.n_words = o->n_words;
    tacit_status status = tacit_message_pack(&request, TACIT_BODY_MAX, &body, &size, err);
    if (status == TACIT_OK)
        status = tacit_caller_call(o->caller, TACIT__METHOD__METHOD_CONTROL,
                                   (tacit_span){body, size}, &answer, err);
    free(body);
    if (status == TACIT_UNREACHABLE)
        return tacit_fail(err, TACIT_UNREACHABLE,
                          "%s: no server answers; start it with 'tacit-server run --dir %s'",
                          o->dir, o->dir);
    if (status == TACIT_OK) {
        *result = json_loadb((const char *)answer.reply.body.data, answer.reply.body.size, 0, NULL);
        if (!*result)
            status = tacit_fail(err, TACIT_BAD_INPUT, "the server's answer is no JSON");
    }
    tacit_answer_free(&answer);
    return status;
}

/* All parts of a list. */
static tacit_status ask_parts(operator_call *o, json_t **result, tacit_error *err)
{
    char from[24];
    json_t *all = json_array();
    memmove(o->words + 1, o->words, o->n_words * sizeof o->words[0]);
    o->words[0] = from;
    o->n_words++;
    for (;;) {
        json_t *part = NULL;
        snprintf(from, sizeof from, "@%zu", json_array_size(all));
        tacit_status status = ask(o, &part, err);
        if (status != TACIT_OK) {
            json_decref(all);
            return status;
        }
        bool last = json_array_size(part) == 0;
        json_array_extend(all, part);
        json_decref(part);
        if (last)
            break;
    }
    *result = all;
    return TACIT_OK;
}

/* --- printing for people --- */

static void print_value(json_t *v, char *out, size_t size)
{
    if (json_is_string(v))
        snprintf(out, size, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out, size, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, size, "%.4g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(out, size, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_null(v))
        snprintf(out, size, "-");
    else {
        char *text = json_dumps(v, JSON_COMPACT | JSON_REAL_PRECISION(4));
        snprintf(out, size, "%s", text ? text : "");
        free(text);
    }
}

/* "seen_ms": a time of day; anything else as it is. */
static void print_field(const char *key, json_t *v, char *out, size_t size)
{
    size_t n = strlen(key);
    time_t seconds = (time_t)(json_integer_value(v) / 1000);
    struct tm local;
    if (n > 3 && strcmp(key + n - 3, "_ms") == 0 && json_is_integer(v)) {
        if (seconds == 0 || !localtime_r(&seconds, &local) ||
            strftime(out, size, "%Y-%m-%d %H:%M", &local) == 0)
            snprintf(out, size, "-");
        return;
    }
    print_value(v, out, size);
}

/* What heads a column or a line: print_field() turns milliseconds into a local time. */
static const char *heading(const char *key, char *out, size_t size)
{
    size_t n = strlen(key);
    bool time_ms = n > 3 && strcmp(key + n - 3, "_ms") == 0;
    snprintf(out, size, "%.*s", (int)(time_ms ? n - 3 : n), key);
    return out;
}

static void print_object(json_t *object)
{
    const char *key;
    json_t *v;
    char text[512], head[64];
    json_object_foreach(object, key, v)
    {
        print_field(key, v, text, sizeof text);
        printf("%-22s %s\n", heading(key, head, sizeof head), text);
    }
}

#define COLUMNS_MAX 24

typedef struct table_text {
    size_t width[COLUMNS_MAX];
    char text[512];
} table_text;

/* A cell; ids are cut, and the verbs take them so; --json has them whole. */
static const char *table_cell(table_text *t, const char *key, json_t *v)
{
    print_field(key, v, t->text, sizeof t->text);
    size_t n = strspn(t->text, "0123456789abcdef");
    if (n >= 32 && t->text[n] == '\0')
        t->text[CONTROL_ID_SHOWN] = '\0';
    return t->text;
}

static const char *table_head(table_text *t, const char *key, json_t *v)
{
    (void)v;
    return heading(key, t->text, sizeof t->text);
}

static void measure_row(table_text *t, json_t *row,
                        const char *(*cell)(table_text *t, const char *key, json_t *v))
{
    const char *key;
    json_t *v;
    size_t c = 0;
    json_object_foreach(row, key, v)
    {
        size_t n = strlen(cell(t, key, v));
        if (n > t->width[c])
            t->width[c] = n;
        c = (c + 1) % COLUMNS_MAX;
    }
}

static void print_row(table_text *t, json_t *row,
                      const char *(*cell)(table_text *t, const char *key, json_t *v))
{
    const char *key;
    json_t *v;
    size_t c = 0, pending = 0; /* blanks that are due before the next text */
    json_object_foreach(row, key, v)
    {
        const char *text = cell(t, key, v);
        if (*text)
            printf("%*s%s", (int)pending, "", text);
        pending = (*text ? 0 : pending) + t->width[c] - strlen(text) + 2;
        c = (c + 1) % COLUMNS_MAX;
    }
    printf("\n");
}

static void print_table(json_t *rows)
{
    table_text t = {.width = {0}};
    json_t *row, *first = json_array_get(rows, 0);
    size_t i;
    if (!first) {
        printf("none\n"); /* silence would look like a failure */
        return;
    }
    measure_row(&t, first, table_head);
    json_array_foreach(rows, i, row) measure_row(&t, row, table_cell);
    print_row(&t, first, table_head);
    json_array_foreach(rows, i, row) print_row(&t, row, table_cell);
}

/* Puts the counts of an answer of `round start` into one line. */
static void say_who_fits(json_t *object)
{
    json_t *epsilon = json_object_get(object, "epsilon_largest");
    char text[128] = "";
    if (!epsilon)
        return;
    long long fit = json_integer_value(json_object_get(object, "devices_that_fit"));
    long long active = json_integer_value(json_object_get(object, "active_devices"));
    int n = snprintf(text, sizeof text, "%lld of %lld active devices", fit, active);
    if (json_is_real(epsilon))
        snprintf(text + n, sizeof text - (size_t)n, "; after it at most epsilon %.4g in %s",
                 json_real_value(epsilon), fit == 1 ? "its account" : "their accounts");
    json_object_set_new(object, "fits", json_string(text));
    json_object_del(object, "active_devices");
    json_object_del(object, "devices_that_fit");
    json_object_del(object, "epsilon_largest");
}

static tacit_status print_answer(const operator_call *o, json_t *result, tacit_error *err)
{
    if (o->json)
        return tacit_json_print(json_incref(result), TACIT_JSON_DIGITS, err);
    if (json_is_array(result)) {
        print_table(result);
    } else {
        say_who_fits(result);
        print_object(result);
    }
    return TACIT_OK;
}

/* --- watching --- */

static json_int_t whole(json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

static void print_round(json_t *event)
{
    const char *state = json_string_value(json_object_get(event, "state"));
    const char *reason = json_string_value(json_object_get(event, "reason"));
    json_t *accuracy = json_object_get(event, "accuracy");
    printf("round %lld  %-11s asked %lld  reserved %lld  accepted %lld  rejected %lld",
           (long long)whole(event, "round"), state ? state : "", (long long)whole(event, "asked"),
           (long long)whole(event, "reserved"), (long long)whole(event, "accepted"),
           (long long)whole(event, "rejected"));
    if (json_is_real(accuracy))
        printf("  accuracy %.3f  loss %.3f", json_real_value(accuracy),
               json_real_value(json_object_get(event, "loss")));
    printf("%s%s", reason && *reason ? "  " : "", reason ? reason : "");
}

static void print_waiting(json_t *event)
{
    long long unwilling = whole(event, "unwilling"), exhausted = whole(event, "exhausted");
    printf("waiting for devices: %lld of %lld", (long long)whole(event, "devices"),
           (long long)whole(event, "cohort"));
    if (unwilling)
        printf("; the policy of %lld refuses the plan", unwilling);
    if (exhausted)
        printf("; the budget of %lld does not hold it", exhausted);
}

static void print_event(json_t *event)
{
    char clock[16] = "";
    time_t seconds = (time_t)(whole(event, "time_ms") / 1000);
    struct tm local;
    const char *kind = json_string_value(json_object_get(event, "kind"));
    const char *state = json_string_value(json_object_get(event, "state"));
    json_t *epsilon = json_object_get(event, "epsilon");
    if (localtime_r(&seconds, &local))
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    printf("%s  ", clock);
    if (kind && strcmp(kind, "round") == 0) {
        print_round(event);
    } else if (kind && strcmp(kind, "adapter") == 0) {
        printf("adapter version %lld published", (long long)whole(event, "version"));
        if (json_is_real(epsilon))
            printf("  epsilon %.3f", json_real_value(epsilon));
        else
            printf("  epsilon infinite");
    } else if (kind && strcmp(kind, "waiting") == 0) {
        print_waiting(event);
    } else {
        printf("lineage %s", state ? state : "");
    }
}

/* What the eye has seen of a round that collects: on a terminal its line is written over as counts
 * rise, elsewhere a reserve alone is no line. */
typedef struct watch_screen {
    bool terminal, open; /* open: the cursor stands in a line that may be written over */
    json_int_t round, decided;
} watch_screen;

static bool is_collecting(json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "kind"));
    const char *state = json_string_value(json_object_get(event, "state"));
    return kind && state && strcmp(kind, "round") == 0 && strcmp(state, "collecting") == 0;
}

static void draw_event(watch_screen *w, json_t *event)
{
    bool collecting = is_collecting(event);
    json_int_t round = whole(event, "round"),
               decided = whole(event, "accepted") + whole(event, "rejected");
    bool same = collecting && w->round == round;
    bool unseen = !same || decided != w->decided;
    w->round = collecting ? round : 0;
    w->decided = collecting ? decided : 0;
    if (!w->terminal && !unseen)
        return;
    if (w->open)
        printf(same ? "\r\033[K" : "\n");
    print_event(event);
    w->open = w->terminal && collecting;
    if (!w->open)
        printf("\n");
    fflush(stdout);
}

static tacit_status show_event(const operator_call *o, watch_screen *screen, json_t *event,
                               tacit_error *err)
{
    if (o->json)
        return tacit_json_print(json_incref(event), TACIT_JSON_DIGITS, err);
    draw_event(screen, event);
    return TACIT_OK;
}

/* Follows in *ended whether the newest lineage has ended. */
static void note_lineage(json_t *event, bool *ended)
{
    const char *kind = json_string_value(json_object_get(event, "kind"));
    const char *state = json_string_value(json_object_get(event, "state"));
    if (kind && state && strcmp(kind, "lineage") == 0)
        *ended = strcmp(state, "running") != 0;
}

#define WATCH_PAUSE_MS 250 /* the server lets only a few wait for events; the others ask again */

static tacit_status watch(operator_call *o, tacit_error *err)
{
    char after[32];
    long long last = 0;
    bool ended = false;
    watch_screen screen = {.terminal = isatty(STDOUT_FILENO) == 1};
    for (;;) {
        json_t *events = NULL, *event;
        size_t i;
        snprintf(after, sizeof after, "%lld", last);
        char *words[] = {o->words[0], "after", after};
        memcpy(o->words, words, sizeof words);
        o->n_words = 3;
        tacit_status status = ask(o, &events, err);
        if (status != TACIT_OK)
            return status;
        json_array_foreach(events, i, event)
        {
            if (status == TACIT_OK)
                status = show_event(o, &screen, event, err);
            last = whole(event, "number");
            note_lineage(event, &ended);
        }
        if (json_array_size(events) == 0)
            tacit_clock_sleep_ms(WATCH_PAUSE_MS);
        json_decref(events);
        if (status != TACIT_OK || (ended && o->until_done))
            return status;
    }
}

/* --- the command line --- */

/* A plan.yaml has the verb's options as keys; what the command line says comes before it. */
static tacit_status read_plan(operator_call *o, const control_verb *verb, tacit_error *err)
{
    tacit_config_row rows[CONTROL_OPTIONS_MAX + 1] = {{.key = NULL}};
    for (size_t i = 0; verb->options[i].name; i++)
        rows[i] = (tacit_config_row){.key = verb->options[i].name,
                                     .kind = TACIT_CONFIG_TEXT,
                                     .at = i * sizeof o->planned[0]};
    tacit_status status =
        tacit_status_of_input(tacit_config_read(o->plan, rows, o->planned, err), err);
    for (size_t i = 0; status == TACIT_OK && i < CONTROL_OPTIONS_MAX; i++)
        if (!o->value[i])
            o->value[i] = o->planned[i];
    return status;
}

static tacit_status make_words(operator_call *o, const control_verb *verb, tacit_error *err)
{
    o->words[o->n_words++] = (char *)(uintptr_t)verb->name;
    if (verb->argument) {
        bool path = (strcmp(verb->argument, "FILE") == 0 || strcmp(verb->argument, "OUT") == 0) &&
                    o->argument[0] != '/';
        char here[PATH_MAX / 2] = "";
        if (path && !getcwd(here, sizeof here))
            return tacit_fail(err, TACIT_FAILED, "cannot tell the current folder");
        int n = snprintf(o->absolute, sizeof o->absolute, "=%s%s%s", here, path ? "/" : "",
                         o->argument);
        if (n < 0 || (size_t)n >= sizeof o->absolute) /* a shorter one names something else */
            return tacit_fail(err, TACIT_USAGE, "%s: expected at most %zu bytes, found %zu",
                              verb->argument, sizeof o->absolute - 2, (size_t)n - 1);
        o->words[o->n_words++] = o->absolute;
    }
    for (size_t i = 0; verb->options && verb->options[i].name; i++) {
        if (!o->value[i])
            continue;
        o->words[o->n_words++] = (char *)(uintptr_t)verb->options[i].name;
        o->words[o->n_words++] = (char *)(uintptr_t)o->value[i];
    }
    return TACIT_OK;
}

static tacit_status parse(operator_call *o, const control_verb *verb, int argc, char **argv,
                          bool *help, tacit_error *err)
{
    tacit_option table[CONTROL_OPTIONS_MAX + 5] = {
        {.name = "dir",
         .kind = TACIT_OPTION_TEXT,
         .to = &o->dir,
         .value = "DIR",
         .help = "folder of the running server",
         .required = true},
        {.name = "json", .kind = TACIT_OPTION_FLAG, .to = &o->json, .help = "JSON on stdout"},
    };
    char program[96];
    size_t n = 2;
    bool is_watch = strcmp(verb->name, "watch") == 0;
    if (is_watch)
        table[n++] = (tacit_option){.name = "until-done",
                                    .kind = TACIT_OPTION_FLAG,
                                    .to = &o->until_done,
                                    .help = "end when the lineage has ended"};
    if (verb->options == lineage_start_options)
        table[n++] = (tacit_option){.name = "plan",
                                    .kind = TACIT_OPTION_TEXT,
                                    .to = &o->plan,
                                    .value = "FILE.yaml",
                                    .help = "options below as keys of a YAML file"};
    for (size_t i = 0; !is_watch && verb->options && verb->options[i].name; i++)
        table[n++] = (tacit_option){.name = verb->options[i].name,
                                    .kind = TACIT_OPTION_TEXT,
                                    .to = &o->value[i],
                                    .value = verb->options[i].value,
                                    .help = verb->options[i].help};
    snprintf(program, sizeof program, "tacit-server %s", verb->name);
    tacit_usage usage = {program, verb->argument, verb->argument ? 1 : 0, verb->argument ? 1 : 0,
                         verb->summary};
    return tacit_options_parse(&usage, table, argc, argv, &o->argument, NULL, help, err);
}

tacit_status operator_run(const control_verb *verb, int argc, char **argv, tacit_error *err)
{
    operator_call *o = calloc(1, sizeof *o);
    json_t *result = NULL;
    bool help = false;
    if (!o)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory");
    tacit_status status = parse(o, verb, argc, argv, &help, err);
    if (status != TACIT_OK || help)
        goto done;
    if (o->plan)
        TACIT_TRY(read_plan(o, verb, err), done);
    TACIT_TRY(make_words(o, verb, err), done);
    TACIT_TRY(connect_control(o, err), done);
    if (strcmp(verb->name, "watch") == 0) {
        status = watch(o, err);
        goto done;
    }
    TACIT_TRY(verb->is_list ? ask_parts(o, &result, err) : ask(o, &result, err), done);
    status = print_answer(o, result, err);
done:
    json_decref(result);
    tacit_caller_free(o->caller);
    tacit_link_close(o->link);
    for (size_t i = 0; i < CONTROL_OPTIONS_MAX; i++)
        free(o->planned[i]);
    free(o);
    return status;
}
