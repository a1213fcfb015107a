/* What of a folder a disk would hold after a power cut: names of each folder as at that folder's
 * last fsync, bytes of each file as at its own. For fault_calls.c, which holds its lock around
 * every call; made of plain system calls, because the C library's are intercepted there.
 *
 * A file is known by its inode, which is kept from being used again as long as it is known. */
#ifndef TACIT_TESTS_FAULT_DURABLE_H
#define TACIT_TESTS_FAULT_DURABLE_H

#include <stdbool.h>

/* Everything below `dir` counts as synced. False without memory. */
bool durable_begin(const char *dir);

/* An fsync of the file or folder `path`, open as `fd`. False without memory. */
bool durable_sync(int fd, const char *path);

/* A sync of the whole file system. False without memory. */
bool durable_sync_all(void);

/* Turns the folder into what the disk would hold. `names_stay`: only bytes go back, names stay. */
void durable_restore(bool names_stay);

#endif
