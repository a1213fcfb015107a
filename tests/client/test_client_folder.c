/* A device's folder: configuration, account, reserves, adapters in force. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/activation.h"
#include "client/local_plan.h"
#include "client/reservation.h"
#include "client/round_training.h"
#include "common/digest.h"
#include "device_folder.h"
#include "engine/adapter.h"
#include "engine/training_checkpoint.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static tiny_model tiny;

static void make_device(fake_device *d, size_t records)
{
    fake_device_make(d, &tiny, records);
    fake_device_open(d, CLIENT_WORKS);
    OK(client_make_account(d->client, &d->err));
}

/* --- configuration --- */

static void replace_line(const fake_device *d, const char *key, const char *line)
{
    char command[512];
    snprintf(command, sizeof command, "sed -i 's|^ *%s:.*|%s|' %s/client.yaml", key, line, d->dir);
    assert_int_equal(system(command), 0);
}

static void the_written_configuration_has_the_defaults(void **state)
{
    fake_device d;
    client_config c;
    struct stat st;
    (void)state;
    fake_device_make(&d, &tiny, 0);
    OK(client_config_load(&c, d.dir, &d.err));
    assert_string_equal(c.model_text, tiny.text);
    assert_string_equal(c.data, d.data);
    assert_null(c.server);
    assert_true(c.policy.epsilon_cap == 8 && c.policy.delta == 1e-5);
    assert_int_equal(c.policy.unit, TACIT_UNIT_SUBJECT);
    assert_true(c.policy.minimum_noise_multiplier == 0.5);
    assert_int_equal(c.policy.minimum_cohort, 2);
    assert_int_equal(c.policy.minimum_quorum, 2);
    assert_int_equal(c.minimum_pad_seconds, 60);
    assert_int_equal(c.maximum_steps, 1000);
    assert_false(c.policy.allow_non_private);
    assert_int_equal(c.policy.devices_per_subject, 1);
    client_config_free(&c);
    char path[128];
    snprintf(path, sizeof path, "%s/client.yaml", d.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    fake_device_drop(&d);
}

static void wrong_configuration_is_named(void **state)
{
    static const struct {
        const char *key, *line, *words;
    } cases[] = {
        {"epsilon", "  epsilon: 8,5", "policy.epsilon"},
        {"epsilon", "  epsilon: 0", "policy.epsilon"},
        {"epsilon", "  epsilon: .inf", "policy.epsilon"},
        {"delta", "  delta: 1", "policy.delta"},
        {"unit", "  unit: patient", "policy.unit"},
        {"minimum_quorum", "  minimum_quorum: 010", "policy.minimum_quorum"},
        {"minimum_cohort", "  minimum_cohorts: 2", "minimum_cohorts"},
        {"minimum_pad_seconds", "  minimum_pad_seconds: -1", "policy.minimum_pad_seconds"},
        {"minimum_pad_seconds", "  minimum_pad_seconds: 1.5", "policy.minimum_pad_seconds"},
        {"minimum_pad_seconds", "  minimum_pad_seconds: 2592001", "policy.minimum_pad_seconds"},
        {"maximum_steps", "  maximum_steps: 0", "policy.maximum_steps"},
        {"maximum_steps", "  maximum_steps: 1000001", "policy.maximum_steps"},
        {"allow_non_private", "  allow_non_private: yes", "policy.allow_non_private"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_device d;
        client_config c;
        fake_device_make(&d, &tiny, 0);
        replace_line(&d, cases[i].key, cases[i].line);
        assert_int_equal(client_config_load(&c, d.dir, &d.err), TACIT_BAD_INPUT);
        if (!strstr(d.err.message, cases[i].words))
            fail_msg("'%s' not in: %s", cases[i].words, d.err.message);
        fake_device_drop(&d);
    }
}

static void the_server_is_written_once(void **state)
{
    fake_device d;
    client_config c;
    (void)state;
    fake_device_make(&d, &tiny, 0);
    OK(client_config_set_server(d.dir, "tls+tcp://a:1", "tls+tcp://a:2", &d.err));
    OK(client_config_set_server(d.dir, "tls+tcp://a:1", "tls+tcp://a:2", &d.err));
    assert_int_equal(client_config_set_server(d.dir, "tls+tcp://b:1", "tls+tcp://b:2", &d.err),
                     TACIT_CONFLICT);
    OK(client_config_load(&c, d.dir, &d.err));
    assert_string_equal(c.server, "tls+tcp://a:1");
    assert_string_equal(c.enrol, "tls+tcp://a:2");
    client_config_free(&c);
    fake_device_drop(&d);
}

static void one_process_works_on_a_folder(void **state)
{
    fake_device d;
    client *other;
    (void)state;
    fake_device_make(&d, &tiny, 0);
    fake_device_open(&d, CLIENT_WORKS);
    assert_int_equal(client_open(&other, d.dir, CLIENT_WORKS, &d.err), TACIT_CONFLICT);
    OK(client_open(&other, d.dir, CLIENT_READS, &d.err));
    client_close(other);
    fake_device_drop(&d);
}

/* True when the script succeeds in the device's folder. */
static bool shell(const fake_device *d, const char *script)
{
    char command[512];
    snprintf(command, sizeof command, "cd %s && %s", d->dir, script);
    return system(command) == 0;
}

/* Who only looks leaves the folder as it is: a new one, one whose database is gone or empty (its
 * account counts as lost, in the copy), a damaged one. */
static void looking_writes_nothing(void **state)
{
    fake_device d;
    tacit_account_status a;
    (void)state;
    fake_device_make(&d, &tiny, 0);
    fake_device_open(&d, CLIENT_READS);
    assert_null(d.client->account);
    fake_device_close(&d);
    assert_true(shell(&d, "test \"$(ls -A)\" = client.yaml"));
    fake_device_open(&d, CLIENT_WORKS);
    OK(client_make_account(d.client, &d.err));
    fake_device_close(&d);
    static const char *const spoils[] = {"true", "rm client.db", ": >client.db"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(shell(&d, spoils[i]));
        assert_true(shell(&d, "find . -type f -exec cksum {} + | sort >../before"));
        fake_device_open(&d, CLIENT_READS);
        OK(tacit_account_status_get(d.client->account, &a, &d.err));
        assert_int_equal(a.lost, i > 0);
        fake_device_close(&d);
        assert_true(shell(&d, "find . -type f -exec cksum {} + | sort | cmp - ../before"));
    }
    assert_true(shell(&d, "yes | head -c 8192 >client.db"));
    assert_int_equal(client_open(&d.client, d.dir, CLIENT_READS, &d.err), TACIT_BAD_INPUT);
    assert_non_null(strstr(d.err.message, "client.db"));
    fake_device_drop(&d);
}

/* --- plans of its own --- */

typedef struct made_plan {
    tacit_model *model;
    tacit_buffer plan, schedule;
    checked_plan checked;
} made_plan;

static uint32_t tree_separation; /* of the plans that are made; 0: no tree noise */

static void make_plan(fake_device *d, made_plan *p, double epsilon)
{
    static const char *const targets[] = {"attn_output"};
    local_plan_request request = {.epsilon = epsilon,
                                  .delta = 1e-5,
                                  .unit = TACIT_UNIT_SUBJECT,
                                  .separation = tree_separation,
                                  .q = 0.25,
                                  .clip_norm = 1,
                                  .divisor = 4,
                                  .steps = tree_separation ? 12 : 2,
                                  .unit_examples = 4,
                                  .max_tokens = 256,
                                  .optimizer = {.kind = TACIT_ADAM,
                                                .learning_rate = 0.01,
                                                .beta1 = 0.9,
                                                .beta2 = 0.99,
                                                .epsilon = 1e-8},
                                  .targets = targets,
                                  .n_targets = 1,
                                  .rank = 2,
                                  .alpha = 4};
    *p = (made_plan){.plan.cap = 1 << 20, .schedule.cap = 1 << 20};
    OK(client_load_model(d->client, &p->model, &d->err));
    OK(local_plan_make(&p->plan, &p->schedule, &request, &d->client->config.policy, p->model,
                       &d->err));
    OK(plan_open(&p->checked, (tacit_span){p->plan.data, p->plan.size},
                 (tacit_span){p->schedule.data, p->schedule.size}, &d->err));
}

static void drop_plan(made_plan *p)
{
    checked_plan_free(&p->checked);
    tacit_buffer_free(&p->plan);
    tacit_buffer_free(&p->schedule);
    tacit_model_free(p->model);
}

static tacit_status reserve(fake_device *d, made_plan *p, round_state *r)
{
    return reservation_make(d->client, &p->checked, (tacit_span){p->plan.data, p->plan.size},
                            (tacit_span){p->schedule.data, p->schedule.size}, true, r, &d->err);
}

static double spent(fake_device *d)
{
    tacit_account_status a;
    OK(tacit_account_status_get(d->client->account, &a, &d->err));
    return a.epsilon;
}

/* --- the account --- */

static void keys_without_an_account_have_no_budget(void **state)
{
    fake_device d;
    tacit_account_status a;
    char path[128];
    (void)state;
    make_device(&d, 0);
    fake_device_close(&d);
    snprintf(path, sizeof path, "%s/client.db", d.dir);
    assert_int_equal(unlink(path), 0);
    fake_device_open(&d, CLIENT_WORKS);
    OK(tacit_account_status_get(d.client->account, &a, &d.err));
    assert_true(a.lost);
    assert_true(a.remaining == 0);
    fake_device_drop(&d);
}

/* Damage inside the database: the loss is declared in the own chain, once. */
static void a_lost_account_is_declared_once(void **state)
{
    fake_device d;
    made_plan p;
    round_state r;
    tacit_account_status a;
    char command[256];
    (void)state;
    make_device(&d, 1);
    make_plan(&d, &p, 2);
    OK(reserve(&d, &p, &r));
    round_state_free(&r);
    OK(client_declare_lost(d.client, &d.err)); /* it is not lost: nothing happens */
    OK(tacit_account_status_get(d.client->account, &a, &d.err));
    assert_int_equal(a.next_sequence, 2);
    fake_device_close(&d);
    snprintf(command, sizeof command, "sqlite3 %s/client.db 'DELETE FROM account_reserve'", d.dir);
    assert_int_equal(system(command), 0);
    fake_device_open(&d, CLIENT_WORKS);
    d.client->enrolled = true;
    for (int i = 0; i < 2; i++) {
        OK(client_declare_lost(d.client, &d.err));
        OK(tacit_account_status_get(d.client->account, &a, &d.err));
        assert_true(a.lost && a.remaining == 0);
        assert_int_equal(a.next_sequence, 3);
    }
    drop_plan(&p);
    make_plan(&d, &p, 1);
    assert_int_equal(reserve(&d, &p, &r), TACIT_REFUSED);
    drop_plan(&p);
    fake_device_drop(&d);
}

static void counters_never_repeat(void **state)
{
    fake_device d;
    uint64_t counter, last = 0;
    (void)state;
    make_device(&d, 0);
    for (int i = 0; i < 6; i++) {
        OK(client_counter_next(d.client->db, &counter, &d.err));
        assert_true(counter > last);
        last = counter;
        fake_device_close(&d);
        fake_device_open(&d, CLIENT_WORKS);
    }
    fake_device_drop(&d);
}

/* --- reserving --- */

/* The noise that an epsilon gives costs at most it, and hardly less: b is an integer. */
static void an_epsilon_costs_itself(void **state)
{
    fake_device d;
    made_plan p;
    round_state r;
    (void)state;
    for (tree_separation = 0; tree_separation <= 12; tree_separation += 4) {
        make_device(&d, 2);
        make_plan(&d, &p, 3);
        OK(reserve(&d, &p, &r));
        assert_true(spent(&d) <= 3 && spent(&d) > 3 - 1e-3);
        assert_true(fake_device_has(&d, "rounds", ".jsonl"));
        round_state_free(&r);
        drop_plan(&p);
        fake_device_drop(&d);
    }
    tree_separation = 0;
}

/* Until it is refused, and then for ever: no small plan slips through an exhausted account. */
static void an_exhausted_budget_refuses_everything(void **state)
{
    fake_device d;
    made_plan p;
    round_state r;
    tacit_status status = TACIT_OK;
    int taken = 0;
    (void)state;
    make_device(&d, 0);
    while (taken < 100) {
        make_plan(&d, &p, 1.5);
        status = reserve(&d, &p, &r);
        drop_plan(&p);
        if (status != TACIT_OK)
            break;
        round_state_free(&r);
        taken++;
    }
    assert_int_equal(status, TACIT_REFUSED);
    assert_true(taken >= 2 && spent(&d) <= 8);
    double before = spent(&d);
    make_plan(&d, &p, 1.5);
    assert_int_equal(reserve(&d, &p, &r), TACIT_REFUSED);
    assert_true(spent(&d) == before);
    drop_plan(&p);
    fake_device_drop(&d);
}

static void limit_files(rlim_t size, struct rlimit *old)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, old), 0);
    limit = *old;
    limit.rlim_cur = size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* No byte can be written: neither to the snapshot nor, with empty data, to the database. */
