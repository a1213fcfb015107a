#include "client/tls_files.h"

#include "common/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tacit_status numbered(const client *c, uint64_t n, const char *ending,
                             char out[CLIENT_PATH_MAX], tacit_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "tls-%" PRIu64 ".%s", n, ending);
    return client_path(c, out, "identity", name, err);
}

static tacit_status read_pem(const char *path, char **out, tacit_error *err)
{
    uint8_t *data;
    size_t size;
    tacit_status status = tacit_file_read(path, TACIT_PEM_MAX, &data, &size, err);
    *out = status == TACIT_OK ? (char *)data : NULL;
    return status;
}

static tacit_status read_roots(const client *c, char **out, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_status status = client_path(c, path, "identity", "root.pem", err);
    return status == TACIT_OK ? read_pem(path, out, err) : status;
}

void client_tls_free(client_tls *t)
{
    tacit_secret_free(&t->key);
    free(t->chain);
    free(t->roots);
    *t = (client_tls){0};
}

tacit_status client_tls_load(client_tls *out, const client *c, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    uint64_t n = c->enrolment.tls_generation;
    tacit_status status;
    *out = (client_tls){0};
    TACIT_TRY(numbered(c, n, "key", path, err), done);
    TACIT_TRY(tacit_tls_key_load(&out->key, path, err), done);
    TACIT_TRY(numbered(c, n, "pem", path, err), done);
    TACIT_TRY(read_pem(path, &out->chain, err), done);
    TACIT_TRY(read_roots(c, &out->roots, err), done);
done:
    if (status != TACIT_OK)
        client_tls_free(out);
    return status;
}

tacit_status client_tls_info(const client *c, tacit_certificate_info *out, tacit_error *err)
{
    char path[CLIENT_PATH_MAX], *chain = NULL;
    tacit_status status = numbered(c, c->enrolment.tls_generation, "pem", path, err);
    if (status == TACIT_OK)
        status = read_pem(path, &chain, err);
    if (status == TACIT_OK)
        status = tacit_certificate_read(chain, out, err);
    free(chain);
    return status;
}

tacit_status client_tls_new_key(const client *c, uint64_t n, uint8_t **csr, size_t *size,
                                tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_secret key = {0};
    tacit_status status;
    *csr = NULL;
    TACIT_TRY(numbered(c, n, "key", path, err), done);
    TACIT_TRY(tacit_tls_key_create(path, err), done);
    TACIT_TRY(tacit_tls_key_load(&key, path, err), done);
    TACIT_TRY(tacit_csr_create((const char *)key.data, csr, size, err), done);
done:
    tacit_secret_free(&key);
    return status;
}

static tacit_status copy_pem(tacit_span from, char **out, tacit_error *err)
{
    *out = NULL;
    if (from.size == 0 || from.size > TACIT_PEM_MAX / 2 || memchr(from.data, 0, from.size))
        return tacit_fail(err, TACIT_BAD_INPUT, "server: a certificate of %zu bytes", from.size);
    *out = malloc(from.size + 1);
    if (!*out)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a certificate");
    memcpy(*out, from.data, from.size);
    (*out)[from.size] = '\0';
    return TACIT_OK;
}

static tacit_status check_issued(const client *c, uint64_t n, const uint8_t *device,
                                 const char *chain, const char *root, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    tacit_secret key = {0};
    tacit_certificate_info info;
    tacit_status status;
    TACIT_TRY(numbered(c, n, "key", path, err), done);
    TACIT_TRY(tacit_tls_key_load(&key, path, err), done);
    TACIT_TRY(tacit_certificate_read(chain, &info, err), done);
    TACIT_TRY(tacit_certificate_matches_key(chain, (const char *)key.data, err), done);
    TACIT_TRY(tacit_certificate_verify(chain, root, TACIT_USE_CLIENT, err), done);
    if (!info.has_device || memcmp(info.device, device, TACIT_DEVICE_BYTES) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY, "server: the certificate names another device");
done:
    tacit_secret_free(&key);
    return status;
}

/* Roots may overlap for a while: a new one joins the old ones. */
static tacit_status add_root(const client *c, const char *root, tacit_error *err)
{
    char path[CLIENT_PATH_MAX], *roots = NULL, *both = NULL;
    tacit_status status = read_roots(c, &roots, err);
    if (status == TACIT_OK && strstr(roots, root))
        goto done;
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        goto done;
    size_t size = strlen(root) + (roots ? strlen(roots) : 0) + 1;
    both = malloc(size);
    if (!both) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu bytes of roots", size);
        goto done;
    }
    snprintf(both, size, "%s%s", roots ? roots : "", root);
    status = client_path(c, path, "identity", "root.pem", err);
    if (status == TACIT_OK)
        status = tacit_file_write(path, both, size - 1, 0644, err);
done:
    free(roots);
    free(both);
    return status;
}

tacit_status client_tls_store(const client *c, uint64_t n, const uint8_t device[TACIT_DEVICE_BYTES],
                              tacit_span chain, tacit_span root, tacit_error *err)
{
    char path[CLIENT_PATH_MAX], *chain_text = NULL, *root_text = NULL;
    tacit_status status;
    TACIT_TRY(copy_pem(chain, &chain_text, err), done);
    TACIT_TRY(copy_pem(root, &root_text, err), done);
    TACIT_TRY(check_issued(c, n, device, chain_text, root_text, err), done);
    TACIT_TRY(add_root(c, root_text, err), done);
    TACIT_TRY(numbered(c, n, "pem", path, err), done);
    TACIT_TRY(tacit_file_write(path, chain_text, strlen(chain_text), 0644, err), done);
done:
    free(chain_text);
    free(root_text);
    return status;
}

void client_tls_drop(const client *c, uint64_t n)
{
    char path[CLIENT_PATH_MAX];
    if (numbered(c, n, "key", path, NULL) == TACIT_OK)
        unlink(path);
    if (numbered(c, n, "pem", path, NULL) == TACIT_OK)
        unlink(path);
}
