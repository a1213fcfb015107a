#include "fault_driver.h"

#include "fault_folder.h"

#include "common/bytes.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATH_BYTES = 512, MOST_SHOWN = 10, MOST_CALLS = 20000 };

/* Kinds of fault_calls.c. The strides are those of a test run of a script that is not sparse: at
 * every call a kill, at some of them torn writes, power cuts and errors. */
static const struct {
    const char *word;
    bool kills;
    unsigned stride;
} kinds[] = {
    {"kill", true, 1},    {"torn", true, 4},   {"power", true, 4},   {"names", true, 4},
    {"short", false, 12}, {"full", false, 12}, {"enospc", false, 9}, {"enospc+", false, 12},
    {"eio", false, 6},    {"eio+", false, 12}, {"erofs", false, 12}, {"erofs+", false, 12},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* --- the child's side --- */

static tacit_buffer *heard; /* of a run in this process; NULL in a child, which tells its output */

void fault_tell(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line - 1)
        abort();
    line[n++] = '\n';
    if (heard && tacit_buffer_append(heard, line, (size_t)n) != TACIT_OK)
        abort();
    if (!heard && write(STDOUT_FILENO, line, (size_t)n) != n)
        abort();
}

bool fault_try_again(fault_run *run, const tacit_error *err)
{
    if (!run->child || run->failed)
        return false;
    run->failed = true;
    dprintf(STDERR_FILENO, "%s\n", err->message);
    return true;
}

static int child_main(const fault_script *script, const char *dir, const char *keys)
{
    tacit_error err = {0};
    fault_run run = {.dir = dir, .keys = keys, .child = true};
    tacit_status status = script->run(&run, &err);
    if (status != TACIT_OK)
        dprintf(STDERR_FILENO, "%s\n", err.message);
    return tacit_exit_code(status);
}

/* --- one child --- */

typedef struct driver {
    const fault_script *script;
    const char *program;
    char work[PATH_BYTES], dir[PATH_BYTES], keys[PATH_BYTES], log[PATH_BYTES];
    tacit_buffer told; /* by the undisturbed run */
    char *folder;      /* what it left */
    unsigned calls, points[KINDS], failures;
    unsigned stride; /* 0: each kind's own */
    bool keep, twice;
} driver;

typedef struct outcome {
    int status; /* of waitpid */
    tacit_buffer out, errors;
    char where[PATH_BYTES]; /* the call that failed */
} outcome;

static bool drain(int fd, tacit_buffer *into)
{
    char block[4096];
    ssize_t n = read(fd, block, sizeof block);
    if (n > 0 && tacit_buffer_append(into, block, (size_t)n) != TACIT_OK)
        abort();
    return n > 0;
}

/* Reads both pipes to their ends; afterwards both buffers are texts. One that says nothing for a
 * minute hangs and is ended, which no kind of fault expects. */
static void listen_to(pid_t child, int out, int errors, outcome *o)
{
    struct pollfd of[2] = {{out, POLLIN, 0}, {errors, POLLIN, 0}};
    while (of[0].fd >= 0 || of[1].fd >= 0) {
        int ready = poll(of, 2, 60000);
        if (ready < 0 && errno != EINTR)
            abort();
        if (ready == 0)
            kill(child, SIGTERM);
        if (of[0].fd >= 0 && of[0].revents && !drain(out, &o->out))
            of[0].fd = -1;
        if (of[1].fd >= 0 && of[1].revents && !drain(errors, &o->errors))
            of[1].fd = -1;
    }
    if (tacit_buffer_append(&o->out, "", 1) != TACIT_OK ||
        tacit_buffer_append(&o->errors, "", 1) != TACIT_OK)
        abort();
}

static void set_environment(const driver *d, const char *kind, unsigned at)
{
    char number[16];
    snprintf(number, sizeof number, "%u", at);
    setenv("LD_PRELOAD", TACIT_FAULT_LIBRARY, 1);
    setenv("TACIT_FAULT_DIR", d->dir, 1);
    setenv("TACIT_FAULT_LOG", d->log, 1);
    setenv("TACIT_FAULT_KIND", kind, 1);
    setenv("TACIT_FAULT_AT", number, 1);
}

