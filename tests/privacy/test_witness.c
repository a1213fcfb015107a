/* A witness between two views of a log; what it means in a policy; what the auditor makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "common/file.h"
#include "log_edits.h"
#include "privacy/witness.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    world w;
    char dir[64], state[96], out[96];
    tacit_error err;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-witness-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->state, sizeof f->state, "%s/witness", f->dir);
    snprintf(f->out, sizeof f->out, "%s/export", f->dir);
    world_init(&f->w);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    world_free(&f->w);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static void write_export(fixture *f, world *w, size_t count)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_note_key key = world_log_key(w);
    tacit_export_writer *writer;
    world_checkpoint(w, count, note);
    OK(tacit_export_begin(&writer, f->out, &f->err));
    for (size_t i = 0; i < count; i++)
        OK(tacit_export_add(writer, w->entry[i].bytes, w->entry[i].size, &f->err));
    OK(tacit_export_publish(writer, note, &key, NULL, &f->err));
    tacit_export_close(writer);
}

/* One visit of the witness: opened, asked, closed. */
static tacit_status visit(fixture *f, const tacit_note_key *log_key,
                          char note[TACIT_CHECKPOINT_MAX], tacit_note_key *key)
{
    tacit_export log;
    tacit_witness *w;
    OK(tacit_witness_open(&w, f->state, &f->err));
    OK(tacit_export_read(&log, f->out, &f->err));
    *key = *tacit_witness_key(w);
    tacit_status status = tacit_witness_cosign(w, &log, log_key, note, &f->err);
    tacit_export_free(&log);
    tacit_witness_close(w);
    return status;
}

static tacit_status ask(fixture *f, world *w, size_t count, const tacit_note_key *log_key)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_note_key witness, log = world_log_key(w);
    tacit_checkpoint c;
    write_export(f, w, count);
    tacit_status status = visit(f, log_key, note, &witness);
    if (status != TACIT_OK)
        return status;
    OK(tacit_checkpoint_verify(&c, note, strlen(note), &log, &f->err));
    OK(tacit_checkpoint_cosigned(note, strlen(note), &witness, NULL, &f->err));
    assert_int_equal(c.size, count);
    return status;
}

static bool dropped(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    return !AT(UPDATE, 1, 2);
}

static void test_a_witness_cosigns_one_log_only(void **state)
{
    fixture *f = *state;
    world fork;
    world_plan_all(&f->w);
    world_log(&f->w);
    tacit_note_key log = world_log_key(&f->w);
    OK(tacit_witness_create(f->state, "witness.example/1", &f->err));
    assert_int_equal(tacit_witness_create(f->state, "other", &f->err), TACIT_CONFLICT);
    assert_int_equal(ask(f, &f->w, 20, NULL), TACIT_USAGE); /* whose log is it? */
    OK(ask(f, &f->w, 20, &log));
    OK(ask(f, &f->w, 20, NULL));
    OK(ask(f, &f->w, 33, NULL));
    assert_int_equal(ask(f, &f->w, 20, NULL), TACIT_INTEGRITY); /* older */
    OK(ask(f, &f->w, 33, &log));

    /* Another history after entry 23, under the same keys; it is longer than what was cosigned. */
    world_init(&fork);
    tacit_identity *kept = fork.log;
    fork.log = f->w.log;
    fork.hook = dropped;
    world_plan_all(&fork);
    world_log(&fork);
    assert_int_equal(ask(f, &fork, fork.count, NULL), TACIT_INTEGRITY);
    assert_int_equal(ask(f, &fork, 33, NULL), TACIT_INTEGRITY);
    fork.log = kept;
    world_free(&fork);
    OK(ask(f, &f->w, f->w.count, NULL)); /* and goes on with the one that it knows */
}

/* A restored log is another one: it is never taken for the one that was cosigned, and needs to be
 * named like any new log; what was cosigned of the old one stays. */