static void a_full_disk_reserves_nothing(void **state)
{
    (void)state;
    for (size_t records = 0; records < 2; records++) {
        fake_device d;
        made_plan p;
        round_state r;
        struct rlimit old;
        make_device(&d, records);
        make_plan(&d, &p, 2);
        limit_files(1, &old);
        tacit_status status = reserve(&d, &p, &r);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, TACIT_IO);
        assert_true(strlen(d.err.message) > 0 && !strchr(d.err.message, '\n'));
        assert_true(spent(&d) == 0);
        assert_int_equal(round_state_open(d.client->db, true, &r, &d.err), TACIT_NOT_FOUND);
        assert_false(fake_device_has(&d, "rounds", ""));
        OK(reserve(&d, &p, &r)); /* with room again the same plan is taken, once */
        assert_true(spent(&d) <= 2 && spent(&d) > 1.9);
        round_state_free(&r);
        drop_plan(&p);
        fake_device_drop(&d);
    }
}

/* A second reserve of the open round changes nothing and leaves its files alone. */
static void a_round_is_reserved_once(void **state)
{
    fake_device d;
    made_plan p;
    round_state r, again;
    (void)state;
    make_device(&d, 2);
    make_plan(&d, &p, 2);
    OK(reserve(&d, &p, &r));
    double before = spent(&d);
    assert_int_equal(reserve(&d, &p, &again), TACIT_CONFLICT);
    assert_true(spent(&d) == before);
    assert_true(fake_device_has(&d, "rounds", ".jsonl"));
    round_state_free(&r);
    drop_plan(&p);
    fake_device_drop(&d);
}

