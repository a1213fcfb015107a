/* SHA-256 (FIPS 180-4) of bytes, files and domain-separated parts. */
#ifndef TACIT_COMMON_DIGEST_H
#define TACIT_COMMON_DIGEST_H

#include "common/bytes.h"
#include "common/status.h"

#define TACIT_DIGEST_BYTES 32

void tacit_digest(uint8_t out[TACIT_DIGEST_BYTES], const void *data, size_t size);

/* SHA-256 over the parts one after the other, each preceded by its length as u64 LE, after
 * `domain` and one NUL: two different lists never hash the same bytes. */
void tacit_digest_parts(uint8_t out[TACIT_DIGEST_BYTES], const char *domain,
                        const tacit_span *parts, size_t count);

/* Told of every slice once it is hashed, in order. */
typedef void tacit_digest_done(void *ctx, const void *data, size_t size);

/* As tacit_digest, by the processor's SHA instructions and a few MiB at a time: for model files.
 * `done` may be NULL; it must leave the bytes as they are. */
void tacit_digest_large(uint8_t out[TACIT_DIGEST_BYTES], const void *data, size_t size,
                        tacit_digest_done *done, void *ctx);

/* Digest of a whole regular file. */
tacit_status tacit_digest_file(uint8_t out[TACIT_DIGEST_BYTES], const char *path,
                               tacit_error *err) TACIT_MUST_CHECK;

#endif
