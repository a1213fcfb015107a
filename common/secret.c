#include "common/secret.h"

#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tacit_status tacit_crypto_start(tacit_error *err)
{
    if (sodium_init() < 0)
        return tacit_fail(err, TACIT_FAILED,
                          "libsodium cannot start: this machine gives no random "
                          "numbers; check /dev/urandom");
    return TACIT_OK;
}

tacit_status tacit_secret_new(tacit_secret *s, size_t size, tacit_error *err)
{
    *s = (tacit_secret){0};
    tacit_status status = tacit_crypto_start(err);
    if (status != TACIT_OK)
        return status;
    uint8_t *data = sodium_malloc(size);
    if (!data)
        return tacit_fail(err, TACIT_NO_MEMORY, "no guarded memory for a secret of %zu bytes",
                          size);
    sodium_memzero(data, size);
    *s = (tacit_secret){data, size};
    return TACIT_OK;
}

tacit_status tacit_secret_random(tacit_secret *s, size_t size, tacit_error *err)
{
    tacit_status status = tacit_secret_new(s, size, err);
    if (status == TACIT_OK)
        randombytes_buf(s->data, size);
    return status;
}

void tacit_secret_free(tacit_secret *s)
{
    if (s->data)
        sodium_free(s->data);
    *s = (tacit_secret){0};
}

static tacit_status check_secret_file(int fd, const char *path, size_t min, size_t max,
                                      size_t *size, tacit_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tacit_fail(err, TACIT_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a regular file", path);
    if (st.st_mode & 077)
        return tacit_fail(err, TACIT_REFUSED,
                          "%s: mode %03o lets others at a secret; run chmod 600 on it", path,
                          (unsigned)st.st_mode & 0777u);
    if (st.st_size < 0 || (uint64_t)st.st_size < min || (uint64_t)st.st_size > max)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected %zu to %zu bytes, found %lld", path,
                          min, max, (long long)st.st_size);
    *size = (size_t)st.st_size;
    return TACIT_OK;
}

static tacit_status read_exactly(int fd, const char *path, uint8_t *data, size_t size,
                                 tacit_error *err)
{
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, data + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tacit_fail(err, TACIT_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: the file shrank while it was read", path);
        got += (size_t)n;
    }
    return TACIT_OK;
}

tacit_status tacit_secret_load(tacit_secret *s, const char *path, size_t min, size_t max,
                               tacit_error *err)
{
    size_t size = 0;
    *s = (tacit_secret){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tacit_fail(err, errno == ENOENT ? TACIT_NOT_FOUND : TACIT_IO, "%s: cannot open: %s",
                          path, strerror(errno));
    tacit_status status;
    TACIT_TRY(check_secret_file(fd, path, min, max, &size, err), done);
    TACIT_TRY(tacit_secret_new(s, size, err), done);
    TACIT_TRY(read_exactly(fd, path, s->data, size, err), done);
done:
    if (status != TACIT_OK)
        tacit_secret_free(s);
    close(fd);
    return status;
}

tacit_status tacit_secret_store(const tacit_secret *s, const char *path, tacit_error *err)
{
    return tacit_file_write(path, s->data, s->size, 0600, err);
}

void tacit_wipe_free(void *memory)
{
    if (memory)
        sodium_memzero(memory, malloc_usable_size(memory));
    free(memory);
}
