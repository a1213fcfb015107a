/* What every fuzz target has: it takes any bytes, checks what must hold, and says whether it
 * accepted them as input, which the replaying test compares with the folder they lie in. */
#ifndef TACIT_TESTS_FUZZ_TARGET_H
#define TACIT_TESTS_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Set by every call of the target. */
extern bool fuzz_accepted;

/* A property that must hold for any input. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
