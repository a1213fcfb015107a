#include "common/tls.h"

#include "common/certificate.h"
#include "common/clock.h"
#include "common/pem.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAME_MAX_BYTES = 255, CHAIN_MAX_BYTES = 16384 };

/* --- The time that certificates are judged at --- */

static _Atomic uint64_t time_floor_ms;

void tacit_tls_raise_time_floor(uint64_t ms)
{
    uint64_t seen = atomic_load(&time_floor_ms);
    while (seen < ms && !atomic_compare_exchange_weak(&time_floor_ms, &seen, ms))
        continue;
}

uint64_t tacit_tls_now_ms(void)
{
    uint64_t floor = atomic_load(&time_floor_ms), now = tacit_clock_wall_ms();
    return now > floor ? now : floor;
}

void tacit_tls_reset_time_floor(void)
{
    atomic_store(&time_floor_ms, 0);
}

struct tacit_tls {
    SSL_CTX *ctx;
    bool server;
    bool pinned;
    uint8_t pin[TACIT_DIGEST_BYTES];
    char name[NAME_MAX_BYTES + 1];
    bool name_is_address;
    pthread_mutex_t lock; /* of the report, everything below */
    char text[256];
    bool is_refusal;
};

/* --- Reports --- */

static void report_set(tacit_tls *tls, bool is_refusal, const char *text)
{
    pthread_mutex_lock(&tls->lock);
    snprintf(tls->text, sizeof tls->text, "%s", text);
    tls->is_refusal = is_refusal;
    pthread_mutex_unlock(&tls->lock);
}

void tacit_tls_report_text(tacit_tls *tls, char *out, size_t size)
{
    pthread_mutex_lock(&tls->lock);
    snprintf(out, size, "%s", tls->text);
    pthread_mutex_unlock(&tls->lock);
}

bool tacit_tls_report_is_refusal(tacit_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    bool is_refusal = tls->is_refusal;
    pthread_mutex_unlock(&tls->lock);
    return is_refusal;
}

void tacit_tls_report_clear(tacit_tls *tls)
{
    report_set(tls, false, "");
}

static void report_verification(tacit_tls *tls, int code)
{
    char text[320], clock[64] = "";
    time_t now = (time_t)(tacit_tls_now_ms() / 1000);
    struct tm utc;
    bool time_error = code == X509_V_ERR_CERT_NOT_YET_VALID || code == X509_V_ERR_CERT_HAS_EXPIRED;
    if (time_error && gmtime_r(&now, &utc))
        strftime(clock, sizeof clock, " by this clock, which says %Y-%m-%d %H:%M UTC", &utc);
    const char *whose = tls->server ? "the peer's certificate" : "the server's certificate";
    const char *why = X509_verify_cert_error_string(code);
    bool name = code == X509_V_ERR_HOSTNAME_MISMATCH || code == X509_V_ERR_IP_ADDRESS_MISMATCH;
    snprintf(text, sizeof text, "%s is refused: %s%s%.64s%s%s", whose, why,
             name ? " (not for '" : "", name ? tls->name : "", name ? "')" : "", clock);
    report_set(tls, true, text);
}

/* Trusts the one certificate of the peer's chain whose digest is the pinned one. */
static bool trust_pinned(X509_STORE_CTX *ctx, const tacit_tls *tls, STACK_OF(X509) * trusted)
{
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(ctx);
    for (int i = 0; sent && i < sk_X509_num(sent); i++) {
        uint8_t digest[TACIT_DIGEST_BYTES];
        unsigned int size = sizeof digest;
        X509 *one = sk_X509_value(sent, i);
        if (X509_digest(one, EVP_sha256(), digest, &size) &&
            CRYPTO_memcmp(digest, tls->pin, sizeof digest) == 0 && sk_X509_push(trusted, one)) {
            X509_STORE_CTX_set0_trusted_stack(ctx, trusted);
            return true;
        }
    }
    return false;
}