/* Nothing is trained on a reserve that the log has not acknowledged. */
static void no_training_before_the_acknowledgement(void **state)
{
    fake_device d;
    made_plan p;
    round_state r;
    (void)state;
    make_device(&d, 2);
    make_plan(&d, &p, 2);
    OK(reserve(&d, &p, &r));
    assert_int_equal(round_train_and_seal(d.client, &r, &d.err), TACIT_INTEGRITY);
    assert_false(fake_device_has(&d, "rounds", ".ckpt"));
    assert_false(fake_device_has(&d, "rounds", ".sealed"));
    round_state_free(&r);
    drop_plan(&p);
    fake_device_drop(&d);
}

static void abandoning_gives_nothing_back(void **state)
{
    fake_device d;
    made_plan p;
    round_state r;
    (void)state;
    make_device(&d, 2);
    make_plan(&d, &p, 2);
    OK(reserve(&d, &p, &r));
    double before = spent(&d);
    OK(reservation_abandon(d.client, &r, "cancelled", &d.err));
    round_state_free(&r);
    assert_true(spent(&d) == before);
    assert_false(fake_device_has(&d, "rounds", ""));
    assert_int_equal(round_state_open(d.client->db, true, &r, &d.err), TACIT_NOT_FOUND);
    drop_plan(&p);
    fake_device_drop(&d);
}

