/* Rounds from schedule to publication against an independent sum, and every way in which a round
 * ends otherwise; a restart in every state. Devices are tests/server/fleet.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "privacy/audit.h"

#define START                                                                                      \
    "round start", "rounds", "2", "steps", "4", "q", "0.5", "noise-multiplier", "2", "unit",       \
        "record", "cohort", "2", "quorum", "2", "deadline-seconds", "600", "pad-seconds", "0", "norm-bound", "1000"

static fleet f;
static fleet_device one, two;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, true);
    fleet_join(&one, &f, "one");
    fleet_join(&two, &f, "two");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_device_free(&one);
    fleet_device_free(&two);
    fleet_end(&f);
    atomic_store(&fleet_now, FLEET_START_MS);
    return 0;
}

/* An auditor's view of the server's log. */
static void expect_clean_audit(bool allow_non_private)
{
    char out[192], argument[200];
    tacit_export log;
    tacit_audit audit;
    tacit_error err;
    tacit_audit_options options = {.allow_non_private = allow_non_private};
    snprintf(out, sizeof out, "%s/export", f.folder);
    snprintf(argument, sizeof argument, "=%s", out);
    json_decref(FLEET_ASK(&f, "ledger export", argument));
    fleet_must(tacit_export_read(&log, out, &err), &err, "export");
    fleet_must(tacit_audit_run(&audit, &log, &options, &err), &err, "audit");
    for (size_t i = 0; i < audit.violation_count; i++)
        print_error("%s: %s\n", audit.violations[i].kind, audit.violations[i].detail);
    assert_int_equal(audit.violation_count, 0);
    tacit_audit_free(&audit);
    tacit_export_free(&log);
}

static json_t *adapter_list(void)
{
    return FLEET_ASK(&f, "adapter list");
}

/* The values of a published adapter file, by its digest. */
static void read_published(size_t at, float *values, size_t *count, const fleet_task *like)
{
    char path[320];
    tacit_trainable_spec spec;
    tacit_error err;
    json_t *list = adapter_list();
    json_t *row = json_array_get(list, at);
    snprintf(path, sizeof path, "%s/adapters/%s.gguf", f.dir,
             json_string_value(json_object_get(row, "file_digest")));
    fleet_must(tacit_trainable_spec_from_message(&spec, like->plan->adapter, &err), &err, "spec");
    *count = like->layout.values;
    fleet_must(tacit_adapter_read_values(path, f.server->model, &spec, values, &err), &err,
               "values");
    json_decref(list);
}

/* Both devices through a round; the task of the second is kept for its layout. */
static void serve_both(double first, double second, fleet_task *kept)
{
    fleet_serve_round(&one, first);
    fleet_take(&two, kept);
    fleet_must(fleet_reserve_locally(&two, kept), &two.err, "reserve");
    fleet_must(fleet_send_reserve(&two, kept), &two.err, "send reserve");
    fleet_seal_value(&two, kept, second);
    assert_string_equal(fleet_upload(&two, kept), "");
}

static void test_two_rounds(void **state)
{
    (void)state;
    fleet_task kept, again;
    float *values;
    size_t count;
    json_decref(FLEET_ASK(&f, START));
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    serve_both(0.25, 0.75, &kept);
    values = malloc(kept.layout.values * sizeof *values);
    fleet_step(&f);
    fleet_expect_round(&f, "aggregating", "");
    fleet_step(&f);
    fleet_expect_round(&f, "evaluating", "");
    fleet_step(&f);
    fleet_expect_round(&f, "published", "");
    read_published(0, values, &count, &kept);
    for (size_t i = 0; i < count; i++) /* the mean, exact: powers of two at a power of two's scale */
        assert_true(values[i] == 0.5f);
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    /* The second round starts from the first one's adapter. */
    serve_both(-0.125, -0.375, &again);
    assert_int_equal(again.plan->parent_version, 1);
    fleet_work(&f);
    read_published(1, values, &count, &again);
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == 0.25f);
    json_t *list = adapter_list();
    assert_int_equal(json_array_size(list), 2);
    double e1 = json_real_value(json_object_get(json_array_get(list, 0), "epsilon_published"));
    double e2 = json_real_value(json_object_get(json_array_get(list, 1), "epsilon_published"));
    assert_true(e1 > 0 && e2 > e1);
    json_t *budgets = FLEET_ASK(&f, "budget show");
    /* The manifest's number is what each device was charged for both rounds. */
    for (size_t i = 0; i < 2; i++)
        assert_true(fabs(json_real_value(json_object_get(json_array_get(budgets, i), "epsilon")) -
                         e2) <= 1e-9 * e2);
    json_decref(budgets);
    json_decref(list);
    expect_clean_audit(false);
    fleet_task_free(&kept);
    fleet_task_free(&again);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_rounds, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
