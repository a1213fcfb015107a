/* What the private step gives back to the heap is empty: no gradient, noise or sample can be read
 * from freed memory. The linker sends the room's allocations through the functions here
 * (tests/CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/dp_step.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 64
#define VALUES 777
#define UNITS 5

static struct block {
    void *at;
    size_t size;
} block[BLOCKS];
static size_t given, freed, dirty;
static bool watching;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void __real_free(void *at);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void __wrap_free(void *at);

static void *note(void *at, size_t size)
{
    if (watching && at && given < BLOCKS)
        block[given++] = (struct block){at, size};
    return at;
}

void *__wrap_malloc(size_t size)
{
    return note(__real_malloc(size), size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return note(__real_calloc(n, size), n * size);
}

static bool is_empty(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

void __wrap_free(void *at)
{
    for (size_t i = 0; at && i < given; i++)
        if (block[i].at == at) {
            freed++;
            dirty += !is_empty(at, block[i].size);
            block[i].at = NULL;
        }
    __real_free(at);
}

static const tacit_mechanism gaussian = {.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                                         .unit = TACIT_UNIT_RECORD,
                                         .neighbours = TACIT_ADD_REMOVE,
                                         .clip_norm = 1,
                                         .b = 100000,
                                         .q_num = TACIT_Q_ONE,
                                         .steps = 3,
                                         .divisor = 1,
                                         .unit_examples = 1};
static const tacit_mechanism none = {.kind = TACIT_MECHANISM_NONE,
                                     .unit = TACIT_UNIT_RECORD,
                                     .neighbours = TACIT_ADD_REMOVE,
                                     .q_num = TACIT_Q_ONE,
                                     .steps = 3,
                                     .divisor = 1,
                                     .unit_examples = 1};

/* One step over UNITS units, another over one more, left after `adds` gradients. */
static void run(const tacit_mechanism *m, size_t adds)
{
    static const uint8_t nonce[TACIT_DRBG_NONCE_BYTES];
    static float grad[VALUES], mean[VALUES];
    tacit_dp *dp;
    tacit_error err;
    const size_t *drawn;
    size_t n;
    given = freed = dirty = 0;
    for (size_t i = 0; i < VALUES; i++)
        grad[i] = (float)(i + 1);
    watching = true;
    assert_int_equal(tacit_dp_new(&dp, m, VALUES, nonce, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_dp_begin_step(dp, UNITS, &drawn, &n, &err), TACIT_OK);
    assert_int_equal(n, UNITS);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tacit_dp_add(dp, grad, &err), TACIT_OK);
    assert_int_equal(tacit_dp_end_step(dp, mean, &err), TACIT_OK);
    assert_int_equal(tacit_dp_begin_step(dp, UNITS + 1, &drawn, &n, &err), TACIT_OK);
    for (size_t i = 0; i < adds; i++)
        assert_int_equal(tacit_dp_add(dp, grad, &err), TACIT_OK);
    tacit_dp_free(dp);
    watching = false;
}

static void test_freed_memory_is_empty(void **state)
{
    (void)state;
    for (size_t adds = 0; adds <= UNITS + 1; adds++) {
        run(&gaussian, adds); /* the object, sum, grid, two samples */
        assert_true(freed == 5 && given == 5);
        assert_int_equal(dirty, 0);
        run(&none, adds); /* the object, the sum, two samples */
        assert_true(freed == 4 && given == 4);
        assert_int_equal(dirty, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_memory_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