/* What no open round owns goes; what one owns stays. */
static void strays_are_swept(void **state)
{
    fake_device d;
    made_plan p;
    round_state r;
    char path[CLIENT_PATH_MAX];
    static const char *const strays[] = {"00112233445566778899aabbccddeeff.jsonl", "x.ckpt"};
    (void)state;
    make_device(&d, 2);
    make_plan(&d, &p, 2);
    OK(reserve(&d, &p, &r));
    for (int i = 0; i < 2; i++) {
        OK(client_path(d.client, path, "rounds", strays[i], &d.err));
        OK(tacit_file_write(path, "data", 4, 0600, &d.err));
    }
    OK(reservation_sweep(d.client, &d.err));
    assert_int_equal(access(path, F_OK), -1);
    OK(round_file(d.client, &r, "jsonl", path, &d.err));
    assert_int_equal(access(path, F_OK), 0);
    OK(reservation_abandon(d.client, &r, "cancelled", &d.err));
    OK(tacit_file_write(path, "data", 4, 0600, &d.err));
    OK(reservation_sweep(d.client, &d.err));
    assert_int_equal(access(path, F_OK), -1);
    round_state_free(&r);
    drop_plan(&p);
    fake_device_drop(&d);
}

/* --- adapters in force --- */

static active_adapter write_adapter_of(fake_device *d, uint64_t version, float value,
                                       uint64_t canaries)
{
    tacit_trainable_spec spec = fake_spec();
    tacit_adapter_info info = {.version = version, .has_base_digest = true, .canaries = canaries};
    active_adapter a = {.exists = true, .version = version};
    tacit_layout layout;
    char path[128], final[CLIENT_PATH_MAX];
    OK(tacit_layout_make(&layout, tiny.model, &spec, &d->err));
    float *values = malloc(layout.values * sizeof *values);
    for (size_t i = 0; i < layout.values; i++)
        values[i] = value;
    memcpy(info.base_digest, tacit_model_base_digest(tiny.model), sizeof info.base_digest);
    snprintf(path, sizeof path, "%s/new.gguf", d->folder);
    OK(tacit_adapter_save(path, tiny.model, &spec, values, &info, &d->err));
    OK(tacit_digest_file(a.digest, path, &d->err));
    OK(client_hex_path(d->client, final, "adapters", a.digest, sizeof a.digest, "gguf", &d->err));
    assert_int_equal(rename(path, final), 0);
    free(values);
    tacit_layout_free(&layout);
    return a;
}

