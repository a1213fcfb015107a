/* A device's account in a database of its own, and what the world's schedule costs on it. Each test
 * program includes it once, after cmocka.h. */
#ifndef TACIT_TESTS_ACCOUNT_FIXTURE_H
#define TACIT_TESTS_ACCOUNT_FIXTURE_H

#include "common/database.h"
#include "privacy/account.h"
#include "world.h"

typedef struct fixture {
    world w;
    char dir[64], path[128];
    tacit_database *db;
    tacit_account *account;
    tacit_error err;
} fixture;

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    world_init(&f->w);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-account-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/client.db", f->dir);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
    free(f);
    return 0;
}

static inline void start(fixture *f)
{
    world_plan_all(&f->w);
    OK(tacit_account_create(f->db, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
}

static inline void reopen(fixture *f)
{
    tacit_account_close(f->account);
    f->account = NULL;
    tacit_database_close(f->db);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
}

static inline tacit_reserve_request request_of(world *w, int round)
{
    return (tacit_reserve_request){.device = w->device[0].name,
                                   .plan = {w->plan[round], w->plan_size[round]},
                                   .schedule = {w->schedule, w->schedule_size}};
}

static inline tacit_status reserve(fixture *f, int round, tacit_reservation *out)
{
    tacit_reserve_request request = request_of(&f->w, round);
    return tacit_account_reserve(f->account, &request, out, &f->err);
}

static inline tacit_account_status status_of(fixture *f)
{
    tacit_account_status s;
    OK(tacit_account_status_get(f->account, &s, &f->err));
    return s;
}

static inline tacit_event runs_of(unsigned runs)
{
    return (tacit_event){TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), runs};
}

/* `runs` of the world's event as one schedule. */
static inline double alone(unsigned runs)
{
    tacit_error err;
    tacit_budget b;
    tacit_event event = runs_of(runs);
    tacit_budget_open(&b, 3, 1e-5);
    OK(tacit_budget_add(&b, &event, 1, true, &err));
    double epsilon = budget_epsilon(&b);
    assert_true(is_cost_of(epsilon, event, 1e-5));
    return epsilon;
}

/* The same at the order that an account under `cap` is read at from its second schedule on. */
static inline double at_fixed_order(unsigned runs, double cap)
{
    tacit_error err;
    tacit_rdp rdp = {0};
    tacit_event event = runs_of(runs);
    OK(tacit_rdp_add(&rdp, &event, TACIT_RDP_TRUE, &err));
    return tacit_rdp_epsilon_at(&rdp, tacit_rdp_filter_order(cap, 1e-5), 1e-5);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
