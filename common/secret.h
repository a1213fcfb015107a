/* Secrets: keys in guarded memory (libsodium's sodium_malloc: guard pages, locked, wiped on free)
 * and in files of mode 0600. Nothing here is ever logged; errors name the file, never the content.
 * All functions are thread-safe; one tacit_secret belongs to one owner at a time. */
#ifndef TACIT_COMMON_SECRET_H
#define TACIT_COMMON_SECRET_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; `data` is NULL when empty. Free with tacit_secret_free. */
typedef struct tacit_secret {
    uint8_t *data;
    size_t size;
} tacit_secret;

/* Prepares libsodium (sodium_init); any number of calls. Every function of this project that needs
 * libsodium calls it itself. TACIT_FAILED when the machine gives no random numbers. */
tacit_status tacit_crypto_start(tacit_error *err) TACIT_MUST_CHECK;

/* `size` zero bytes of guarded memory. TACIT_NO_MEMORY. */
tacit_status tacit_secret_new(tacit_secret *s, size_t size, tacit_error *err) TACIT_MUST_CHECK;

/* `size` bytes from the kernel's generator. */
tacit_status tacit_secret_random(tacit_secret *s, size_t size, tacit_error *err) TACIT_MUST_CHECK;

/* Wipes and frees; an empty one is fine; the struct is empty afterwards. */
void tacit_secret_free(tacit_secret *s);

/* Reads a file of min to max bytes straight into guarded memory. TACIT_NOT_FOUND when it is
 * missing; TACIT_REFUSED when group or others may read or write it (the message says chmod 600);
 * TACIT_BAD_INPUT for another size or anything but a regular file. */
tacit_status tacit_secret_load(tacit_secret *s, const char *path, size_t min, size_t max,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Publishes the bytes under `path` with mode 0600, durably and atomically (tacit_file_write). */
tacit_status tacit_secret_store(const tacit_secret *s, const char *path,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Wipes what malloc gave, all of it, and frees it: for buffers of private data that are no keys.
 * NULL is fine. */
void tacit_wipe_free(void *memory);

#endif
