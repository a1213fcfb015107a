#include "common/pem.h"

#include "common/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

tacit_status pem_fail(tacit_error *err, tacit_status status, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return tacit_fail(err, status, "%s: %s", what, reason ? reason : "OpenSSL gives no reason");
}

/* OpenSSL would ask on the terminal otherwise. */
static int no_password(char *buffer, int size, int writing, void *ctx)
{
    (void)buffer, (void)size, (void)writing, (void)ctx;
    return -1;
}

static tacit_status open_text(const char *pem, BIO **bio, tacit_error *err)
{
    size_t size = strnlen(pem, TACIT_PEM_MAX + 1);
    *bio = NULL;
    if (size > TACIT_PEM_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "PEM text: expected at most %d bytes",
                          TACIT_PEM_MAX);
    ERR_clear_error();
    *bio = BIO_new_mem_buf(pem, (int)size);
    return *bio ? TACIT_OK : pem_fail(err, TACIT_NO_MEMORY, "PEM text");
}

/* True when reading ended because nothing more was there, not because of damage. */
static int ended_cleanly(void)
{
    unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

tacit_status pem_certificates(const char *pem, STACK_OF(X509) * *out, tacit_error *err)
{
    BIO *bio = NULL;
    X509 *one;
    tacit_status status = open_text(pem, &bio, err);
    if (status != TACIT_OK)
        return status;
    *out = sk_X509_new_null();
    while (*out && (one = PEM_read_bio_X509(bio, NULL, no_password, NULL)) != NULL) {
        if (sk_X509_num(*out) == PEM_CERTIFICATES_MAX || !sk_X509_push(*out, one)) {
            X509_free(one);
            status = tacit_fail(err, TACIT_BAD_INPUT, "PEM text: more than %d certificates",
                                PEM_CERTIFICATES_MAX);
            break;
        }
    }
    if (status == TACIT_OK && !ended_cleanly())
        status = tacit_fail(err, TACIT_BAD_INPUT, "PEM text: a certificate is damaged");
    if (status == TACIT_OK && sk_X509_num(*out) < 1)
        status = tacit_fail(err, TACIT_BAD_INPUT, "PEM text: no certificate in it");
    if (status != TACIT_OK) {
        sk_X509_pop_free(*out, X509_free);
        *out = NULL;
    }
    BIO_free(bio);
    return status;
}

tacit_status pem_crls(const char *pem, STACK_OF(X509_CRL) * *out, tacit_error *err)
{
    BIO *bio = NULL;
    X509_CRL *one;
    tacit_status status = open_text(pem, &bio, err);
    if (status != TACIT_OK)
        return status;
    *out = sk_X509_CRL_new_null();
    while (*out && (one = PEM_read_bio_X509_CRL(bio, NULL, no_password, NULL)) != NULL) {
        if (!sk_X509_CRL_push(*out, one)) {
            X509_CRL_free(one);
            break;
        }
    }
    if (!ended_cleanly() || sk_X509_CRL_num(*out) < 1) {
        sk_X509_CRL_pop_free(*out, X509_CRL_free);
        *out = NULL;
        status = tacit_fail(err, TACIT_BAD_INPUT, "PEM text: no usable revocation list in it");
    }
    BIO_free(bio);
    return status;
}

tacit_status pem_private_key(const char *pem, EVP_PKEY **out, tacit_error *err)
{
    BIO *bio = NULL;
    *out = NULL;
    tacit_status status = open_text(pem, &bio, err);
    if (status != TACIT_OK)
        return status;
    *out = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    if (!*out)
        status = pem_fail(err, TACIT_BAD_INPUT, "private key: expected an unencrypted PEM key");
    BIO_free(bio);
    return status;
}
