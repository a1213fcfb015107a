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
/* The same of this process. */
uint64_t tacit_memory_available(void);

/* TACIT_NO_MEMORY when `bytes` more than fit: "WHAT needs 1.5 GiB, 0.8 GiB are available; ADVICE".
 */
tacit_status tacit_memory_require(uint64_t bytes, const char *what, const char *advice,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* count * each bytes of zeros into *out, judged like that before they are taken; NULL on failure.
 * For what a file of others decides the size of. */
tacit_status tacit_memory_alloc(void **out, size_t count, size_t each, const char *what,
                                const char *advice, tacit_error *err) TACIT_MUST_CHECK;

/* "1.5 GiB", "12.0 MiB": into `out`, which is returned. */
#define TACIT_MEMORY_TEXT 32
const char *tacit_memory_text(char out[TACIT_MEMORY_TEXT], uint64_t bytes);

#endif
