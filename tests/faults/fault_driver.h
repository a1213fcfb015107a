/* Runs a script again and again in a child process, each time with a fault at another of its calls
 * that change files (fault_calls.c), finishes it without one, and compares with the undisturbed
 * run: same told results, same rows in every table, same files.
 *
 * The program of a script is both: without --child it drives, with it it is the child. */
#ifndef TACIT_TESTS_FAULT_DRIVER_H
#define TACIT_TESTS_FAULT_DRIVER_H

#include "common/status.h"

#include <stdbool.h>

/* One run of a script: where it works, with which keys, and what it was told to the outside. */
typedef struct fault_run {
    const char *dir;  /* the folder in which calls fail */
    const char *keys; /* files of keys, outside it, the same in every run */
    bool child;       /* faults may happen here */
    bool failed;      /* a step failed before and was tried again */
} fault_run;

typedef struct fault_script {
    const char *name;
    unsigned sparse; /* a test run takes every n-th of its points; 1: all */
    /* Makes the keys once, before the first run. */
    tacit_status (*make_keys)(const char *keys, tacit_error *err);
    /* Does everything in run->dir whatever of it is done already. */
    tacit_status (*run)(fault_run *run, tacit_error *err);
    /* After a fault: all that `told` says (lines of fault_tell) must still be so. A message in *err
     * says what is not. */
    tacit_status (*holds)(const fault_run *run, const char *told, tacit_error *err);
} fault_script;

/* What somebody else learns of a step once it is durable: a line that is the same in every run. */
void fault_tell(const char *format, ...) TACIT_PRINTF(1, 2);

/* After a failed step: shows its error; true when it is to be done once more, in this process, as
 * the fault may be over. */
bool fault_try_again(fault_run *run, const tacit_error *err);

/* Repeats `call` on failure as long as fault_try_again says so. */
#define FAULT_STEP(run, err, call)                                                                 \
    do {                                                                                           \
        tacit_status step_;                                                                        \
        do                                                                                         \
            step_ = (call);                                                                        \
        while (step_ != TACIT_OK && fault_try_again((run), (err)));                                \
        if (step_ != TACIT_OK)                                                                     \
            return step_;                                                                          \
    } while (0)

int fault_main(int argc, char **argv, const fault_script *script);

#endif