/* OpenSSL's own checks (chain, purpose, name, revocation) at our time and with our pin. */
static int verify_peer(X509_STORE_CTX *ctx, void *arg)
{
    tacit_tls *tls = arg;
    STACK_OF(X509) *trusted = NULL;
    int ok = 0;
    X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(ctx), (time_t)(tacit_tls_now_ms() / 1000));
    if (tls->pinned) {
        trusted = sk_X509_new_null();
        if (!trusted || !trust_pinned(ctx, tls, trusted)) {
            X509_STORE_CTX_set_error(ctx, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
            report_set(tls, true,
                       "the server's certificate is refused: its root is not the one that the "
                       "token names");
            goto done;
        }
    }
    ok = X509_verify_cert(ctx) == 1;
    if (!ok)
        report_verification(tls, X509_STORE_CTX_get_error(ctx));
done:
    if (trusted)
        sk_X509_free(trusted);
    return ok;
}

/* Finite-field groups would let a small hello cost a server 160 ms (D(HE)at, CVE-2002-20001). */
static bool harden(SSL_CTX *ctx)
{
    static const unsigned char session_context[] = "tacit";
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_max_cert_list(ctx, CHAIN_MAX_BYTES);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(ctx, 0) &&
           SSL_CTX_set1_groups_list(ctx, "X25519:P-256") == 1 &&
           SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1);
}

static tacit_status config_set_name(tacit_tls *tls, const char *name, tacit_error *err)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(tls->ctx);
    size_t size = strlen(name);
    if (size == 0 || size > NAME_MAX_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT, "name of the server: expected 1 to %d bytes",
                          NAME_MAX_BYTES);
    memcpy(tls->name, name, size + 1);
    tls->name_is_address = X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    if (tls->name_is_address)
        return TACIT_OK;
    ERR_clear_error();
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_host(param, name, size) != 1)
        return pem_fail(err, TACIT_BAD_INPUT, "name of the server");
    return TACIT_OK;
}

static tacit_status config_set_crls(X509_STORE *store, const char *crl, tacit_error *err)
{
    STACK_OF(X509_CRL) * lists;
    tacit_status status = pem_crls(crl, &lists, err);
    if (status != TACIT_OK)
        return status;
    for (int i = 0; i < sk_X509_CRL_num(lists) && status == TACIT_OK; i++)
        if (X509_STORE_add_crl(store, sk_X509_CRL_value(lists, i)) != 1)
            status = pem_fail(err, TACIT_BAD_INPUT, "revocation list");
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    sk_X509_CRL_pop_free(lists, X509_CRL_free);
    return status;
}

static tacit_status config_set_roots(tacit_tls *tls, const char *pem, const char *crl,
                                     tacit_error *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(tls->ctx);
    STACK_OF(X509) * roots;
    tacit_status status = pem_certificates(pem, &roots, err);
    if (status != TACIT_OK)
        return status;
    for (int i = 0; i < sk_X509_num(roots) && status == TACIT_OK; i++)
        if (X509_STORE_add_cert(store, sk_X509_value(roots, i)) != 1)
            status = pem_fail(err, TACIT_BAD_INPUT, "trusted root");
    sk_X509_pop_free(roots, X509_free);
    if (status == TACIT_OK && crl)
        status = config_set_crls(store, crl, err);
    return status;
}

static tacit_status config_set_own(tacit_tls *tls, const char *chain_pem, const char *key_pem,
                                   tacit_error *err)
{
    STACK_OF(X509) *chain = NULL;
    EVP_PKEY *key = NULL;
    tacit_status status;
    TACIT_TRY(pem_certificates(chain_pem, &chain, err), done);
    TACIT_TRY(pem_private_key(key_pem, &key, err), done);
    X509 *own = sk_X509_shift(chain);
    if (SSL_CTX_use_cert_and_key(tls->ctx, own, key, chain, 1) != 1)
        status = pem_fail(err, TACIT_BAD_INPUT, "own certificate and key");
    X509_free(own);
done:
    if (chain)
        sk_X509_pop_free(chain, X509_free);
    EVP_PKEY_free(key);
    return status;
}

