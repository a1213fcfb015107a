/* The export as a whole: checkpoint, key, receipts, flipped bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "privacy/receipt.h"

/* --- the whole log and receipts --- */

static void clean(world *w, exported *x)
{
    world_init(w);
    world_plan_all(w);
    world_log(w);
    export_of(w, x);
}

static void expect(world *w, const exported *x, const tacit_audit_options *options,
                   const char *kind)
{
    tacit_audit audit;
    run(x, options, &audit);
    if (kind ? !has(&audit, kind) : audit.violation_count != 0)
        print_all(kind ? kind : "clean", &audit);
    if (kind)
        assert_true(has(&audit, kind));
    else
        assert_int_equal(audit.violation_count, 0);
    (void)w;
    tacit_audit_free(&audit);
}

static void test_the_checkpoint_binds_the_entries(void **state)
{
    (void)state;
    world w;
    exported x;
    clean(&w, &x);
    x.e.count--;
    expect(&w, &x, NULL, "incomplete_export");
    x.e.count++;
    world_checkpoint(&w, w.count - 1, x.note);
    x.e.checkpoint_size = strlen(x.note);
    expect(&w, &x, NULL, "unsigned_tail");
    world_checkpoint(&w, w.count, x.note);
    x.e.checkpoint_size = strlen(x.note);
    tacit_span kept = x.e.entries[9];
    x.e.entries[9] = x.e.entries[10];
    x.e.entries[10] = kept;
    expect(&w, &x, NULL, "root_mismatch");
    x.e.entries[10] = x.e.entries[9];
    x.e.entries[9] = kept;
    expect(&w, &x, NULL, NULL);
    x.note[4] ^= 1;
    expect(&w, &x, NULL, "bad_checkpoint");
    export_done(&x);
    world_free(&w);
}

static void test_an_empty_log_is_no_log(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    world_init(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    assert_int_equal(audit.violation_count, 1);
    assert_string_equal(audit.violations[0].kind, "wrong_start");
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_the_log_key_can_be_pinned(void **state)
{
    (void)state;
    world w;
    exported x;
    clean(&w, &x);
    tacit_note_key key = world_log_key(&w), other;
    tacit_audit_options options = {.log_key = &key};
    expect(&w, &x, &options, NULL);
    OK(tacit_note_key_make(&other, WORLD_ORIGIN, tacit_identity_sign_key(w.stranger), &w.err));
    options.log_key = &other;
    expect(&w, &x, &options, "wrong_log_key");
    x.e.log_key = other;
    expect(&w, &x, NULL, "wrong_log_key");
    export_done(&x);
    world_free(&w);
}

static uint8_t *receipt_for(world *w, uint64_t index, uint64_t size, size_t *packed_size)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint8_t *packed;
    tacit_receipt r = {.entry = {w->entry[index].bytes, w->entry[index].size}, .index = index};
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    world_checkpoint(w, size, note);
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_merkle_inclusion(&store, index, size, &r.inclusion, &w->err));
    OK(tacit_receipt_pack(&r, &packed, packed_size, &w->err));
    return packed;
}

static void expect_receipt(world *w, const exported *x, uint8_t *bytes, size_t size,
                           const char *kind)
{
    const char *name = "test.receipt";
    const tacit_span span = {bytes, size};
    tacit_audit_options options = {.receipts = &span, .receipt_names = &name, .receipt_count = 1};
    expect(w, x, &options, kind);
    free(bytes);
}

