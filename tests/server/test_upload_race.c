/* A device that goes on writing while its upload is committed: what was judged is what is summed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "server/round_terms.h"

#include <pthread.h>

#define ROUNDS 16
#define TRIES 60

typedef struct writing {
    fleet *fleet;
    tacit_buffer request; /* one chunk of other bytes, signed */
    atomic_bool go, stop;
    pthread_t thread;
} writing;

/* A chunk for offset 0 that replaces the first bytes. Its counter lies ahead: chunks use none up.
 */
static void make_request(writing *w, const fleet_device *d, const fleet_task *t)
{
    static uint8_t junk[64];
    Tacit__UploadChunkRequest r = TACIT__UPLOAD_CHUNK_REQUEST__INIT;
    uint8_t *bytes, hash[TACIT_DIGEST_BYTES];
    size_t size;
    tacit_error err;
    memset(junk, 0xa5, sizeof junk);
    r.reserve_hash = tacit_field_of(t->reserve.hash, TACIT_HASH_BYTES);
    r.data = tacit_field_of(junk, sizeof junk);
    fleet_must(tacit_message_pack(&r, TACIT_BODY_MAX, &bytes, &size, &err), &err, "chunk");
    tacit_request request = {.protocol = 1,
                             .method = TACIT__METHOD__METHOD_UPLOAD_CHUNK,
                             .has_device = true,
                             .counter = 1000000,
                             .has_nonce = true,
                             .body = {bytes, size}};
    memcpy(request.device, d->device, sizeof d->device);
    memcpy(request.nonce, d->nonce, sizeof d->nonce);
    fleet_must(tacit_request_build(&request, d->id, &w->request, hash, &err), &err, "chunk");
    free(bytes);
}

static void *write_on(void *arg)
{
    writing *w = arg;
    while (!atomic_load(&w->go))
        continue;
    while (!atomic_load(&w->stop)) {
        tacit_buffer reply = {.cap = TACIT_MESSAGE_MAX};
        gate_serve(w->fleet->server, GATE_DEVICES, w->request.data, w->request.size, &reply);
        tacit_buffer_free(&reply);
    }
    return NULL;
}

/* Sends everything, then commits while the other thread writes; true when it was accepted. */
static bool commit_once(fleet_device *d, fleet_task *t, bool disturbed)
{
    writing w = {.fleet = d->fleet};
    char reason[32] = "";
    uint64_t offset = 0;
    fleet_must(fleet_begin(d, t, &offset), &d->err, "begin");
    offset = 0;
    fleet_must(fleet_chunk(d, t, &offset, t->sealed.size), &d->err, "chunk");
    make_request(&w, d, t);
    assert_int_equal(pthread_create(&w.thread, NULL, write_on, &w), 0);
    atomic_store(&w.stop, !disturbed);
    atomic_store(&w.go, true);
    tacit_status status = fleet_commit(d, t, reason);
    atomic_store(&w.stop, true);
    pthread_join(w.thread, NULL);
    tacit_buffer_free(&w.request);
    if (status != TACIT_CONFLICT) /* else the other bytes came first, and all is sent again */
        fleet_must(status, &d->err, "commit");
    assert_string_equal(reason, "");
    return status == TACIT_OK;
}

static void expect_file(const fleet *f, const fleet_task *t)
{
    char path[SERVER_PATH_MAX];
    uint8_t *stored = NULL;
    size_t size = 0;
    tacit_error err;
    fleet_must(round_upload_path(f->server, t->reserve.hash, path, &err), &err, "path");
    fleet_must(tacit_file_read(path, SERVER_UPLOAD_MAX, &stored, &size, &err), &err, "upload");
    assert_int_equal(size, t->sealed.size);
    assert_memory_equal(stored, t->sealed.data, size);
    free(stored);
}

static void test_an_accepted_update_never_changes(void **state)
{
    fleet f;
    fleet_device d;
    fleet_task t;
    (void)state;
    fleet_start(&f, false);
    fleet_join(&d, &f, "one");
    json_decref(FLEET_ASK(&f, "round start", "rounds", "16", "steps", "1", "q", "0.01",
                          "noise-multiplier", "20", "unit", "record", "cohort", "1", "quorum", "1",
                          "pad-seconds", "0", "norm-bound", "32"));
    for (int round = 0; round < ROUNDS; round++) {
        bool accepted = false;
        fleet_work(&f);
        fleet_take(&d, &t);
        fleet_must(fleet_reserve_locally(&d, &t), &d.err, "reserve");
        fleet_must(fleet_send_reserve(&d, &t), &d.err, "send reserve");
        fleet_seal_value(&d, &t, 0.25);
        for (int try = 0; !accepted; try++)
            accepted = commit_once(&d, &t, try < TRIES);
        expect_file(&f, &t);
        fleet_work(&f);
        fleet_task_free(&t);
    }
    fleet_expect_round(&f, "published", "");
    fleet_device_free(&d);
    fleet_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_accepted_update_never_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
