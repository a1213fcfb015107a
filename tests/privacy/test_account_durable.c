/* A device's account in a process that is killed, on a disk that is full, and in many processes at
 * one time: what was returned is there, what was not never happened, and the cap holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "account_fixture.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that is killed right after its first reserve, before or after it commits. */
static void kill_after_reserve(fixture *f, bool committed)
{
    int code;
    start(f);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tacit_database *db;
        tacit_account *account;
        tacit_reservation r;
        tacit_error err;
        tacit_reserve_request request = request_of(&f->w, 0);
        if (tacit_database_open(&db, f->path, &err) == TACIT_OK &&
            tacit_account_open(&account, db, f->w.device[0].id, &err) == TACIT_OK &&
            (committed || tacit_database_begin(db, &err) == TACIT_OK) &&
            tacit_account_reserve(account, &request, &r, &err) == TACIT_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
}

static void test_an_uncommitted_reserve_never_happened(void **state)
{
    fixture *f = *state;
    kill_after_reserve(f, false);
    assert_true(status_of(f).epsilon == 0 && !status_of(f).lost);
}

static void test_a_returned_reserve_survives_a_kill(void **state)
{
    fixture *f = *state;
    kill_after_reserve(f, true);
    assert_true(fabs(status_of(f).epsilon - alone(10)) < 1e-6);
}

static void test_a_full_disk_reserves_nothing(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    char dir[96], path[160];
    snprintf(dir, sizeof dir, "%s/small", f->dir);
    snprintf(path, sizeof path, "%s/client.db", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    if (geteuid() != 0 || mount("tacit-test", dir, "tmpfs", 0, "size=1m") != 0)
        skip();
    tacit_database_close(f->db);
    OK(tacit_database_open(&f->db, path, &f->err));
    start(f);
    char fill[160];
    snprintf(fill, sizeof fill, "%s/fill", dir);
    FILE *file = fopen(fill, "w");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    char block[4096] = {1};
    while (fwrite(block, 1, sizeof block, file) == sizeof block)
        ;
    fclose(file);
    tacit_status status = reserve(f, 0, &r);
    tacit_error full = f->err;
    assert_int_equal(unlink(fill), 0);
    bool nothing = status_of(f).epsilon == 0 && status_of(f).next_sequence == 1;
    tacit_status later = reserve(f, 0, &r);
    tacit_reservation_free(&r);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(status, TACIT_IO);
    assert_non_null(strstr(full.message, "free space"));
    assert_true(nothing);
    assert_int_equal(later, TACIT_OK);
}

/* Each of six processes has a lineage of its own; the cap holds only some of them. */
enum { RACERS = 6 };

static void race(fixture *f, int racer, int start_pipe)
{
    tacit_database *db;
    tacit_account *account;
    tacit_reservation r;
    tacit_error err;
    char go;
    world_next_lineage(&f->w, (uint8_t)(0x80 + racer), (uint8_t)(16 * racer));
    tacit_reserve_request request = request_of(&f->w, 0);
    if (tacit_database_open(&db, f->path, &err) != TACIT_OK ||
        tacit_account_open(&account, db, f->w.device[0].id, &err) != TACIT_OK ||
        read(start_pipe, &go, 1) != 0)
        _exit(9);
    tacit_status status = tacit_account_reserve(account, &request, &r, &err);
    _exit(status == TACIT_OK ? 0 : status == TACIT_REFUSED ? 4 : 9);
}

static void test_processes_never_exceed_the_cap_together(void **state)
{
    fixture *f = *state;
    int barrier[2], won = 0, refused = 0;
    double one = alone(30);
    f->w.policy.epsilon_cap = 3 * one; /* sub-caps alone allow three schedules */
    start(f);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    assert_int_equal(pipe(barrier), 0);
    for (int i = 0; i < RACERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(barrier[1]);
            race(f, i, barrier[0]);
        }
    }
    close(barrier[1]);
    close(barrier[0]);
    for (int i = 0; i < RACERS; i++) {
        int code;
        assert_true(wait(&code) > 0);
        assert_true(WIFEXITED(code));
        won += WEXITSTATUS(code) == 0;
        refused += WEXITSTATUS(code) == 4;
    }
    assert_int_equal(won + refused, RACERS);
    assert_in_range(won, 2, 3);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    tacit_account_status s = status_of(f);
    assert_false(s.lost);
    assert_int_equal(s.reserves, won);
    assert_true(s.epsilon <= s.policy.epsilon_cap);
    assert_true(fabs(s.epsilon - at_fixed_order(10 * (unsigned)won, 3 * one)) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_an_uncommitted_reserve_never_happened),
        WITH(test_a_returned_reserve_survives_a_kill),
        WITH(test_a_full_disk_reserves_nothing),
        WITH(test_processes_never_exceed_the_cap_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