static void test_receipts_hold_the_log_to_its_word(void **state)
{
    (void)state;
    world w, forked;
    exported x;
    size_t size;
    clean(&w, &x);
    for (uint64_t n = 10; n <= w.count; n += 7) {
        uint8_t *good = receipt_for(&w, 9, n, &size);
        expect_receipt(&w, &x, good, size, NULL);
    }
    uint8_t *bad = receipt_for(&w, 9, w.count, &size);
    bad[size - 3] ^= 1; /* of the checkpoint's signature */
    expect_receipt(&w, &x, bad, size, "bad_receipt");

    /* The export ends before the receipt. */
    uint8_t *newer = receipt_for(&w, w.count - 1, w.count, &size);
    x.e.count = w.count - 5;
    world_checkpoint(&w, w.count - 5, x.note);
    x.e.checkpoint_size = strlen(x.note);
    expect_receipt(&w, &x, newer, size, "incomplete_export");
    export_done(&x);

    /* The same server signs another log of the same size. */
    world_init(&forked);
    tacit_identity *kept = forked.log;
    forked.log = w.log;
    world_plan_all(&forked);
    world_log(&forked);
    export_of(&forked, &x);
    uint8_t *receipt = receipt_for(&w, 9, w.count, &size);
    expect_receipt(&forked, &x, receipt, size, "split_view");
    forked.log = kept;
    export_done(&x);
    world_free(&forked);
    world_free(&w);
}

/* Receipts of two devices that were shown two logs, held against each other: whatever export there
 * is, honest, of one side, or cut before both. */