static void test_a_restored_log_is_a_new_one(void **state)
{
    fixture *f = *state;
    world_plan_all(&f->w);
    world_log(&f->w);
    tacit_note_key log = world_log_key(&f->w);
    OK(tacit_witness_create(f->state, "w", &f->err));
    OK(ask(f, &f->w, 20, &log));
    world_restored(&f->w, f->w.count, NULL, f->w.operator_id, NULL);
    tacit_note_key restored = world_log_key(&f->w);
    assert_int_equal(ask(f, &f->w, f->w.count, NULL), TACIT_USAGE);
    assert_non_null(strstr(f->err.message, WORLD_ORIGIN "/2"));
    assert_int_equal(ask(f, &f->w, f->w.count, &log), TACIT_INTEGRITY); /* not this origin's key */
    OK(ask(f, &f->w, f->w.count, &restored));
    assert_int_equal(ask(f, &f->w, 20, NULL), TACIT_INTEGRITY); /* older, by that name */
    memcpy(f->w.origin, log.name, sizeof f->w.origin);
    OK(ask(f, &f->w, 20, NULL));
}

static void test_a_witness_reads_what_it_cosigns(void **state)
{
    fixture *f = *state;
    char note[TACIT_CHECKPOINT_MAX], path[160];
    tacit_note_key witness, other;
    world_plan_all(&f->w);
    world_log(&f->w);
    tacit_note_key log = world_log_key(&f->w);
    OK(tacit_witness_create(f->state, "w", &f->err));
    OK(tacit_note_key_make(&other, WORLD_ORIGIN, tacit_identity_sign_key(f->w.stranger), &f->err));
    assert_int_equal(ask(f, &f->w, 20, &other), TACIT_INTEGRITY);
    /* A checkpoint of more entries than there are. */
    write_export(f, &f->w, 20);
    world_checkpoint(&f->w, 30, note);
    snprintf(path, sizeof path, "%s/checkpoint", f->out);
    OK(tacit_file_write(path, note, strlen(note), 0644, &f->err));
    assert_int_equal(visit(f, &log, note, &witness), TACIT_INTEGRITY);
    /* Nothing of this was remembered. */
    OK(ask(f, &f->w, 5, &log));
    assert_int_equal(ask(f, &f->w, 20, &other), TACIT_INTEGRITY);
    OK(ask(f, &f->w, 20, NULL));
}

static void test_a_witness_is_asked_by_one_at_a_time(void **state)
{
    fixture *f = *state;
    tacit_witness *w, *second;
    assert_int_equal(tacit_witness_open(&w, f->state, &f->err), TACIT_NOT_FOUND);
    assert_int_equal(tacit_witness_create(f->state, "no spaces", &f->err), TACIT_BAD_INPUT);
    OK(tacit_witness_create(f->state, "w", &f->err));
    OK(tacit_witness_open(&w, f->state, &f->err));
    assert_int_equal(tacit_witness_open(&second, f->state, &f->err), TACIT_AGAIN);
    tacit_witness_close(w);
    OK(tacit_witness_open(&w, f->state, &f->err));
    tacit_witness_close(w);
}

/* --- policies --- */

static void test_a_policy_names_a_witness(void **state)
{
    fixture *f = *state;
    tacit_note_key one, two;
    tacit_policy none = f->w.policy, with = none, other = none, back;
    uint8_t *bytes;
    size_t size;
    OK(tacit_note_key_make(&one, "w", tacit_identity_sign_key(f->w.stranger), &f->err));
    OK(tacit_note_key_make(&two, "w", tacit_identity_sign_key(f->w.log), &f->err));
    tacit_witness_key_write(&one, with.witness);
    tacit_witness_key_write(&two, other.witness);
    OK(tacit_policy_pack(&with, &bytes, &size, &f->err));
    OK(tacit_policy_unpack(&back, bytes, size, &f->err));
    assert_string_equal(back.witness, with.witness);
    free(bytes);
    assert_false(tacit_policy_weakens(&none, &with));
    assert_true(tacit_policy_weakens(&with, &none));
    assert_true(tacit_policy_weakens(&with, &other));
    assert_false(tacit_policy_weakens(&with, &with));
    tacit_note_key_write(&one, with.witness); /* a log's key is no witness */
    assert_int_equal(tacit_policy_pack(&with, &bytes, &size, &f->err), TACIT_BAD_INPUT);
}

/* --- the auditor --- */

