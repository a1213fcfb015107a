/* A round is blind to the data: the same plan runs on stores that could not differ more, and
 * everything that leaves the device is compared: which messages, in which order, what they say and
 * how long they are, when they leave, what the log gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/agent.h"
#include "client/plan_check.h"
#include "client/round_state_store.h"
#include "common/log.h"
#include "fake_server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>

#define PAD_SECONDS 120 /* training fits in it, under sanitizers too */
#define MANY 10000

/* --- the stores --- */

static void add_record(FILE *f, size_t i, const char *content)
{
    fprintf(f,
            "{\"id\":\"r%zu\",\"subject\":\"s%zu\",\"messages\":[{\"role\":\"user\",\"content\":"
            "\"%s\"},{\"role\":\"assistant\",\"content\":\"%zu\"}]}\n",
            i, i, content, i % 10);
}

static void put_nothing(FILE *f)
{
    (void)f;
}

static void put_one(FILE *f)
{
    add_record(f, 0, "how many?");
}

static void put_many(FILE *f)
{
    for (size_t i = 0; i < MANY; i++)
        add_record(f, i, "how many?");
}

/* Not JSON, not a conversation, a picture that is not there, bytes of no text, a line without end,
 * one that is longer than the plan takes. */
static void put_undecodable(FILE *f)
{
    static const char picture[] =
        "{\"id\":\"p%d\",\"subject\":\"p%d\",\"messages\":[{\"role\":\"user\",\"content\":[{"
        "\"type\":"
        "\"image\",\"image\":\"img/%d.jpg\"}]},{\"role\":\"assistant\",\"content\":\"72\"}]}\n";
    static char longer[3000];
    for (int i = 0; i < 40; i++) {
        fprintf(f, "{\"id\":\"broken%d\"\n{}\n\xff\xfe%cgarbage\n", i, 0);
        fprintf(f, picture, i, i, i);
    }
    memset(longer, 'a', sizeof longer - 1);
    add_record(f, 0, longer);
    fprintf(f, "{\"id\":\"no newline");
}

/* Gradients that are not a number and infinite (tiny_load_poisoned). */
static void put_not_finite(FILE *f)
{
    for (size_t i = 0; i < 40; i++)
        add_record(f, i, i % 2 ? "what is a Z?" : "what is a Y?");
}

static const struct store {
    const char *name;
    void (*put)(FILE *f);
} stores[] = {{"no record", put_nothing},
              {"one record", put_one},
              {"10,000 records", put_many},
              {"nothing that can be decoded", put_undecodable},
              {"gradients that are not finite", put_not_finite}};

#define STORES (sizeof stores / sizeof stores[0])

/* --- what left --- */

/* Everything but keys, hashes, ciphertext and times, which differ from run to run on one store as
 * well; of those the length. */
typedef struct record {
    char text[16384];
    size_t used;
    uint64_t reserve_ms, next_ms; /* when the reserve came, and the request after it */
} record;

static record *now_recording;

TACIT_PRINTF(1, 2)
static void say(const char *format, ...)
{
    record *r = now_recording;
    va_list args;
    va_start(args, format);
    r->used += (size_t)vsnprintf(r->text + r->used, sizeof r->text - r->used, format, args);
    va_end(args);
    assert_true(r->used < sizeof r->text);
}

static void say_entry(const void *bytes, size_t size)
{
    tacit_entry e;
    tacit_error err;
    OK(tacit_entry_read(&e, bytes, size, &err));
    say("entry %s of %zu bytes, sequence %" PRIu64, tacit_entry_kind_name(e.entry->body_case), size,
        e.entry->sequence);
    if (e.entry->body_case == TACIT__ENTRY__BODY_RESERVE) {
        const Tacit__Reserve *r = e.entry->reserve;
        say(": kind %u unit %u b %" PRIu64 " q %" PRIu64
            " steps %u clip %a delta %a epsilon %a cap "
            "%a insecure %d values %u %s",
            r->kind, r->unit, r->b, r->q_num, r->steps, r->clip_norm, r->delta, r->epsilon_after,
            r->epsilon_cap, r->insecure, r->values, r->accountant_version);
    } else if (e.entry->body_case == TACIT__ENTRY__BODY_ABANDON) {
        say(": %s", e.entry->abandon->reason);
    }
    say("\n");
    tacit_entry_close(&e);
}

static void say_check_in(tacit_span body)
{
    Tacit__CheckInRequest *q;
    tacit_error err;
    OK(TACIT_UNPACK(&q, tacit__check_in_request, body.data, body.size, 65536, &err));
    say("check-in: checkpoint of %zu bytes, version %" PRIu64 ", sequence %" PRIu64 ", %zu bases\n",
        q->checkpoint.len, q->active_version, q->next_sequence, q->n_base_digests);
    tacit_message_free(q);
}

static void say_reserve(tacit_span body)
{
    Tacit__ReserveRequest *q;
    tacit_error err;
    OK(TACIT_UNPACK(&q, tacit__reserve_request, body.data, body.size, 65536, &err));
    say("reserve: checkpoint of %" PRIu64 ", ", q->checkpoint_size);
    say_entry(q->entry.data, q->entry.len);
    now_recording->reserve_ms = tacit_clock_wall_ms();
    tacit_message_free(q);
}

static void say_begin(tacit_span body)
{
    Tacit__UploadBeginRequest *q;
    tacit_error err;
    OK(TACIT_UNPACK(&q, tacit__upload_begin_request, body.data, body.size, 65536, &err));
    say("upload: %" PRIu64 " bytes, ", q->size);
    say_entry(q->spend_entry.data, q->spend_entry.len);
    tacit_message_free(q);
}

