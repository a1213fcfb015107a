/* What a program says when a file that it has mapped becomes shorter, or can no longer be read,
 * while it is in use: the kernel then sends SIGBUS at the first touch of a page that is gone.
 *
 * The work in hand cannot be saved, but one line names the file and the next step, and the exit
 * code is that of a corrupt input (3), as if the file had been found short when it was opened. All
 * that programs keep is safe against being killed at any instruction. Bytes of the last page that
 * stays are zeros beyond the new end and cannot be told from data: replace files by renaming. */
#ifndef TACIT_COMMON_MAP_GUARD_H
#define TACIT_COMMON_MAP_GUARD_H

#include <stddef.h>

/* Takes SIGBUS for this process; `program` begins the line and is never freed. Faults elsewhere end
 * the process as before. */
void map_guard_start(const char *program);

/* A map and the path to name. Any thread. Beyond 64 maps at a time a fault goes unnamed. */
void map_guard_add(const void *data, size_t size, const char *path);
void map_guard_remove(const void *data);

#endif