typedef struct view {
    exported x;
    tacit_identity *id;
    tacit_note_key witness;
    char note[TACIT_CHECKPOINT_MAX];
} view;

static void make_view(fixture *f, view *v)
{
    OK(tacit_identity_ephemeral(&v->id, &f->err));
    OK(tacit_note_key_make(&v->witness, "w", tacit_identity_sign_key(v->id), &f->err));
    tacit_witness_key_write(&v->witness, f->w.policy.witness);
    world_plan_all(&f->w);
    world_log(&f->w);
    export_of(&f->w, &v->x);
}

static void cosign_view(fixture *f, view *v, size_t size)
{
    world_checkpoint(&f->w, size, v->note);
    OK(tacit_checkpoint_cosign(v->note, &v->witness, v->id, 5, &f->err));
    v->x.e.cosigned = v->note;
    v->x.e.cosigned_size = strlen(v->note);
}

static void expect(const view *v, const tacit_audit_options *options, const char *kind,
                   uint64_t witnessed)
{
    tacit_audit audit;
    run(&v->x, options, &audit);
    if (kind ? !has(&audit, kind) : audit.violation_count != 0)
        print_all(kind ? kind : "clean", &audit);
    assert_true(kind ? has(&audit, kind) : audit.violation_count == 0);
    assert_int_equal(audit.witnessed, witnessed);
    assert_string_equal(audit.witness, witnessed ? "w" : "");
    tacit_audit_free(&audit);
}

static void test_the_auditor_holds_devices_to_their_witness(void **state)
{
    fixture *f = *state;
    view v = {.id = NULL};
    tacit_note_key other;
    make_view(f, &v);
    size_t last_plan = f->w.count - 13; /* a round's entries: its plan is the first */
    expect(&v, NULL, "unwitnessed_plan", 0);
    cosign_view(f, &v, last_plan);
    expect(&v, NULL, "unwitnessed_plan", last_plan);
    cosign_view(f, &v, last_plan + 1);
    expect(&v, NULL, NULL, last_plan + 1);
    const tacit_audit_options named = {.witness = &v.witness};
    expect(&v, &named, NULL, last_plan + 1);
    OK(tacit_note_key_make(&other, "w", tacit_identity_sign_key(f->w.stranger), &f->err));
    const tacit_audit_options strange = {.witness = &other};
    expect(&v, &strange, "bad_cosignature", last_plan + 1);

    /* By somebody else; of another tree; of a larger one; not the log's. */
    world_checkpoint(&f->w, last_plan + 1, v.note);
    OK(tacit_checkpoint_cosign(v.note, &other, f->w.stranger, 5, &f->err));
    v.x.e.cosigned_size = strlen(v.note);
    expect(&v, NULL, "unwitnessed_plan", 0);
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = last_plan + 1, .root = {7}};
    OK(tacit_checkpoint_sign(&c, f->w.log, v.note, &f->err));
    OK(tacit_checkpoint_cosign(v.note, &v.witness, v.id, 5, &f->err));
    v.x.e.cosigned_size = strlen(v.note);
    expect(&v, NULL, "split_view", 0);
    c.size = f->w.count + 1;
    OK(tacit_checkpoint_sign(&c, f->w.log, v.note, &f->err));
    OK(tacit_checkpoint_cosign(v.note, &v.witness, v.id, 5, &f->err));
    v.x.e.cosigned_size = strlen(v.note);
    expect(&v, NULL, "incomplete_export", 0);
    cosign_view(f, &v, f->w.count);
    OK(tacit_checkpoint_sign(&(tacit_checkpoint){.origin = WORLD_ORIGIN, .size = 3}, f->w.stranger,
                             v.note, &f->err));
    v.x.e.cosigned_size = strlen(v.note);
    expect(&v, NULL, "bad_cosignature", 0);
    tacit_identity_free(v.id);
    export_done(&v.x);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_a_witness_cosigns_one_log_only),
        WITH(test_a_restored_log_is_a_new_one),
        WITH(test_a_witness_reads_what_it_cosigns),
        WITH(test_a_witness_is_asked_by_one_at_a_time),
        WITH(test_a_policy_names_a_witness),
        WITH(test_the_auditor_holds_devices_to_their_witness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
