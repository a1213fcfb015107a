/* The device's TLS key and certificate: DIR/identity/tls-N.key, tls-N.pem and root.pem. N counts
 * renewals; the enrolment in the database says which N is in force, so that a renewal changes key
 * and certificate at once. */
#ifndef TACIT_CLIENT_TLS_FILES_H
#define TACIT_CLIENT_TLS_FILES_H

#include "client/client.h"
#include "common/certificate.h"

typedef struct client_tls {
    tacit_secret key; /* PEM, NUL-terminated */
    char *chain;      /* PEM */
    char *roots;      /* PEM, one or more */
} client_tls;

/* The ones in force. Free with client_tls_free. */
tacit_status client_tls_load(client_tls *out, const client *c, tacit_error *err) TACIT_MUST_CHECK;
void client_tls_free(client_tls *t);

/* Life of the certificate in force. */
tacit_status client_tls_info(const client *c, tacit_certificate_info *out,
                             tacit_error *err) TACIT_MUST_CHECK;

/* A new key for generation `n` and the request for its certificate. *csr is malloc'ed. */
tacit_status client_tls_new_key(const client *c, uint64_t n, uint8_t **csr, size_t *size,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Checks what the server issued for generation `n` (key, device, chain up to the root) and stores
 * it; a root that is not known yet is added to the known ones. */
tacit_status client_tls_store(const client *c, uint64_t n, const uint8_t device[TACIT_DEVICE_BYTES],
                              tacit_span chain, tacit_span root, tacit_error *err) TACIT_MUST_CHECK;

/* Removes key and certificate of generation `n`. */
void client_tls_drop(const client *c, uint64_t n);

#endif
