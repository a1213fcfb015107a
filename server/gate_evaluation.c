#include "server/gate_evaluation.h"

#include "common/bytes.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define OUTPUT_MAX 65536
/* Address space of the evaluating process. Sanitizers map terabytes that they never touch. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GATE_MEMORY RLIM_INFINITY
#else
#define GATE_MEMORY ((rlim_t)8 << 30)
#endif

bool gate_passes(const gate_score *parent, const gate_score *candidate, double margin)
{
    if (!isfinite(candidate->accuracy) || !isfinite(candidate->loss))
        return false;
    if (candidate->accuracy < parent->accuracy - margin)
        return false;
    return candidate->accuracy != parent->accuracy ||
           candidate->loss <= parent->loss * (1 + margin);
}

tacit_status gate_score_parse(gate_score *out, const char *text, size_t size, tacit_error *err)
{
    json_error_t why;
    const char *line = text;
    while (size && text[size - 1] == '\n')
        size--;
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\n')
            line = text + i + 1;
    json_t *root = json_loadb(line, size - (size_t)(line - text), 0, &why);
    json_t *accuracy = json_object_get(root, "accuracy"), *loss = json_object_get(root, "loss");
    tacit_status status = TACIT_OK;
    if (json_is_number(accuracy) && json_is_number(loss))
        *out = (gate_score){json_number_value(accuracy), json_number_value(loss)};
    else
        status =
            tacit_fail(err, TACIT_FAILED,
                       "evaluation: expected a JSON object with accuracy and loss, found '%.*s'",
                       (int)(size > 200 ? 200 : size), text);
    json_decref(root);
    return status;
}

#define ARGUMENTS_MAX 24

/* The words of the command; they point into the configuration. */
static void command_words(const char *words[ARGUMENTS_MAX], const server_config *c,
                          const char *adapter)
{
    size_t n = 0;
    words[n++] = c->tacit;
    words[n++] = "eval";
    words[n++] = "-m";
    words[n++] = c->model_text;
    for (size_t i = 0; i < c->model_mmproj.count && n < ARGUMENTS_MAX - 12; i++) {
        words[n++] = "--mmproj";
        words[n++] = c->model_mmproj.item[i];
    }
    if (adapter) {
        words[n++] = "--adapter";
        words[n++] = adapter;
    }
    words[n++] = "--data";
    words[n++] = c->gate_data;
    words[n++] = "--json";
    words[n] = NULL;
}

/* Its standard output is `out`, its standard error ours. Nothing else is inherited: not every
 * descriptor of this process closes itself, accepted connections least of all. */
static int spawn(pid_t *pid, const char *const words[], int out)
{
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return code;
    code = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (code == 0)
        code = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (code == 0)
        code = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (code == 0)
        code = posix_spawn(pid, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Starts the program with its standard output in a pipe. */
static tacit_status start(const server_config *c, const char *adapter, pid_t *pid, int *out,
                          tacit_error *err)
{
    const char *words[ARGUMENTS_MAX];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tacit_fail(err, TACIT_IO, "evaluation: cannot make a pipe: %s", strerror(errno));
    command_words(words, c, adapter);
    int code = spawn(pid, words, ends[1]);
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        return tacit_fail(err, TACIT_FAILED, "evaluation: cannot start %s: %s; set gate.tacit",
                          c->tacit, strerror(code));
    }
    struct rlimit memory = {GATE_MEMORY, GATE_MEMORY};
    if (prlimit(*pid, RLIMIT_AS, &memory, NULL) != 0 && errno != ESRCH)
        memory.rlim_cur = 0; /* the time limit still holds */
    *out = ends[0];
    return TACIT_OK;
}

/* Reads until the end, the time limit or the stop. */
static tacit_status collect(int fd, uint64_t until_ms, const atomic_bool *stop, tacit_buffer *text,
                            tacit_error *err)
{
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        char part[4096];
        if (atomic_load(stop))
            return tacit_fail(err, TACIT_AGAIN, "evaluation: the server stops");
        if (tacit_clock_monotonic_ms() >= until_ms)
            return tacit_fail(err, TACIT_FAILED, "evaluation: it took longer than gate.seconds");
        if (poll(&ready, 1, 100) <= 0)
            continue;
        ssize_t n = read(fd, part, sizeof part);
        if (n == 0)
            return TACIT_OK;
        if (n < 0 && errno != EINTR)
            return tacit_fail(err, TACIT_IO, "evaluation: %s", strerror(errno));
        if (n > 0 && tacit_buffer_append(text, part, (size_t)n) != TACIT_OK)
            return tacit_fail(err, TACIT_FAILED, "evaluation: it printed more than %d bytes",
                              OUTPUT_MAX);
    }
}

tacit_status gate_evaluate(gate_score *out, const server_config *config, const char *adapter,
                           const atomic_bool *stop, tacit_error *err)
{
    tacit_buffer text = {.cap = OUTPUT_MAX};
    pid_t pid;
    int fd = -1, result = 0;
    uint64_t until = tacit_clock_monotonic_ms() + config->gate_seconds * 1000;
    tacit_status status = start(config, adapter, &pid, &fd, err);
    if (status != TACIT_OK)
        return status;
    status = collect(fd, until, stop, &text, err);
    close(fd);
    if (status != TACIT_OK)
        kill(pid, SIGKILL);
    while (waitpid(pid, &result, 0) < 0 && errno == EINTR)
        continue;
    if (status == TACIT_OK && !(WIFEXITED(result) && WEXITSTATUS(result) == 0))
        status = tacit_fail(err, TACIT_FAILED, "evaluation: %s eval ended with %s %d",
                            config->tacit, WIFEXITED(result) ? "exit code" : "signal",
                            WIFEXITED(result) ? WEXITSTATUS(result) : WTERMSIG(result));
    if (status == TACIT_OK)
        status = gate_score_parse(out, (const char *)text.data, text.size, err);
    tacit_buffer_free(&text);
    return status;
}
