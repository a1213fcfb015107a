#include "common/name_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NAMES 5000

typedef struct names {
    char name[NAMES][16];
} names;

static const char *name_at(const void *owner, size_t number)
{
    return ((const names *)owner)->name[number];
}

static void test_finds_what_was_added(void **state)
{
    (void)state;
    static names n;
    tacit_name_set s;
    tacit_name_set_init(&s, name_at, &n);
    assert_true(tacit_name_set_find(&s, "") == TACIT_NAME_UNKNOWN);
    for (size_t i = 0; i < NAMES; i++) {
        snprintf(n.name[i], sizeof n.name[i], "name.%zu", i * i);
        assert_true(tacit_name_set_find(&s, n.name[i]) == TACIT_NAME_UNKNOWN);
        assert_true(tacit_name_set_add(&s, i));
        assert_int_equal(tacit_name_set_find(&s, n.name[i]), i);
        assert_true(s.count == i + 1 && s.size > 2 * s.count && (s.size & (s.size - 1)) == 0);
    }
    for (size_t i = 0; i < NAMES; i++)
        assert_int_equal(tacit_name_set_find(&s, n.name[i]), i);
    assert_true(tacit_name_set_find(&s, "name.2") == TACIT_NAME_UNKNOWN);
    tacit_name_set_fini(&s);
    assert_true(!s.slot && s.count == 0);
}

/* Numbers need not come in order, nor all. */
static void test_any_numbers(void **state)
{
    (void)state;
    static names n = {{"zero", "one", "two", "", "four"}};
    tacit_name_set s;
    tacit_name_set_init(&s, name_at, &n);
    assert_true(tacit_name_set_add(&s, 4) && tacit_name_set_add(&s, 0) &&
                tacit_name_set_add(&s, 3));
    assert_int_equal(tacit_name_set_find(&s, "four"), 4);
    assert_int_equal(tacit_name_set_find(&s, "zero"), 0);
    assert_int_equal(tacit_name_set_find(&s, ""), 3);
    assert_true(tacit_name_set_find(&s, "one") == TACIT_NAME_UNKNOWN);
    tacit_name_set_fini(&s);
}

/* Two sets put equal names into different slots: the key is random. */
static void test_keys_are_random(void **state)
{
    (void)state;
    static names n;
    tacit_name_set a, b;
    tacit_name_set_init(&a, name_at, &n);
    tacit_name_set_init(&b, name_at, &n);
    for (size_t i = 0; i < 20; i++) {
        snprintf(n.name[i], sizeof n.name[i], "%zu", i);
        assert_true(tacit_name_set_add(&a, i) && tacit_name_set_add(&b, i));
    }
    assert_int_equal(a.size, b.size);
    assert_memory_not_equal(a.slot, b.slot, a.size * sizeof *a.slot);
    tacit_name_set_fini(&a);
    tacit_name_set_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_was_added),
        cmocka_unit_test(test_any_numbers),
        cmocka_unit_test(test_keys_are_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