static void test_receipts_of_two_views_convict_the_log(void **state)
{
    (void)state;
    static const char *const names[] = {"a.receipt", "b.receipt"};
    world w, forked;
    exported x;
    tacit_audit audit;
    size_t size[2];
    clean(&w, &x);
    world_init(&forked);
    tacit_identity *kept = forked.log;
    forked.log = w.log;
    world_plan_all(&forked);
    world_log(&forked);
    const struct {
        uint64_t index, a_size, b_size;
        const char *said;
    } rows[] = {{9, 20, 20, "the log signed two trees of 20 entries"},
                {9, 20, 30, "the log signed two entries in one place"},
                {9, 10, w.count, "the log signed two entries in one place"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *a = receipt_for(&w, rows[i].index, rows[i].a_size, &size[0]);
        uint8_t *b = receipt_for(&forked, rows[i].index, rows[i].b_size, &size[1]);
        const tacit_span both[] = {{a, size[0]}, {b, size[1]}};
        const tacit_audit_options options = {
            .receipts = both, .receipt_names = names, .receipt_count = 2};
        x.e.count = 5;
        world_checkpoint(&w, 5, x.note);
        x.e.checkpoint_size = strlen(x.note);
        run(&x, &options, &audit);
        bool said = false;
        for (size_t k = 0; k < audit.violation_count; k++)
            said = said || (strcmp(audit.violations[k].kind, "split_view") == 0 &&
                            strstr(audit.violations[k].detail, rows[i].said));
        assert_true(said);
        assert_true(has(&audit, "incomplete_export"));
        tacit_audit_free(&audit);
        free(a);
        free(b);
    }
    /* Two sizes, two places: one of them is not of the export, whichever view that is. */
    uint8_t *a = receipt_for(&w, 9, 20, &size[0]), *b = receipt_for(&forked, 12, 30, &size[1]);
    const tacit_span both[] = {{a, size[0]}, {b, size[1]}};
    const tacit_audit_options options = {
        .receipts = both, .receipt_names = names, .receipt_count = 2};
    x.e.count = w.count;
    world_checkpoint(&w, w.count, x.note);
    x.e.checkpoint_size = strlen(x.note);
    expect(&w, &x, &options, "split_view");
    export_done(&x);
    export_of(&forked, &x);
    expect(&forked, &x, &options, "split_view");
    free(a);
    free(b);
    export_done(&x);
    forked.log = kept;
    world_free(&forked);
    world_free(&w);
}

/* A checkpoint that covers an entry which the log then lacks needs a hash collision or a lie about
 * the index: the lie is caught. */
static void test_a_receipt_for_another_place_is_caught(void **state)
{
    (void)state;
    world w;
    exported x;
    size_t size;
    clean(&w, &x);
    uint8_t *good = receipt_for(&w, 9, w.count, &size);
    tacit_span kept = x.e.entries[9];
    x.e.entries[9] = x.e.entries[8];
    tacit_audit audit;
    const char *name = "r";
    const tacit_span span = {good, size};
    tacit_audit_options options = {.receipts = &span, .receipt_names = &name, .receipt_count = 1};
    run(&x, &options, &audit);
    assert_true(has(&audit, "split_view") || has(&audit, "receipt_missing"));
    assert_true(has(&audit, "root_mismatch"));
    tacit_audit_free(&audit);
    x.e.entries[9] = kept;
    free(good);
    export_done(&x);
    world_free(&w);
}

static void test_unreadable_receipts_are_errors(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    const char *name = "broken.receipt";
    const tacit_span span = {(const uint8_t *)"junk", 4};
    tacit_audit_options options = {.receipts = &span, .receipt_names = &name, .receipt_count = 1};
    clean(&w, &x);
    assert_int_equal(tacit_audit_run(&audit, &x.e, &options, &w.err), TACIT_BAD_INPUT);
    assert_non_null(strstr(w.err.message, "broken.receipt"));
    export_done(&x);
    world_free(&w);
}

static void test_mechanism_none_may_be_allowed(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit_options options = {.allow_non_private = true};
    world_init(&w);
    w.none = true;
    w.policy.allow_non_private = true;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    expect(&w, &x, &options, NULL);
    expect(&w, &x, NULL, "non_private");
    export_done(&x);
    world_free(&w);
}

/* Every byte of an export's log that changes is noticed by the entry itself, without any help of
 * the tree (a server could sign another tree); a sample goes through the whole auditor. */
static void test_every_flipped_byte_is_noticed(void **state)
{
    (void)state;
    world w;
    exported x;
    world_init(&w);
    w.last_round = 1;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    size_t missed = 0;
    for (size_t i = 0; i < x.e.log_size; i++) {
        tacit_export broken = x.e;
        tacit_audit audit;
        tacit_error err;
        tacit_entry e;
        x.e.log[i] ^= (uint8_t)(1u << i % 8);
        tacit_status status =
            tacit_export_split(x.e.log, x.e.log_size, &broken.entries, &broken.count, &err);
        for (size_t k = 0; k < broken.count && status == TACIT_OK; k++) {
            tacit_span span = broken.entries[k];
            if (span.data + span.size + 4 < x.e.log + i || span.data > x.e.log + i + 4)
                continue; /* its bytes and length are untouched */
            status = tacit_entry_open(&e, span.data, span.size, &err);
            tacit_entry_close(&e);
        }
        missed += status == TACIT_OK;
        if (i % 37 == 0 && broken.entries != x.e.entries && broken.entries) {
            static const tacit_audit_options plain;
            OK(tacit_audit_run(&audit, &broken, &plain, &err));
            missed += audit.violation_count == 0;
            tacit_audit_free(&audit);
        }
        if (broken.entries != x.e.entries)
            free(broken.entries);
        x.e.log[i] ^= (uint8_t)(1u << i % 8);
    }
    assert_int_equal(missed, 0);
    export_done(&x);
    world_free(&w);
}

static void test_hostile_logs_are_refused(void **state)
{
    (void)state;
    tacit_error err;
    tacit_span *entries;
    size_t count;
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {
        {"\x01", 1},
        {"\x01\x00\x00", 3},
        {"\x01\x00\x00\x00", 4},
        {"\x00\x00\x00\x00", 4},
        {"\x02\x00\x00\x00x", 5},
        {"\xff\xff\xff\xffxxxx", 8},
        {"\x01\x00\x00\x00xy", 6},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(
            tacit_export_split((const uint8_t *)bad[i].bytes, bad[i].size, &entries, &count, &err),
            TACIT_BAD_INPUT);
    assert_int_equal(tacit_export_split(NULL, 0, &entries, &count, &err), TACIT_OK);
    assert_int_equal(count, 0);
    free(entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_checkpoint_binds_the_entries),
        cmocka_unit_test(test_an_empty_log_is_no_log),
        cmocka_unit_test(test_the_log_key_can_be_pinned),
        cmocka_unit_test(test_receipts_hold_the_log_to_its_word),
        cmocka_unit_test(test_receipts_of_two_views_convict_the_log),
        cmocka_unit_test(test_a_receipt_for_another_place_is_caught),
        cmocka_unit_test(test_unreadable_receipts_are_errors),
        cmocka_unit_test(test_mechanism_none_may_be_allowed),
        cmocka_unit_test(test_every_flipped_byte_is_noticed),
        cmocka_unit_test(test_hostile_logs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
