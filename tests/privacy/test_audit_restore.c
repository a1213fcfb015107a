/* Logs that went on from an older copy, as an auditor sees them: an honest restore, and everything
 * that a restore could be used for. Every row says which kinds are found, and no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "restored_log.h"

/* How the restore in a row's log is made, and what follows it. */
typedef struct row {
    const char *what;
    const char *kinds; /* sorted, each once; "" for an honest log */
    void (*go_on)(restored_log *l);
    size_t receipts;  /* so many of the lost entries' receipts are held against it */
    const char *note; /* what the note `restored` says, or NULL */
} row;

static void cut_and_restore(restored_log *l, const tacit_identity *signer,
                            void (*edit)(tacit_restore *))
{
    restored_cut(l);
    world_restored(&l->w, l->kept, l->last, signer, edit);
}

static void bring_again(restored_log *l)
{
    for (size_t i = LOST_RESERVE_0; i <= LOST_SPEND_1; i++)
        restored_again(l, i);
}

static void honest(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, NULL);
    bring_again(l);
    restored_round(&l->w, 2, true);
    world_restored(&l->w, l->w.count, NULL, l->w.operator_id, NULL); /* and once more */
}

static void honest_once(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, NULL);
    bring_again(l);
    restored_round(&l->w, 2, true);
}

/* The copy was started before anybody restored it: its own starts are no part of the old log. */
static void started_first(restored_log *l)
{
    restored_cut(l);
    world_start(&l->w);
    world_restored(&l->w, l->kept, l->last, l->w.operator_id, NULL);
    bring_again(l);
}

static void keeps_its_own_start(restored_log *l)
{
    restored_cut(l);
    world_start(&l->w);
    world_restored(&l->w, l->kept + 1, NULL, l->w.operator_id, NULL);
    bring_again(l);
}

static void by_the_server(restored_log *l)
{
    cut_and_restore(l, l->w.log, NULL);
    bring_again(l);
}

static void edit_generation(tacit_restore *r)
{
    r->generation = 3;
    OK(tacit_restore_origin(r->new_origin, WORLD_ORIGIN, 3, NULL));
}

static void generation_skipped(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, edit_generation);
    bring_again(l);
}

static void edit_root(tacit_restore *r)
{
    r->root[3] ^= 1;
}

static void another_root(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, edit_root);
    bring_again(l);
}

static void edit_name(tacit_restore *r)
{
    snprintf(r->new_origin, sizeof r->new_origin, "tacit.example/another");
}

static void another_name(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, edit_name);
    bring_again(l);
}

static void edit_log_key(tacit_restore *r)
{
    r->log_key[0] ^= 1;
}

static void another_log_key(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, edit_log_key);
    bring_again(l);
}

/* An older last word than what is kept. */
static void last_too_old(restored_log *l)
{
    char note[TACIT_CHECKPOINT_MAX];
    restored_cut(l);
    world_checkpoint(&l->w, l->kept - 1, note);
    world_restored(&l->w, l->kept, note, l->w.operator_id, NULL);
    bring_again(l);
}

/* The server lies to the operator about what it signed last. */
static void last_of_another_tree(restored_log *l)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = l->kept + LOST_ENTRIES, .root = {7}};
    OK(tacit_checkpoint_sign(&c, l->w.log, note, &l->w.err));
    restored_cut(l);
    world_restored(&l->w, l->kept, note, l->w.operator_id, NULL);
    bring_again(l);
}

/* Device 1 is made to go away: its reserve would never have happened. */
static void never_brought_again(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, NULL);
    restored_again(l, LOST_RESERVE_0);
    restored_again(l, LOST_SPEND_0);
}

/* Device 0 trains before it brought the rest. */
static void trains_before(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, NULL);
    world_log_plan(&l->w, 2);
    world_reserve(&l->w, 2, 0);
}

