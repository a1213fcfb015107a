/* What happened, for those who watch: in parts that fit one message, in the shapes that README.md
 * lists, and without keeping other verbs from the control socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include <pthread.h>

static fleet f;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_end(&f);
    atomic_store(&fleet_now, FLEET_START_MS);
    return 0;
}

static void test_events_come_in_parts(void **state)
{
    (void)state;
    char reason[150], after[24] = "0";
    json_int_t last = 0;
    size_t asked = 0;
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    for (int i = 1; i <= 1000; i++)
        server_events_add(f.server->events, json_pack("{s:s, s:s, s:i}", "kind", "round", "reason",
                                                      reason, "round", i));
    for (; last < 1000 && asked < 1000; asked++) {
        size_t i;
        json_t *event, *part = FLEET_ASK(&f, "watch", "after", after, "wait-ms", "0");
        json_array_foreach(part, i, event)
        {
            assert_int_equal(json_integer_value(json_object_get(event, "number")), ++last);
            assert_int_equal(json_integer_value(json_object_get(event, "round")), last);
        }
        json_decref(part);
        snprintf(after, sizeof after, "%lld", (long long)last);
    }
    assert_int_equal(last, 1000);
}

/* --- shapes --- */

/* The row of README.md about a kind: "| `round` | `lineage`, `round_id`, ... | ... |". */
static void documented_keys(const char *kind, char keys[512])
{
    char start[64];
    uint8_t *text;
    size_t size;
    tacit_error err;
    fleet_must(tacit_file_read(TACIT_SOURCE_DIR "/server/README.md", 1 << 20, &text, &size, &err),
               &err, "README.md");
    snprintf(start, sizeof start, "\n| `%s` | ", kind);
    const char *row = strstr((char *)text, start);
    if (!row)
        fail_msg("README.md says nothing about events of kind '%s'", kind);
    row += strlen(start);
    snprintf(keys, 512, "%.*s", (int)strcspn(row, "|"), row);
    free(text);
}

static void expect_documented(json_t *event)
{
    static const char *const common[] = {"number", "time_ms", "kind"};
    char keys[512], quoted[64];
    const char *key;
    json_t *value;
    size_t documented = 3, found = 0;
    assert_true(json_is_object(event));
    for (size_t i = 0; i < 3; i++)
        assert_non_null(json_object_get(event, common[i]));
    documented_keys(json_string_value(json_object_get(event, "kind")), keys);
    for (const char *c = keys; *c; c++)
        documented += *c == '`';
    json_object_foreach(event, key, value)
    {
        bool is_common = false;
        for (size_t i = 0; i < 3; i++)
            is_common |= strcmp(key, common[i]) == 0;
        snprintf(quoted, sizeof quoted, "`%s`", key);
        if (!is_common && !strstr(keys, quoted))
            fail_msg("README.md lists no '%s' for this event", key);
        found += is_common ? 1 : 2; /* a documented key has two quotes */
    }
    assert_int_equal(found, documented);
}

/* Every kind there is, each with exactly the documented keys: a lineage that waits, fails a round,
 * publishes one and ends; then one without noise, whose epsilon is infinite. */
static void test_documented_shapes(void **state)
{
    (void)state;
    static const char *const kinds[] = {"lineage", "waiting", "round", "adapter"};
    fleet_device d;
    size_t i, seen[4] = {0};
    json_t *event;
    f.non_private = true;
    json_decref(FLEET_ASK(&f, "round start", "rounds", "2", "steps", "1", "q", "0.25",
                          "noise-multiplier", "8", "unit", "record", "cohort", "1",
                          "deadline-seconds", "600", "pad-seconds", "0", "norm-bound", "32"));
    fleet_work(&f);
    fleet_join(&d, &f, "cart");
    fleet_work(&f);
    atomic_fetch_add(&fleet_now, 600 * 1000);
    fleet_work(&f);
    fleet_hello(&d);
    fleet_serve_round(&d, 0.5);
    fleet_work(&f);
    json_decref(FLEET_ASK(&f, "round start", "mechanism", "none", "cohort", "1", "norm-bound", "32",
                          "pad-seconds", "0"));
    fleet_work(&f);
    fleet_serve_round(&d, 0.5);
    fleet_work(&f);
    json_t *events = FLEET_ASK(&f, "watch", "wait-ms", "0");
    json_array_foreach(events, i, event)
    {
        expect_documented(event);
        for (size_t k = 0; k < 4; k++)
            seen[k] += strcmp(json_string_value(json_object_get(event, "kind")), kinds[k]) == 0;
    }
    assert_int_equal(seen[0], 4); /* running and done, twice */
    assert_int_equal(seen[1], 1);
    assert_true(seen[2] >= 8);
    assert_int_equal(seen[3], 2);
    json_decref(events);
    fleet_device_free(&d);
}

/* --- waiting --- */

static void expect_told(size_t lines, json_int_t devices)
{
    json_t *event, *last = NULL, *events = server_events_since(f.server->events, 0, 0);
    size_t i, found = 0;
    json_array_foreach(
        events, i,
        event) if (strcmp(json_string_value(json_object_get(event, "kind")), "waiting") == 0)
    {
        last = event;
        found++;
    }
    assert_int_equal(found, lines);
    assert_int_equal(json_integer_value(json_object_get(last, "devices")), devices);
    json_decref(events);
}