static active_adapter write_adapter(fake_device *d, uint64_t version, float value)
{
    return write_adapter_of(d, version, value, 0);
}

static void expect_active(fake_device *d, uint64_t version, uint64_t before)
{
    active_adapter current, previous;
    OK(active_adapter_read(d->client, &current, &previous, &d->err));
    assert_int_equal(current.exists ? current.version : 0, version);
    assert_int_equal(previous.exists ? previous.version : 0, before);
}

static bool adapter_is_there(fake_device *d, const active_adapter *a)
{
    char path[CLIENT_PATH_MAX];
    OK(client_hex_path(d->client, path, "adapters", a->digest, sizeof a->digest, "gguf", &d->err));
    return access(path, F_OK) == 0;
}

static void the_previous_adapter_is_kept(void **state)
{
    fake_device d;
    active_adapter a[3];
    (void)state;
    make_device(&d, 0);
    expect_active(&d, 0, 0);
    for (uint64_t i = 0; i < 3; i++) {
        a[i] = write_adapter(&d, i + 1, 0.01f * (float)(i + 1));
        OK(active_adapter_switch(d.client, &a[i], tiny.model, &d.err));
        expect_active(&d, i + 1, i);
    }
    assert_false(adapter_is_there(&d, &a[0]));
    assert_true(adapter_is_there(&d, &a[1]));
    assert_true(adapter_is_there(&d, &a[2]));
    fake_device_drop(&d);
}