static void run_child(driver *d, const char *kind, unsigned at, outcome *o)
{
    int out[2], errors[2];
    pid_t child;
    char *words[] = {(char *)(uintptr_t)d->program, (char *)(uintptr_t) "--child", d->dir, d->keys,
                     NULL};
    posix_spawn_file_actions_t actions;
    *o = (outcome){0};
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
        abort();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
    set_environment(d, kind, at);
    if (posix_spawn(&child, d->program, &actions, NULL, words, environ) != 0)
        abort();
    unsetenv("LD_PRELOAD");
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(errors[1]);
    listen_to(child, out[0], errors[0], o);
    close(out[0]);
    close(errors[0]);
    if (waitpid(child, &o->status, 0) != child)
        abort();
}

static void outcome_free(outcome *o)
{
    tacit_buffer_free(&o->out);
    tacit_buffer_free(&o->errors);
}

/* --- what must hold --- */

static tacit_status own_run(driver *d, tacit_buffer *told, tacit_error *err)
{
    fault_run run = {.dir = d->dir, .keys = d->keys};
    heard = told;
    tacit_status status = d->script->run(&run, err);
    heard = NULL;
    if (status == TACIT_OK)
        status = tacit_buffer_append(told, "", 1);
    return status;
}

static bool has_told(const driver *d, const outcome *o)
{
    const char *all = (const char *)d->told.data, *some = (const char *)o->out.data;
    return strncmp(all, some, strlen(some)) == 0;
}

/* An error is one line that names a file of the folder and says what to do next. */
static bool errors_are_good(const driver *d, const outcome *o, bool gone, tacit_error *err)
{
    const char *text = (const char *)o->errors.data;
    for (const char *line = text, *end; *line; line = end + 1) {
        char one[2 * TACIT_ERROR_MAX];
        end = strchrnul(line, '\n');
        snprintf(one, sizeof one, "%.*s", (int)(end - line), line);
        if (!strstr(one, d->dir) || !strstr(one, "; "))
            tacit_fail(err, TACIT_FAILED, "an error names no file or no next step: %s", one);
        if (!strstr(one, d->dir) || !strstr(one, "; "))
            return false;
        if (!*end)
            break;
    }
    if (gone && !*text)
        tacit_fail(err, TACIT_FAILED, "it failed without a word");
    return !gone || *text;
}

static bool ended_rightly(const driver *d, const outcome *o, size_t kind, tacit_error *err)
{
    bool lives = WIFEXITED(o->status), well = lives && WEXITSTATUS(o->status) == 0;
    if (kinds[kind].kills) {
        if (WIFSIGNALED(o->status) && WTERMSIG(o->status) == SIGKILL)
            return true;
        tacit_fail(err, TACIT_FAILED, "expected a kill, found wait status %d: %s", o->status,
                   o->errors.data);
        return false;
    }
    if (!well && !(lives && WEXITSTATUS(o->status) == 1)) {
        tacit_fail(err, TACIT_FAILED, "expected exit 0 or 1, found wait status %d: %s", o->status,
                   o->errors.data);
        return false;
    }
    bool lasting = strchr(kinds[kind].word, '+') || strcmp(kinds[kind].word, "full") == 0;
    if (!well && !lasting) {
        tacit_fail(err, TACIT_FAILED, "the fault was over, yet it did not go on: %s",
                   o->errors.data);
        return false;
    }
    return errors_are_good(d, o, !well, err);
}

static tacit_status compare(driver *d, tacit_error *err)
{
    char *found;
    tacit_status status = fault_folder_text(&found, d->dir, err);
    if (status != TACIT_OK)
        return status;
    if (strcmp(found, d->folder) != 0)
        status = fault_folder_differ(d->folder, found, err);
    free(found);
    return status;
}

