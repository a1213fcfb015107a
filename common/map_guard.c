/* A signal handler has nothing but static memory to look at: hence the one table of this process.
 * A slot belongs to whoever moved `state` from FREE; the handler reads slots that are USED. */
#include "common/map_guard.h"

#include "common/status.h"
#include "common/text.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 64
#define SHOWN_PATH 512

enum { FREE, TAKEN, USED };

typedef struct guarded_map {
    _Atomic int state;
    _Atomic uintptr_t begin; /* atomic: others look while a slot changes hands */
    _Atomic size_t size;
    char path[SHOWN_PATH];
} guarded_map;

static guarded_map slots[SLOTS];
static const char *guarded_program = "tacit";

void map_guard_add(const void *data, size_t size, const char *path)
{
    for (size_t i = 0; i < SLOTS; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &expected, TAKEN))
            continue;
        slots[i].begin = (uintptr_t)data;
        slots[i].size = size;
        snprintf(slots[i].path, sizeof slots[i].path, "%s", path);
        tacit_text_make_plain(slots[i].path, strlen(slots[i].path));
        atomic_store(&slots[i].state, USED);
        return;
    }
}

void map_guard_remove(const void *data)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].state) == USED && slots[i].begin == (uintptr_t)data) {
            atomic_store(&slots[i].state, FREE);
            return;
        }
}

static const char *path_at(uintptr_t address)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].state) == USED && address >= slots[i].begin &&
            address - slots[i].begin < slots[i].size)
            return slots[i].path;
    return NULL;
}

/* write(2) alone: stdio is not safe in a handler. */
static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *path = path_at((uintptr_t)info->si_addr);
    if (!path) {
        signal(number, SIG_DFL);
        raise(number); /* ends the process when the handler returns */
        return;
    }
    say(guarded_program);
    say(": ");
    say(path);
    say(": the file became shorter or unreadable while it was in use; put the whole file back by "
        "renaming and start again\n");
    _exit(tacit_exit_code(TACIT_BAD_INPUT));
}

void map_guard_start(const char *program)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    guarded_program = program;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
