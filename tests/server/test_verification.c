/* Which thread verifies. The writer is one thread for all devices: signatures of requests and
 * entries, and the opening of sealed updates, take workers' time and none of its own. The linker
 * puts the counters below in front of both functions (--wrap, tests/CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include <pthread.h>

static pthread_t writer;
static _Atomic unsigned signatures[2], seals[2]; /* by workers, by the writer */

static size_t by_writer(void)
{
    return pthread_equal(pthread_self(), writer) != 0;
}

bool __real_tacit_signature_holds(const uint8_t *key, const char *domain, const void *message,
                                  size_t size, const uint8_t *signature);
bool __wrap_tacit_signature_holds(const uint8_t *key, const char *domain, const void *message,
                                  size_t size, const uint8_t *signature);
bool __wrap_tacit_signature_holds(const uint8_t *key, const char *domain, const void *message,
                                  size_t size, const uint8_t *signature)
{
    atomic_fetch_add(&signatures[by_writer()], 1);
    return __real_tacit_signature_holds(key, domain, message, size, signature);
}

tacit_status __real_tacit_seal_open(tacit_buffer *out, const uint8_t *sealed, size_t size,
                                    const tacit_seal_binding *binding, const uint8_t *signer_key,
                                    const tacit_secret *recipient, tacit_error *err);
tacit_status __wrap_tacit_seal_open(tacit_buffer *out, const uint8_t *sealed, size_t size,
                                    const tacit_seal_binding *binding, const uint8_t *signer_key,
                                    const tacit_secret *recipient, tacit_error *err);
tacit_status __wrap_tacit_seal_open(tacit_buffer *out, const uint8_t *sealed, size_t size,
                                    const tacit_seal_binding *binding, const uint8_t *signer_key,
                                    const tacit_secret *recipient, tacit_error *err)
{
    atomic_fetch_add(&seals[by_writer()], 1);
    return __real_tacit_seal_open(out, sealed, size, binding, signer_key, recipient, err);
}

static tacit_status say_who(void *ctx, tacit_error *err)
{
    (void)err;
    *(pthread_t *)ctx = pthread_self();
    return TACIT_OK;
}

static fleet f;
static fleet_device d;

static int setup(void **state)
{
    tacit_error err;
    (void)state;
    fleet_start(&f, false);
    fleet_join(&d, &f, "one");
    json_decref(FLEET_ASK(&f, "round start", "rounds", "2", "steps", "1", "q", "0.25",
                          "noise-multiplier", "8", "unit", "record", "cohort", "1", "pad-seconds",
                          "0", "norm-bound", "32"));
    fleet_work(&f);
    fleet_must(writer_run(f.server->writer, say_who, NULL, &writer, &err), &err, "writer");
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&signatures[i], 0);
        atomic_store(&seals[i], 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_device_free(&d);
    fleet_end(&f);
    return 0;
}

/* Check-in, reserve, begin, chunks, commit, receipt; then the sum. The device of the test verifies
 * on this thread as well, so what is counted for the writer says it. */
static void test_workers_verify(void **state)
{
    (void)state;
    Tacit__ReceiptRequest r = TACIT__RECEIPT_REQUEST__INIT;
    fleet_task t;
    fleet_take(&d, &t);
    fleet_must(fleet_reserve_locally(&d, &t), &d.err, "reserve");
    fleet_must(fleet_send_reserve(&d, &t), &d.err, "send reserve");
    fleet_seal_value(&d, &t, 0.5);
    assert_string_equal(fleet_upload(&d, &t), "");
    r.leaf_hash = tacit_field_of(t.reserve.hash, TACIT_HASH_BYTES);
    fleet_must(fleet_call(&d, TACIT__METHOD__METHOD_RECEIPT, &r, NULL, NULL), &d.err, "receipt");
    assert_int_equal(atomic_load(&seals[0]), 1);
    fleet_work(&f); /* the machine's thread opens each update again to sum it up */
    assert_int_equal(atomic_load(&seals[0]), 2);
    assert_int_equal(atomic_load(&seals[1]), 0);
    assert_true(atomic_load(&signatures[0]) >= 8);
    assert_int_equal(atomic_load(&signatures[1]), 0);
    fleet_task_free(&t);
}

/* A stored reply, a fork and a wrong signature go the same way. */
static void test_workers_verify_what_is_refused(void **state)
{
    (void)state;
    uint64_t offset = 0;
    fleet_task t;
    fleet_take(&d, &t);
    fleet_must(fleet_reserve_locally(&d, &t), &d.err, "reserve");
    t.reserve.entry[t.reserve.entry_size - 1] ^= 1; /* in the signature */
    assert_int_equal(fleet_send_reserve(&d, &t), TACIT_BAD_INPUT);
    t.reserve.entry[t.reserve.entry_size - 1] ^= 1;
    fleet_must(fleet_send_reserve(&d, &t), &d.err, "send reserve");
    d.counter--; /* the same counter, another body: a clone */
    fleet_seal_value(&d, &t, 0.5);
    assert_int_equal(fleet_begin(&d, &t, &offset), TACIT_REFUSED);
    assert_non_null(strstr(d.err.message, "clone"));
    assert_int_equal(atomic_load(&signatures[1]), 0);
    fleet_task_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_workers_verify, setup, teardown),
        cmocka_unit_test_setup_teardown(test_workers_verify_what_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