static tacit_status judge(driver *d, size_t kind, const outcome *o, tacit_error *err)
{
    tacit_buffer told = {0};
    fault_run after = {.dir = d->dir, .keys = d->keys};
    tacit_status status;
    if (!ended_rightly(d, o, kind, err))
        return TACIT_FAILED;
    if (!has_told(d, o))
        return tacit_fail(err, TACIT_FAILED, "it told what the undisturbed run did not: %s",
                          o->out.data);
    TACIT_TRY(d->script->holds(&after, (const char *)o->out.data, err), done);
    TACIT_TRY(own_run(d, &told, err), done);
    if (strcmp((char *)told.data, (char *)d->told.data) != 0)
        status = tacit_fail(err, TACIT_FAILED, "finished, it told another result: %s", told.data);
    if (status == TACIT_OK)
        status = compare(d, err);
done:
    tacit_buffer_free(&told);
    return status;
}

/* --- all of them --- */

static void fresh_folder(const driver *d)
{
    tacit_error err;
    fault_folder_remove(d->dir);
    if (tacit_file_make_dir(d->dir, 0700, &err) != TACIT_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
}

static void read_log(const driver *d, char *out, size_t room)
{
    uint8_t *text;
    size_t size;
    tacit_error err;
    if (tacit_file_read(d->log, 1 << 24, &text, &size, &err) != TACIT_OK) {
        snprintf(out, room, "%s", err.message);
        return;
    }
    snprintf(out, room, "%s", (char *)text);
    out[strcspn(out, "\n")] = '\0';
    free(text);
}

/* What follows a kill is killed as well, somewhere near its beginning. */
static bool second_fault(driver *d, size_t kind, unsigned at, tacit_error *err)
{
    outcome o;
    run_child(d, kinds[kind].word, 1 + at * 31 % 61, &o);
    bool well = has_told(d, &o);
    if (!well)
        tacit_fail(err, TACIT_FAILED, "at the second kill it had told: %s", o.out.data);
    outcome_free(&o);
    return well;
}

static void try_point(driver *d, size_t kind, unsigned at)
{
    outcome o;
    tacit_error err = {0};
    fresh_folder(d);
    run_child(d, kinds[kind].word, at, &o);
    d->points[kind]++;
    if ((d->twice && !second_fault(d, kind, at, &err)) || judge(d, kind, &o, &err) != TACIT_OK) {
        read_log(d, o.where, sizeof o.where);
        fprintf(stderr, "FAILED: %s --kind %s --at %u: %s: %s\n", d->script->name, kinds[kind].word,
                at, o.where, err.message);
        d->failures++;
    }
    outcome_free(&o);
}

static tacit_status count_calls(driver *d, tacit_error *err)
{
    uint8_t *text;
    size_t size;
    tacit_status status = tacit_file_read(d->log, 1 << 24, &text, &size, err);
    if (status != TACIT_OK)
        return status;
    for (const char *at = (const char *)text; (at = strchr(at, '\n')); at++)
        d->calls++;
    free(text);
    if (d->calls == 0 || d->calls > MOST_CALLS)
        status = tacit_fail(err, TACIT_FAILED, "%s: found %u calls", d->log, d->calls);
    return status;
}

static tacit_status undisturbed(driver *d, tacit_error *err)
{
    outcome o;
    fresh_folder(d);
    run_child(d, "kill", 0, &o);
    tacit_status status = TACIT_OK;
    if (!WIFEXITED(o.status) || WEXITSTATUS(o.status) != 0 || *o.errors.data)
        status = tacit_fail(err, TACIT_FAILED, "the undisturbed run ended with %d: %s", o.status,
                            o.errors.data);
    d->told = o.out;
    o.out = (tacit_buffer){0};
    outcome_free(&o);
    if (status == TACIT_OK)
        status = count_calls(d, err);
    if (status == TACIT_OK)
        status = fault_folder_text(&d->folder, d->dir, err);
    fault_run after = {.dir = d->dir, .keys = d->keys};
    if (status == TACIT_OK)
        status = d->script->holds(&after, (const char *)d->told.data, err);
    return status;
}

static void try_kind(driver *d, size_t kind)
{
    unsigned stride = d->stride ? d->stride : kinds[kind].stride * d->script->sparse;
    for (unsigned at = 1 + (unsigned)kind % stride; at <= d->calls; at += stride) {
        try_point(d, kind, at);
        if (d->failures > MOST_SHOWN)
            return;
    }
}

static void report(const driver *d, double seconds)
{
    unsigned points = 0;
    for (size_t k = 0; k < KINDS; k++)
        points += d->points[k];
    printf("%s: %u calls change files; %u points:", d->script->name, d->calls, points);
    for (size_t k = 0; k < KINDS; k++)
        printf(" %s %u", kinds[k].word, d->points[k]);
    printf("; %u failed, %.1f s\n", d->failures, seconds);
}

static size_t kind_named(const char *word)
{
    for (size_t k = 0; word && k < KINDS; k++)
        if (strcmp(kinds[k].word, word) == 0)
            return k;
    return KINDS;
}

static void prepare(driver *d)
{
    const char *base = getenv("TACIT_TEST_DIR");
    if (!base) /* where an fsync costs nothing, if there is such a place */
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(d->work, sizeof d->work, "%.200s/tacit-faults-XXXXXX", base);
    if (!mkdtemp(d->work)) {
        perror(d->work);
        exit(1);
    }
    snprintf(d->dir, sizeof d->dir, "%.300s/folder", d->work);
    snprintf(d->keys, sizeof d->keys, "%.300s/keys", d->work);
    snprintf(d->log, sizeof d->log, "%.300s/calls", d->work);
    /* A sanitizer's library need not come first: the calls here stand before it on purpose. */
    char options[512];
    const char *given = getenv("ASAN_OPTIONS");
    snprintf(options, sizeof options, "%.400s%sverify_asan_link_order=0", given ? given : "",
             given ? ":" : "");
    setenv("ASAN_OPTIONS", options, 1);
}

static int drive(driver *d, const char *kind, unsigned at)
{
    tacit_error err = {0};
    double start = tacit_clock_seconds();
    tacit_status status = tacit_file_make_dir(d->keys, 0700, &err);
    if (status == TACIT_OK)
        status = d->script->make_keys(d->keys, &err);
    if (status == TACIT_OK)
        status = undisturbed(d, &err);
    if (status != TACIT_OK) {
        fprintf(stderr, "FAILED: %s: %s\n", d->script->name, err.message);
        return 1;
    }
    for (size_t k = 0; k < KINDS; k++) {
        if (kind && k != kind_named(kind))
            continue;
        if (at)
            try_point(d, k, at);
        else
            try_kind(d, k);
        if (d->failures > MOST_SHOWN)
            break;
    }
    report(d, tacit_clock_seconds() - start);
    return d->failures != 0;
}

int fault_main(int argc, char **argv, const fault_script *script)
{
    driver d = {.script = script, .program = argv[0]};
    const char *kind = NULL;
    unsigned at = 0;
    if (argc == 4 && strcmp(argv[1], "--child") == 0)
        return child_main(script, argv[2], argv[3]);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--kind") == 0)
            kind = argv[i + 1];
        else if (strcmp(argv[i], "--at") == 0)
            at = (unsigned)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--stride") == 0)
            d.stride = (unsigned)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--twice") == 0)
            d.twice = strcmp(argv[i + 1], "0") != 0;
        else
            argc = 0;
    }
    if (argc % 2 == 0 || (kind && kind_named(kind) == KINDS)) {
        fprintf(stderr, "usage: %s [--stride N] [--kind KIND] [--at CALL] [--twice 0|1]\n",
                argv[0]);
        return 2;
    }
    d.keep = at > 0;
    prepare(&d);
    int code = drive(&d, kind, at);
    if (d.keep)
        printf("kept: %s\n", d.work);
    else
        fault_folder_remove(d.work);
    tacit_buffer_free(&d.told);
    free(d.folder);
    return code;
}
