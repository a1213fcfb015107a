/* How much memory this process may still take, so that what cannot fit is refused with its size
 * instead of being ended by the kernel halfway. */
#ifndef TACIT_COMMON_MEMORY_LIMIT_H
#define TACIT_COMMON_MEMORY_LIMIT_H

#include "common/cgroup.h"
#include "common/status.h"

/* The least of: what the machine says is available (MemAvailable of `meminfo`), and what the limit
 * of every cgroup leaves, file pages counted as free, since the kernel takes them back. UINT64_MAX
 * when nothing can be read. `meminfo` is /proc/meminfo; tests pass their own. */
uint64_t memory_limit_available(const char *meminfo, const cgroup_files *files);

/* What limits on the process itself leave: RLIMIT_DATA less VmData, RLIMIT_AS less VmSize of
 * `status`, which is /proc/self/status; tests pass their own. RLIM_INFINITY limits nothing. */
uint64_t memory_limit_left(const char *status, uint64_t data_limit, uint64_t address_limit);

/* The least of both for this process. */
uint64_t tacit_memory_available(void);
/* The same for a total of which `mapped` bytes are pages of files that are mapped already: the
 * process's own limits do not count those again. */
uint64_t tacit_memory_available_beside(uint64_t mapped);

/* TACIT_NO_MEMORY when `bytes` more than fit: "WHAT needs 1.5 GiB, 0.8 GiB are available; ADVICE".
 */
tacit_status tacit_memory_require(uint64_t bytes, const char *what, const char *advice,
                                  tacit_error *err) TACIT_MUST_CHECK;
/* The same, but a few megabytes are not worth asking for. Not for many small pieces that come to
 * much: see tacit_memory_tally. */
tacit_status tacit_memory_judge(uint64_t bytes, const char *what, const char *advice,
                                tacit_error *err) TACIT_MUST_CHECK;

/* count * each bytes of zeros into *out, judged like that before they are taken; NULL on failure.
 * For what a file of others decides the size of. */
tacit_status tacit_memory_alloc(void **out, size_t count, size_t each, const char *what,
                                const char *advice, tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_NO_MEMORY where an allocation of `bytes` failed all the same: it says the same things. */
tacit_status tacit_memory_fail(uint64_t bytes, const char *what, const char *advice,
                               tacit_error *err);

/* Small pieces that add up: `bytes` more are counted, and judged whenever enough have come
 * together. Begin with zeros. */
typedef struct tacit_memory_tally {
    uint64_t unjudged;
} tacit_memory_tally;

tacit_status tacit_memory_tally_add(tacit_memory_tally *t, uint64_t bytes, const char *what,
                                    const char *advice, tacit_error *err) TACIT_MUST_CHECK;

/* For sizes of what files or callers decide: UINT64_MAX where the result would be more, which then
 * stays and fits nowhere. */
uint64_t tacit_memory_sum(uint64_t a, uint64_t b);
uint64_t tacit_memory_product(uint64_t a, uint64_t b);

/* "1.5 GiB", "12.0 MiB": into `out`, which is returned. */
#define TACIT_MEMORY_TEXT 32
const char *tacit_memory_text(char out[TACIT_MEMORY_TEXT], uint64_t bytes);

/* Tests only: `available` says what is there until called with NULL, and everything is judged,
 * however small. Not thread-safe. */
void tacit_memory_inject(uint64_t (*available)(void *ctx), void *ctx);

#endif