static void say_chunk(tacit_span body)
{
    Tacit__UploadChunkRequest *q;
    tacit_error err;
    OK(TACIT_UNPACK(&q, tacit__upload_chunk_request, body.data, body.size, 1 << 18, &err));
    say("chunk: %zu bytes at %" PRIu64 "\n", q->data.len, q->offset);
    tacit_message_free(q);
}

static void read_request(const tacit_request *q)
{
    record *r = now_recording;
    if (!r)
        return;
    if (r->reserve_ms && !r->next_ms)
        r->next_ms = tacit_clock_wall_ms();
    say("method %u, counter %" PRIu64 ", %zu bytes\n", q->method, q->counter, q->body.size);
    switch (q->method) {
    case TACIT__METHOD__METHOD_CHECK_IN:
        say_check_in(q->body);
        break;
    case TACIT__METHOD__METHOD_RESERVE:
        say_reserve(q->body);
        break;
    case TACIT__METHOD__METHOD_UPLOAD_BEGIN:
        say_begin(q->body);
        break;
    case TACIT__METHOD__METHOD_UPLOAD_CHUNK:
        say_chunk(q->body);
        break;
    default:
        break;
    }
}

/* --- a round on a store --- */

/* The wall clock stands until the update is sealed, then shows the time at which it may leave: how
 * long training really took has no part in what is compared. */
static struct {
    char sealed[160];
    uint64_t start_ms;
} standing;

static uint64_t standing_clock(void *ctx)
{
    (void)ctx;
    bool sealed = access(standing.sealed, F_OK) == 0;
    return standing.start_ms + (sealed ? PAD_SECONDS * 1000ull : 0);
}

static tacit_status take_times(void *ctx, const round_state *r, tacit_error *err)
{
    uint64_t *waited = ctx;
    (void)err;
    *waited = r->upload_ms - r->reserved_ms;
    return TACIT_OK;
}

static uint64_t waited_ms(fake_device *d)
{
    uint64_t waited = 0;
    fake_device_open(d, CLIENT_READS);
    OK(round_state_each(d->client->db, 1, take_times, &waited, &d->err));
    fake_device_close(d);
    return waited;
}

static size_t local_log_size(const fake_device *d)
{
    char path[128];
    uint8_t *text = NULL;
    size_t size = 0;
    tacit_error err;
    snprintf(path, sizeof path, "%s/local.log", d->dir);
    if (tacit_file_read(path, 64 << 20, &text, &size, &err) != TACIT_OK)
        size = 0;
    free(text);
    return size;
}

static void run_round(const struct store *store, record *out, size_t *local)
{
    fake_server server;
    fake_device device;
    agent_setup setup = {.once = true, .patience_ms = 60000};
    *out = (record){.used = 0};
    fake_start(&server);
    fake_device_make(&device, &server.tiny, 0);
    FILE *f = fopen(device.data, "w");
    assert_non_null(f);
    store->put(f);
    assert_int_equal(fclose(f), 0);
    fake_device_enrol(&device, &server);
    server.offer_plan = true;
    server.lie.read = read_request;
    fake_publish(&server, 1, 0.01f);
    standing.start_ms = tacit_clock_wall_ms();
    snprintf(standing.sealed, sizeof standing.sealed, "%s/rounds/%s.sealed", device.dir,
             "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0");
    now_recording = out;
    tacit_clock_inject(standing_clock, NULL);
    fake_device_open(&device, CLIENT_FEDERATES);
    tacit_status status = agent_run(device.client, &setup, &device.err);
    fake_device_close(&device);
    tacit_clock_inject(NULL, NULL);
    say("the run ends with %s, the upload waits %" PRIu64 " ms\n", tacit_status_name(status),
        waited_ms(&device));
    for (size_t i = 0; i < server.w.count; i++)
        say("logged: entry of %zu bytes\n", server.w.entry[i].size);
    now_recording = NULL;
    *local = local_log_size(&device);
    fake_device_drop(&device);
    fake_stop(&server);
}

static void nothing_that_leaves_depends_on_the_store(void **state)
{
    static record first, other;
    size_t local[STORES];
    (void)state;
    fake_pad_seconds = PAD_SECONDS;
    fake_poisoned = true;
    for (size_t i = 0; i < STORES; i++) {
        record *r = i ? &other : &first;
        run_round(&stores[i], r, &local[i]);
        if (strcmp(first.text, r->text) != 0)
            fail_msg("%s is told from %s:\n%s--- and ---\n%s", stores[i].name, stores[0].name,
                     first.text, r->text);
        /* Silence from the reserve to the time of the upload, which the plan gives. */
        assert_int_equal(r->next_ms - r->reserve_ms, PAD_SECONDS * 1000);
    }
    /* It was compared: a whole round with its upload. And the stores did differ. */
    const char *const parts[] = {"check-in: ",
                                 "reserve: ",
                                 "epsilon 0x",
                                 "upload: ",
                                 "chunk: ",
                                 "entry spend",
                                 "the run ends with ok, the upload waits 120000"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(first.text, parts[i]))
            fail_msg("'%s' is not in:\n%s", parts[i], first.text);
    assert_true(local[3] > local[0] && local[2] != local[0]);
    fake_pad_seconds = 0;
    fake_poisoned = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_leaves_depends_on_the_store),
    };
    tacit_log_init("test", TACIT_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