/* Once for as long as the same holds, again when a count changes, and of every lineage anew. */
static void test_waiting_is_told(void **state)
{
    (void)state;
    fleet_device d;
    for (size_t i = 0; i < 2; i++) {
        json_decref(FLEET_ASK(&f, "round start", "unit", "record", "cohort", "2", "norm-bound",
                              "32", "pad-seconds", "0"));
        fleet_work(&f);
        fleet_work(&f);
        expect_told(2 * i + 1, (json_int_t)i);
        if (i == 0) {
            fleet_join(&d, &f, "cart");
            fleet_work(&f);
            fleet_work(&f);
            expect_told(2, 1);
        }
        json_decref(FLEET_ASK(&f, "round cancel"));
        fleet_work(&f);
    }
    fleet_device_free(&d);
}

/* --- many who watch --- */

#define WATCHERS 8
#define TRIES 1200 /* of 50 ms: for broken runs only */

static atomic_bool stop;
static _Atomic unsigned asked, told; /* requests for events that came in; watchers who got some */

json_t *__real_server_events_since(server_events *e, uint64_t after, uint32_t wait_ms);
json_t *__wrap_server_events_since(server_events *e, uint64_t after, uint32_t wait_ms);
json_t *__wrap_server_events_since(server_events *e, uint64_t after, uint32_t wait_ms)
{
    atomic_fetch_add(&asked, 1);
    return __real_server_events_since(e, after, wait_ms);
}

static void *serve(void *arg)
{
    tacit_error err;
    (void)arg;
    fleet_must(server_run(f.server, &stop, &err), &err, "server_run");
    return NULL;
}

/* One verb over the socket; its answer, or NULL. */
static json_t *ask(const char *const *words, uint32_t reply_ms)
{
    char url[192];
    tacit_link *link = NULL;
    tacit_caller *caller = NULL;
    tacit_error err;
    Tacit__ControlRequest body = TACIT__CONTROL_REQUEST__INIT;
    tacit_answer answer = {0};
    uint8_t *bytes;
    size_t size;
    json_t *result = NULL;
    while (words[body.n_words])
        body.n_words++;
    body.words = (char **)(uintptr_t)words;
    snprintf(url, sizeof url, "ipc://%s/control.sock", f.dir);
    tacit_link_setup setup = {.url = url, .connect_ms = 1000, .reply_ms = reply_ms};
    fleet_must(tacit_link_open(&link, &setup, &err), &err, "link");
    tacit_caller_setup asks = {.link = link, .control = true};
    fleet_must(tacit_caller_new(&caller, &asks, &err), &err, "caller");
    fleet_must(tacit_message_pack(&body, TACIT_BODY_MAX, &bytes, &size, &err), &err, "pack");
    if (tacit_caller_call(caller, TACIT__METHOD__METHOD_CONTROL, (tacit_span){bytes, size}, &answer,
                          &err) == TACIT_OK)
        result = json_loadb((const char *)answer.reply.body.data, answer.reply.body.size, 0, NULL);
    tacit_answer_free(&answer);
    tacit_caller_free(caller);
    tacit_link_close(link);
    free(bytes);
    return result;
}

/* Watches as the program does until the first event. */
static void *watch(void *arg)
{
    static const char *const words[] = {"watch", "after", "0", "wait-ms", "30000", NULL};
    (void)arg;
    while (!atomic_load(&stop)) {
        json_t *events = ask(words, 60000);
        size_t n = json_array_size(events);
        json_decref(events);
        if (n) {
            atomic_fetch_add(&told, 1);
            break;
        }
        tacit_clock_sleep_ms(100);
    }
    return NULL;
}

static bool await(_Atomic unsigned *count, unsigned wanted)
{
    for (int i = 0; i < TRIES && atomic_load(count) < wanted; i++)
        tacit_clock_sleep_ms(50);
    return atomic_load(count) >= wanted;
}

static void test_verbs_beside_watchers(void **state)
{
    (void)state;
    static const char *const list[] = {"@0", "device list", NULL};
    pthread_t server_thread, watcher[WATCHERS];
    char path[192];
    snprintf(path, sizeof path, "%s/address", f.dir);
    assert_int_equal(pthread_create(&server_thread, NULL, serve, NULL), 0);
    for (int i = 0; i < TRIES && access(path, R_OK) != 0; i++)
        tacit_clock_sleep_ms(50);
    atomic_store(&asked, 0);
    for (size_t i = 0; i < WATCHERS; i++)
        assert_int_equal(pthread_create(&watcher[i], NULL, watch, NULL), 0);
    bool all_ask = await(&asked, WATCHERS);
    unsigned answered = 0;
    for (int i = 0; i < 5; i++) {
        json_t *devices = ask(list, 10000); /* a third of what a watcher waits for */
        answered += json_is_array(devices);
        json_decref(devices);
    }
    unsigned told_before = atomic_load(&told);
    server_events_add(f.server->events, json_pack("{s:s}", "kind", "test"));
    bool all_told = await(&told, WATCHERS); /* nobody misses what happens */
    atomic_store(&stop, true);
    for (size_t i = 0; i < WATCHERS; i++)
        pthread_join(watcher[i], NULL);
    pthread_join(server_thread, NULL);
    assert_true(all_ask);
    assert_int_equal(answered, 5);
    assert_int_equal(told_before, 0);
    assert_true(all_told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_events_come_in_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_documented_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waiting_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verbs_beside_watchers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