/* A plan that nobody logged, once the device has gone on. */
static void planless_later(restored_log *l)
{
    cut_and_restore(l, l->w.operator_id, NULL);
    world_log_plan(&l->w, 2);
    restored_again(l, LOST_RESERVE_1);
    restored_again(l, LOST_SPEND_1);
    world_device *d = &l->w.device[0]; /* it forgets round 1, then remembers */
    d->sequence -= 2;
    tacit_merkle_leaf(d->head, l->w.entry[l->kept - 4].bytes, l->w.entry[l->kept - 4].size);
    tacit_budget_open(&d->budget, l->w.policy.epsilon_cap, l->w.policy.delta);
    l->w.hook = NULL;
    tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), 10};
    OK(tacit_budget_add(&d->budget, &event, WORLD_VALUES, true, &l->w.err));
    world_reserve(&l->w, 2, 0);
    world_reserve(&l->w, 1, 0);
}

/* The key that a restore needs becomes the server's own: from then on it vouches for nothing. */
static void by_a_log_key(restored_log *l)
{
    world *w = &l->w;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__KeyRotated k = TACIT__KEY_ROTATED__INIT;
    uint8_t both[2 * TACIT_SIGN_KEY_BYTES], by_old[TACIT_SIGNATURE_BYTES],
        by_new[TACIT_SIGNATURE_BYTES];
    tacit_identity *before = w->log;
    restored_cut(l);
    memcpy(both, tacit_identity_sign_key(w->log), TACIT_SIGN_KEY_BYTES);
    memcpy(both + TACIT_SIGN_KEY_BYTES, tacit_identity_sign_key(w->operator_id),
           TACIT_SIGN_KEY_BYTES);
    OK(tacit_identity_sign(w->log, TACIT_ROTATE_DOMAIN, both, sizeof both, by_old, &w->err));
    OK(tacit_identity_sign(w->operator_id, TACIT_ROTATE_DOMAIN, both, sizeof both, by_new,
                           &w->err));
    k.old_key = tacit_field_of(both, TACIT_SIGN_KEY_BYTES);
    k.new_key = tacit_field_of(both + TACIT_SIGN_KEY_BYTES, TACIT_SIGN_KEY_BYTES);
    k.signature_old = tacit_field_of(by_old, sizeof by_old);
    k.signature_new = tacit_field_of(by_new, sizeof by_new);
    e.body_case = TACIT__ENTRY__BODY_KEY_ROTATED;
    e.key_rotated = &k;
    world_push(w, &e, w->log, NULL);
    w->log = w->operator_id;
    w->operator_id = before;
    world_restored(w, w->count, NULL, w->log, NULL);
}

/* Without a restore nothing is brought again. */
static void cut_alone(restored_log *l)
{
    restored_cut(l);
    bring_again(l);
}

static const row rows[] = {
    {"an honest restore", "", honest_once, LOST_ENTRIES,
     "'tacit.example/log' goes on as 'tacit.example/log/2' from a log of 12 entries; 7 are known "
     "to be lost; 4 entries of devices about what was before follow it"},
    {"two honest restores", "", honest, LOST_ENTRIES, NULL},
    {"a copy that was started first", "", started_first, LOST_ENTRIES, NULL},
    {"a start of the copy taken for the old log's", "bad_restore", keeps_its_own_start, 0, NULL},
    {"a restore by the server", "unvouched_restore", by_the_server, 0, NULL},
    {"a restore by a log that took the operator's key", "unvouched_restore", by_a_log_key, 0, NULL},
    {"a generation skipped", "bad_restore", generation_skipped, 0, NULL},
    {"a restore of another tree", "bad_restore", another_root, 0, NULL},
    {"a restore under another name", "unvouched_restore wrong_start", another_name, 0, NULL},
    {"a restore under another key", "bad_restore", another_log_key, 0, NULL},
    {"an older last checkpoint", "bad_restore", last_too_old, 0, NULL},
    {"a last checkpoint of another tree", "split_view", last_of_another_tree, LOST_ENTRIES, NULL},
    {"an entry never brought again", "lost_entry", never_brought_again, LOST_ENTRIES, NULL},
    {"training before the rest is brought", "epsilon_mismatch sequence_gap", trains_before, 0,
     NULL},
    {"a plan that nobody logged, later", "reserve_without_plan", planless_later, 0, NULL},
    {"a log that was cut", "incomplete_export reserve_without_plan", cut_alone, LOST_ENTRIES, NULL},
};