static tacit_status config_apply(tacit_tls *tls, const tacit_tls_setup *setup, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    tls->server = setup->server;
    tls->ctx = SSL_CTX_new(tls->server ? TLS_server_method() : TLS_client_method());
    if (!tls->ctx || !harden(tls->ctx))
        return pem_fail(err, TACIT_NO_MEMORY, "TLS configuration");
    SSL_CTX_set_cert_verify_callback(tls->ctx, verify_peer, tls);
    SSL_CTX_set_verify(tls->ctx, tls->server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    if (setup->server ? !setup->certificate_pem
                      : !setup->peer_name || (!setup->roots_pem && !setup->root_pin))
        return tacit_fail(err, TACIT_USAGE,
                          "TLS: a server needs a certificate, a client a name and a root");
    if (setup->certificate_pem)
        TACIT_TRY(config_set_own(tls, setup->certificate_pem, setup->key_pem, err), done);
    if (setup->roots_pem) {
        TACIT_TRY(config_set_roots(tls, setup->roots_pem, setup->crl_pem, err), done);
        SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    } else if (setup->root_pin && !setup->server) {
        memcpy(tls->pin, setup->root_pin, sizeof tls->pin);
        tls->pinned = true;
    }
    if (!setup->server)
        TACIT_TRY(config_set_name(tls, setup->peer_name, err), done);
done:
    return status;
}

tacit_status tacit_tls_new(tacit_tls **out, const tacit_tls_setup *setup, tacit_error *err)
{
    *out = NULL;
    tacit_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for TLS");
    pthread_mutex_init(&tls->lock, NULL);
    ERR_clear_error();
    tacit_status status = config_apply(tls, setup, err);
    if (status != TACIT_OK) {
        tacit_tls_free(tls);
        return status;
    }
    *out = tls;
    return TACIT_OK;
}

void tacit_tls_free(tacit_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->ctx);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* --- Connections --- */

SSL *tacit_tls_connect(tacit_tls *tls)
{
    ERR_clear_error();
    SSL *ssl = SSL_new(tls->ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!ssl || !in || !out) {
        SSL_free(ssl);
        BIO_free(in);
        BIO_free(out);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    if (tls->server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    if (!tls->server && !tls->name_is_address)
        SSL_set_tlsext_host_name(ssl, tls->name);
    return ssl;
}

typedef struct alert_text {
    int reason;
    bool is_refusal;
    const char *text;
} alert_text;

/* What the other side said before it hung up, in words for the one who reads the log. */
static const alert_text alerts[] = {
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, true, "says that our certificate has expired"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, true, "does not know the root of our certificate"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, true, "demands a certificate and got none"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, true, "says that our certificate is revoked"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, true, "refuses our certificate"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, true, "refuses our certificate's kind"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, true, "refuses our certificate"},
    {SSL_R_TLSV1_ALERT_ACCESS_DENIED, true, "denies access"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, false, "speaks no TLS 1.3"},
    {SSL_R_UNSUPPORTED_PROTOCOL, false, "speaks no TLS 1.3"},
    {SSL_R_WRONG_VERSION_NUMBER, false, "does not speak TLS"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, true, "sent no certificate"},
};

static void report_ssl_error(tacit_tls *tls)
{
    char text[256];
    unsigned long code = ERR_peek_last_error();
    int reason = ERR_GET_REASON(code);
    const char *who = tls->server ? "the peer" : "the server";
    if (ERR_GET_LIB(code) != ERR_LIB_SSL || reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return; /* the reason was reported where it arose */
    for (size_t i = 0; i < sizeof alerts / sizeof *alerts; i++) {
        if (alerts[i].reason != reason)
            continue;
        snprintf(text, sizeof text, "%s %s", who, alerts[i].text);
        report_set(tls, alerts[i].is_refusal, text);
        return;
    }
    const char *words = ERR_reason_error_string(code);
    snprintf(text, sizeof text, "TLS with %s failed: %s", who, words ? words : "no reason given");
    report_set(tls, false, text);
}

void tacit_tls_take_error(tacit_tls *tls)
{
    report_ssl_error(tls);
    ERR_clear_error();
}
