/* Room-private: PEM from outside, into OpenSSL's objects, with caps and no prompts. */
#ifndef TACIT_COMMON_PEM_H
#define TACIT_COMMON_PEM_H

#include "common/status.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

#define PEM_CERTIFICATES_MAX 16

/* Every certificate of the text, in order, at least one. Free with sk_X509_pop_free. */
tacit_status pem_certificates(const char *pem, STACK_OF(X509) * *out,
                              tacit_error *err) TACIT_MUST_CHECK;
tacit_status pem_crls(const char *pem, STACK_OF(X509_CRL) * *out,
                      tacit_error *err) TACIT_MUST_CHECK;

/* The first private key, unencrypted. */
tacit_status pem_private_key(const char *pem, EVP_PKEY **out, tacit_error *err) TACIT_MUST_CHECK;

/* Fails with "what: OpenSSL's newest reason" and empties this thread's error queue. */
tacit_status pem_fail(tacit_error *err, tacit_status status, const char *what);

#endif