static int by_word(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void kinds_of(const tacit_audit *audit, char *out, size_t size)
{
    const char *kinds[64];
    size_t n = 0;
    assert_true(audit->violation_count < 64);
    for (size_t i = 0; i < audit->violation_count; i++)
        kinds[n++] = audit->violations[i].kind;
    qsort(kinds, n, sizeof kinds[0], by_word);
    *out = '\0';
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(kinds[i], kinds[i - 1]) != 0)
            snprintf(out + strlen(out), size - strlen(out), "%s%s", *out ? " " : "", kinds[i]);
}

static bool says(const tacit_audit *audit, const char *text)
{
    bool found = !text;
    for (size_t i = 0; i < audit->note_count && !found; i++)
        found = strcmp(audit->notes[i].kind, "restored") == 0 &&
                strcmp(audit->notes[i].detail, text) == 0;
    if (!found)
        print_error("the note is '%s'\n", audit->note_count ? audit->notes[0].detail : "");
    return found;
}

static bool row_is_found(const row *r)
{
    restored_log l;
    exported x;
    tacit_audit audit;
    char found[1024];
    tacit_span receipts[LOST_MAX];
    const char *names[LOST_MAX];
    restored_before(&l);
    r->go_on(&l);
    export_of(&l.w, &x);
    for (size_t i = 0; i < r->receipts; i++) {
        receipts[i] = (tacit_span){l.lost[i].receipt, l.lost[i].receipt_size};
        names[i] = "lost.receipt";
    }
    const tacit_audit_options options = {
        .receipts = receipts, .receipt_names = names, .receipt_count = r->receipts};
    run(&x, &options, &audit);
    kinds_of(&audit, found, sizeof found);
    bool good = strcmp(found, r->kinds) == 0 && says(&audit, r->note);
    if (!good) {
        print_error("%s: expected '%s'\n", r->what, r->kinds);
        print_all(r->what, &audit);
    }
    tacit_audit_free(&audit);
    export_done(&x);
    restored_free(&l);
    return good;
}

static void test_every_restore_is_judged(void **state)
{
    size_t missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        missed += !row_is_found(&rows[i]);
    assert_int_equal(missed, 0);
}

/* Who pinned the log's first name keeps it; another log's does not do. */
static void test_the_first_name_stays_good(void **state)
{
    restored_log l;
    exported x;
    tacit_audit audit;
    tacit_note_key first, other;
    (void)state;
    restored_before(&l);
    honest_once(&l);
    export_of(&l.w, &x);
    OK(tacit_note_key_make(&first, WORLD_ORIGIN, tacit_identity_sign_key(l.w.log), &l.w.err));
    OK(tacit_note_key_make(&other, WORLD_ORIGIN "/3", tacit_identity_sign_key(l.w.log), &l.w.err));
    run(&x, &(tacit_audit_options){.log_key = &first}, &audit);
    assert_int_equal(audit.violation_count, 0);
    assert_true(find_device(&audit, &l.w, 0).epsilon == budget_epsilon(&l.w.device[0].budget));
    tacit_audit_free(&audit);
    run(&x, &(tacit_audit_options){.log_key = &other}, &audit);
    assert_true(has(&audit, "wrong_log_key"));
    tacit_audit_free(&audit);
    export_done(&x);
    restored_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_restore_is_judged),
        cmocka_unit_test(test_the_first_name_stays_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