static void spoil_file(fake_device *d, const active_adapter *a, long keep)
{
    char path[CLIENT_PATH_MAX];
    OK(client_hex_path(d->client, path, "adapters", a->digest, sizeof a->digest, "gguf", &d->err));
    assert_int_equal(truncate(path, keep), 0);
}

static void unusable_adapters_change_nothing(void **state)
{
    fake_device d;
    (void)state;
    make_device(&d, 0);
    active_adapter good = write_adapter(&d, 1, 0.01f);
    OK(active_adapter_switch(d.client, &good, tiny.model, &d.err));
    active_adapter torn = write_adapter(&d, 2, 0.02f);
    spoil_file(&d, &torn, 300);
    assert_int_not_equal(active_adapter_switch(d.client, &torn, tiny.model, &d.err), TACIT_OK);
    active_adapter misnamed = write_adapter(&d, 2, 0.03f);
    misnamed.version = 3;
    assert_int_equal(active_adapter_switch(d.client, &misnamed, tiny.model, &d.err),
                     TACIT_INTEGRITY);
    active_adapter audit = write_adapter_of(&d, 2, 0.04f, 100);
    assert_int_equal(active_adapter_switch(d.client, &audit, tiny.model, &d.err), TACIT_REFUSED);
    assert_non_null(strstr(d.err.message, "canaries"));
    active_adapter missing = {.exists = true, .version = 4};
    assert_int_not_equal(active_adapter_switch(d.client, &missing, tiny.model, &d.err), TACIT_OK);
    expect_active(&d, 1, 0);
    fake_device_drop(&d);
}

static void a_damaged_pointer_is_told(void **state)
{
    static const char *const texts[] = {"", "{", "[]", "{\"version\": 1}",
                                        "{\"version\": 1, \"lineage\": \"zz\", \"digest\": \"\"}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fake_device d;
        active_adapter current, previous;
        char path[CLIENT_PATH_MAX];
        make_device(&d, 0);
        OK(client_path(d.client, path, "adapters", "active.json", &d.err));
        OK(tacit_file_write(path, texts[i], strlen(texts[i]), 0600, &d.err));
        assert_int_equal(active_adapter_read(d.client, &current, &previous, &d.err),
                         TACIT_BAD_INPUT);
        assert_non_null(strstr(d.err.message, "active.json"));
        fake_device_drop(&d);
    }
}

static int set_up(void **state)
{
    (void)state;
    tiny = tiny_load(false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_free(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_written_configuration_has_the_defaults),
        cmocka_unit_test(wrong_configuration_is_named),
        cmocka_unit_test(the_server_is_written_once),
        cmocka_unit_test(one_process_works_on_a_folder),
        cmocka_unit_test(looking_writes_nothing),
        cmocka_unit_test(keys_without_an_account_have_no_budget),
        cmocka_unit_test(a_lost_account_is_declared_once),
        cmocka_unit_test(counters_never_repeat),
        cmocka_unit_test(an_epsilon_costs_itself),
        cmocka_unit_test(an_exhausted_budget_refuses_everything),
        cmocka_unit_test(a_full_disk_reserves_nothing),
        cmocka_unit_test(a_round_is_reserved_once),
        cmocka_unit_test(no_training_before_the_acknowledgement),
        cmocka_unit_test(abandoning_gives_nothing_back),
        cmocka_unit_test(strays_are_swept),
        cmocka_unit_test(the_previous_adapter_is_kept),
        cmocka_unit_test(unusable_adapters_change_nothing),
        cmocka_unit_test(a_damaged_pointer_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
