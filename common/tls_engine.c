#include "common/tls_engine.h"

#include "common/certificate.h"
#include "common/clock.h"
#include "common/pem.h"
#include "common/tls_gate.h"

#include <nng/supplemental/tls/engine.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENGINE_NAME "tacit-openssl"
enum { GREETING_BYTES = 8, NAME_MAX_BYTES = 255 };

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

/* --- Reports: counted, because connections outlive whoever made the configuration --- */

struct tacit_tls_report {
    atomic_int references;
    pthread_mutex_t lock;
    char text[256];
    bool is_refusal;
};

static tacit_tls_report *report_new(void)
{
    tacit_tls_report *report = calloc(1, sizeof *report);
    if (!report)
        return NULL;
    atomic_init(&report->references, 1);
    pthread_mutex_init(&report->lock, NULL);
    return report;
}

void tacit_tls_report_release(tacit_tls_report *report)
{
    if (!report || atomic_fetch_sub(&report->references, 1) != 1)
        return;
    pthread_mutex_destroy(&report->lock);
    free(report);
}

static void report_set(tacit_tls_report *report, bool is_refusal, const char *text)
{
    pthread_mutex_lock(&report->lock);
    snprintf(report->text, sizeof report->text, "%s", text);
    report->is_refusal = is_refusal;
    pthread_mutex_unlock(&report->lock);
}

void tacit_tls_report_text(tacit_tls_report *report, char *out, size_t size)
{
    pthread_mutex_lock(&report->lock);
    snprintf(out, size, "%s", report->text);
    pthread_mutex_unlock(&report->lock);
}

bool tacit_tls_report_is_refusal(tacit_tls_report *report)
{
    pthread_mutex_lock(&report->lock);
    bool is_refusal = report->is_refusal;
    pthread_mutex_unlock(&report->lock);
    return is_refusal;
}

void tacit_tls_report_clear(tacit_tls_report *report)
{
    report_set(report, false, "");
}

/* --- Configurations --- */

struct nng_tls_engine_config {
    SSL_CTX *ctx;
    tacit_tls_report *report;
    tls_gate gate;
    bool server;
    bool pinned;
    uint8_t pin[TACIT_DIGEST_BYTES];
    char name[NAME_MAX_BYTES + 1];
    bool name_is_address;
    bool greets; /* the peer's greeting is given to nng ahead */
    uint8_t greeting[GREETING_BYTES];
};

/* The configuration that nng made last on this thread: nng's own handle is opaque. */
static _Thread_local nng_tls_engine_config *newest_config;

static void report_verification(const nng_tls_engine_config *cfg, int code)
{
    char text[320], clock[64] = "";
    time_t now = (time_t)(tacit_tls_now_ms() / 1000);
    struct tm utc;
    bool time_error = code == X509_V_ERR_CERT_NOT_YET_VALID || code == X509_V_ERR_CERT_HAS_EXPIRED;
    if (time_error && gmtime_r(&now, &utc))
        strftime(clock, sizeof clock, " by this clock, which says %Y-%m-%d %H:%M UTC", &utc);
    const char *whose = cfg->server ? "the peer's certificate" : "the server's certificate";
    const char *why = X509_verify_cert_error_string(code);
    bool name = code == X509_V_ERR_HOSTNAME_MISMATCH || code == X509_V_ERR_IP_ADDRESS_MISMATCH;
    snprintf(text, sizeof text, "%s is refused: %s%s%.64s%s%s", whose, why,
             name ? " (not for '" : "", name ? cfg->name : "", name ? "')" : "", clock);
    report_set(cfg->report, true, text);
}

/* Trusts the one certificate of the peer's chain whose digest is the pinned one. */
static bool trust_pinned(X509_STORE_CTX *ctx, const nng_tls_engine_config *cfg,
                         STACK_OF(X509) * trusted)
{
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(ctx);
    for (int i = 0; sent && i < sk_X509_num(sent); i++) {
        uint8_t digest[TACIT_DIGEST_BYTES];
        unsigned int size = sizeof digest;
        X509 *one = sk_X509_value(sent, i);
        if (X509_digest(one, EVP_sha256(), digest, &size) &&
            CRYPTO_memcmp(digest, cfg->pin, sizeof digest) == 0 && sk_X509_push(trusted, one)) {
            X509_STORE_CTX_set0_trusted_stack(ctx, trusted);
            return true;
        }
    }
    return false;
}

/* OpenSSL's own checks (chain, purpose, name, revocation) at our time and with our pin. Every check
 * is here: nng asks for data before it asks whether the handshake is done. */
static int verify_peer(X509_STORE_CTX *ctx, void *arg)
{
    const nng_tls_engine_config *cfg = arg;
    STACK_OF(X509) *trusted = NULL;
    int ok = 0;
    X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(ctx), (time_t)(tacit_tls_now_ms() / 1000));
    if (cfg->pinned) {
        trusted = sk_X509_new_null();
        if (!trusted || !trust_pinned(ctx, cfg, trusted)) {
            X509_STORE_CTX_set_error(ctx, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
            report_set(cfg->report, true,
                       "the server's certificate is refused: its root is not the one that the "
                       "token names");
            goto done;
        }
    }
    ok = X509_verify_cert(ctx) == 1;
    if (!ok)
        report_verification(cfg, X509_STORE_CTX_get_error(ctx));
done:
    if (trusted)
        sk_X509_free(trusted);
    return ok;
}

static bool harden(SSL_CTX *ctx)
{
    static const unsigned char session_context[] = "tacit";
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(ctx, 0) &&
           SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1);
}

static void config_fini(nng_tls_engine_config *cfg)
{
    SSL_CTX_free(cfg->ctx);
    tacit_tls_report_release(cfg->report);
    tls_gate_fini(&cfg->gate);
    cfg->ctx = NULL;
    cfg->report = NULL;
}

static int config_init(nng_tls_engine_config *cfg, nng_tls_mode mode)
{
    ERR_clear_error();
    tls_gate_init(&cfg->gate);
    cfg->server = mode == NNG_TLS_MODE_SERVER;
    cfg->ctx = SSL_CTX_new(cfg->server ? TLS_server_method() : TLS_client_method());
    cfg->report = report_new();
    if (!cfg->ctx || !cfg->report || !harden(cfg->ctx)) {
        config_fini(cfg);
        return NNG_ENOMEM;
    }
    SSL_CTX_set_cert_verify_callback(cfg->ctx, verify_peer, cfg);
    SSL_CTX_set_verify(cfg->ctx, cfg->server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    newest_config = cfg;
    return 0;
}

static tacit_status config_set_name(nng_tls_engine_config *cfg, const char *name, tacit_error *err)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(cfg->ctx);
    size_t size = strlen(name);
    if (size == 0 || size > NAME_MAX_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT, "name of the server: expected 1 to %d bytes",
                          NAME_MAX_BYTES);
    memcpy(cfg->name, name, size + 1);
    cfg->name_is_address = X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    if (cfg->name_is_address)
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

static tacit_status config_set_roots(nng_tls_engine_config *cfg, const char *pem, const char *crl,
                                     tacit_error *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(cfg->ctx);
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

static tacit_status config_set_own(nng_tls_engine_config *cfg, const char *chain_pem,
                                   const char *key_pem, tacit_error *err)
{
    STACK_OF(X509) *chain = NULL;
    EVP_PKEY *key = NULL;
    tacit_status status;
    TACIT_TRY(pem_certificates(chain_pem, &chain, err), done);
    TACIT_TRY(pem_private_key(key_pem, &key, err), done);
    X509 *own = sk_X509_shift(chain);
    if (SSL_CTX_use_cert_and_key(cfg->ctx, own, key, chain, 1) != 1)
        status = pem_fail(err, TACIT_BAD_INPUT, "own certificate and key");
    X509_free(own);
done:
    if (chain)
        sk_X509_pop_free(chain, X509_free);
    EVP_PKEY_free(key);
    return status;
}

static void config_demand_certificate(nng_tls_engine_config *cfg, bool required)
{
    SSL_CTX_set_verify(cfg->ctx, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
}

/* --- nng's operations on configurations --- */

static int config_op_server(nng_tls_engine_config *cfg, const char *name)
{
    return config_set_name(cfg, name, NULL) == TACIT_OK ? 0 : NNG_EINVAL;
}

static int config_op_auth(nng_tls_engine_config *cfg, nng_tls_auth_mode mode)
{
    if (mode != NNG_TLS_AUTH_MODE_NONE)
        config_demand_certificate(cfg, mode == NNG_TLS_AUTH_MODE_REQUIRED);
    else if (cfg->server)
        SSL_CTX_set_verify(cfg->ctx, SSL_VERIFY_NONE, NULL);
    else
        return NNG_ENOTSUP; /* a client that trusts anybody */
    return 0;
}

static int config_op_ca_chain(nng_tls_engine_config *cfg, const char *pem, const char *crl)
{
    return config_set_roots(cfg, pem, crl, NULL) == TACIT_OK ? 0 : NNG_ECRYPTO;
}

static int config_op_own_cert(nng_tls_engine_config *cfg, const char *chain, const char *key,
                              const char *password)
{
    (void)password;
    return config_set_own(cfg, chain, key, NULL) == TACIT_OK ? 0 : NNG_ECRYPTO;
}

static int config_op_version(nng_tls_engine_config *cfg, nng_tls_version low, nng_tls_version high)
{
    (void)cfg;
    return low <= NNG_TLS_1_3 && high >= NNG_TLS_1_3 ? 0 : NNG_ENOTSUP;
}

/* --- The transport under OpenSSL: nng's two functions as a BIO --- */

static BIO_METHOD *bio_method;

static int bio_write(BIO *bio, const char *data, size_t size, size_t *written)
{
    BIO_clear_retry_flags(bio);
    int rv = size ? nng_tls_engine_send(BIO_get_data(bio), (const uint8_t *)data, &size) : 0;
    if (rv == NNG_EAGAIN)
        BIO_set_retry_write(bio);
    *written = rv == 0 ? size : 0;
    return rv == 0;
}

static int bio_read(BIO *bio, char *data, size_t size, size_t *got)
{
    BIO_clear_retry_flags(bio);
    int rv = nng_tls_engine_recv(BIO_get_data(bio), (uint8_t *)data, &size);
    if (rv == NNG_EAGAIN)
        BIO_set_retry_read(bio);
    *got = rv == 0 ? size : 0;
    return rv == 0;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static bool make_bio_method(void)
{
    if (bio_method)
        return true;
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "nng stream");
    return bio_method && BIO_meth_set_write_ex(bio_method, bio_write) &&
           BIO_meth_set_read_ex(bio_method, bio_read) && BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* --- Connections. nng calls with the connection's lock held. --- */

struct nng_tls_engine_conn {
    SSL *ssl;
    void *stream; /* nng's, under TLS */
    nng_tls_engine_config *cfg;
    bool lingers;                     /* failed, and the peer is to read why before it hangs up */
    bool done;                        /* handshake finished and our greeting written */
    bool closed;                      /* by us */
    int failure;                      /* nng error that every later call repeats */
    uint8_t kept[2 * GREETING_BYTES]; /* written by nng before the handshake is done */
    size_t kept_size, kept_sent;
    size_t greeting_taken;            /* of nng's */
    size_t greeting_given;            /* of the peer's, to nng */
    bool under_way;                   /* see tls_gate.h */
    uint8_t greeting[GREETING_BYTES]; /* the peer's real one */
    size_t greeting_got;
};

static int conn_init(nng_tls_engine_conn *conn, void *stream, nng_tls_engine_config *cfg)
{
    if (!tls_gate_enter(&cfg->gate))
        return NNG_ECONNABORTED;
    ERR_clear_error();
    SSL *ssl = SSL_new(cfg->ctx);
    BIO *bio = ssl ? BIO_new(bio_method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        tls_gate_leave(&cfg->gate);
        return NNG_ENOMEM;
    }
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (cfg->server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    if (!cfg->server && cfg->name[0] && !cfg->name_is_address)
        SSL_set_tlsext_host_name(ssl, cfg->name);
    conn->ssl = ssl;
    conn->stream = stream;
    conn->cfg = cfg;
    return 0;
}

/* A step of nng's negotiation ended well, unless the socket is being closed. */
static int conn_set_off(nng_tls_engine_conn *conn)
{
    conn->under_way = tls_gate_set_off(&conn->cfg->gate);
    if (conn->under_way)
        return 0;
    conn->failure = NNG_ECONNABORTED;
    return conn->failure;
}

static void conn_arrive(nng_tls_engine_conn *conn)
{
    if (conn->under_way)
        tls_gate_arrive(&conn->cfg->gate);
    conn->under_way = false;
}

/* Also for connections that were never initialised: all zero then. */
static void conn_fini(nng_tls_engine_conn *conn)
{
    if (!conn->ssl)
        return;
    conn_arrive(conn);
    SSL_free(conn->ssl);
    conn->ssl = NULL;
    tls_gate_leave(&conn->cfg->gate);
}

static void conn_close(nng_tls_engine_conn *conn)
{
    conn_arrive(conn);
    if (!conn->ssl || conn->closed)
        return;
    conn->closed = true;
    ERR_clear_error();
    if (conn->done && !conn->failure)
        SSL_shutdown(conn->ssl);
    ERR_clear_error();
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

static void report_ssl_error(const nng_tls_engine_config *cfg)
{
    char text[256];
    unsigned long code = ERR_peek_last_error();
    int reason = ERR_GET_REASON(code);
    const char *who = cfg->server ? "the peer" : "the server";
    if (ERR_GET_LIB(code) != ERR_LIB_SSL || reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return; /* the reason was reported where it arose */
    for (size_t i = 0; i < sizeof alerts / sizeof *alerts; i++) {
        if (alerts[i].reason != reason)
            continue;
        snprintf(text, sizeof text, "%s %s", who, alerts[i].text);
        report_set(cfg->report, alerts[i].is_refusal, text);
        return;
    }
    const char *words = ERR_reason_error_string(code);
    snprintf(text, sizeof text, "TLS with %s failed: %s", who, words ? words : "no reason given");
    report_set(cfg->report, false, text);
}

/* A server that closes at once while the peer still sends makes the kernel reset the connection,
 * and the peer never reads the alert that says what is wrong with its certificate. So the server
 * reads on and throws away until the peer hangs up; the listener ends those that do not. */
static int conn_failure(nng_tls_engine_conn *conn)
{
    uint8_t scrap[1024];
    size_t size;
    int rv = 0;
    if (!conn->lingers)
        return conn->failure;
    do {
        size = sizeof scrap;
        rv = nng_tls_engine_recv(conn->stream, scrap, &size);
    } while (rv == 0);
    return rv == NNG_EAGAIN ? NNG_EAGAIN : conn->failure;
}

/* What the result of an SSL_ function means for nng. Failures are final. NNG_ECLOSED is never
 * among them: nng takes it for the end of its listener or dialer. */
static int conn_result(nng_tls_engine_conn *conn, int result)
{
    switch (SSL_get_error(conn->ssl, result)) {
    case SSL_ERROR_NONE:
        return 0;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return NNG_EAGAIN;
    case SSL_ERROR_SSL:
        report_ssl_error(conn->cfg);
        conn->failure = NNG_EPEERAUTH;
        conn->lingers = conn->cfg->greets;
        break;
    default: /* end of stream, or the transport failed */
        conn->failure = NNG_ECONNRESET;
        break;
    }
    ERR_clear_error();
    return conn_failure(conn);
}

/* Writes what nng wrote before the handshake was done. */
static int conn_flush_kept(nng_tls_engine_conn *conn)
{
    while (conn->kept_sent < conn->kept_size) {
        size_t n = 0;
        ERR_clear_error();
        int result = SSL_write_ex(conn->ssl, conn->kept + conn->kept_sent,
                                  conn->kept_size - conn->kept_sent, &n);
        if (result != 1)
            return conn_result(conn, result);
        conn->kept_sent += n;
    }
    return 0;
}

static int conn_handshake(nng_tls_engine_conn *conn)
{
    if (!conn->ssl || conn->closed)
        return NNG_ECLOSED;
    if (conn->failure)
        return conn_failure(conn);
    if (conn->done)
        return 0;
    ERR_clear_error();
    int result = SSL_do_handshake(conn->ssl);
    int rv = result == 1 ? conn_flush_kept(conn) : conn_result(conn, result);
    conn->done = rv == 0;
    return rv;
}

static int conn_write(nng_tls_engine_conn *conn, const uint8_t *data, size_t *size)
{
    int rv = conn_handshake(conn);
    size_t room = sizeof conn->kept - conn->kept_size;
    if (rv == NNG_EAGAIN && !conn->failure && conn->kept_sent == 0 && *size <= room &&
        !SSL_is_init_finished(conn->ssl)) {
        memcpy(conn->kept + conn->kept_size, data, *size);
        conn->kept_size += *size;
        return 0;
    }
    if (rv != 0)
        return rv;
    size_t n = 0;
    ERR_clear_error();
    int result = SSL_write_ex(conn->ssl, data, *size, &n);
    if (result != 1)
        return conn_result(conn, result);
    *size = n;
    return 0;
}

static int conn_send(nng_tls_engine_conn *conn, const uint8_t *data, size_t *size)
{
    conn_arrive(conn);
    int rv = conn_write(conn, data, size);
    if (rv != 0 || conn->greeting_taken >= GREETING_BYTES)
        return rv;
    conn->greeting_taken += *size;
    return conn_set_off(conn);
}

/* Reads the peer's real greeting where nng was given it ahead. */
static int conn_check_greeting(nng_tls_engine_conn *conn)
{
    while (conn->cfg->greets && conn->greeting_got < GREETING_BYTES) {
        size_t n = 0;
        ERR_clear_error();
        int result = SSL_read_ex(conn->ssl, conn->greeting + conn->greeting_got,
                                 GREETING_BYTES - conn->greeting_got, &n);
        if (result != 1)
            return conn_result(conn, result);
        conn->greeting_got += n;
        if (conn->greeting_got == GREETING_BYTES &&
            memcmp(conn->greeting, conn->cfg->greeting, GREETING_BYTES) != 0) {
            report_set(conn->cfg->report, false, "the peer speaks another protocol of nng");
            conn->failure = NNG_ECONNRESET;
            return conn->failure;
        }
    }
    return 0;
}

static int conn_read(nng_tls_engine_conn *conn, uint8_t *data, size_t *size)
{
    if (!conn->ssl || conn->closed)
        return NNG_ECLOSED;
    if (conn->cfg->greets && conn->greeting_given < GREETING_BYTES) {
        /* Whatever became of the handshake: the pipe learns of it, not the listener. */
        size_t left = GREETING_BYTES - conn->greeting_given;
        *size = *size < left ? *size : left;
        memcpy(data, conn->cfg->greeting + conn->greeting_given, *size);
        return 0;
    }
    int rv = conn_handshake(conn);
    if (rv == 0)
        rv = conn_check_greeting(conn);
    if (rv != 0)
        return rv;
    size_t n = 0;
    ERR_clear_error();
    int result = SSL_read_ex(conn->ssl, data, *size, &n);
    if (result != 1)
        return conn_result(conn, result);
    *size = n;
    return 0;
}

static int conn_recv(nng_tls_engine_conn *conn, uint8_t *data, size_t *size)
{
    conn_arrive(conn);
    int rv = conn_read(conn, data, size);
    if (rv != 0 || conn->greeting_given >= GREETING_BYTES)
        return rv;
    conn->greeting_given += *size;
    return conn_set_off(conn);
}

/* True when the handshake is done; it is done only if every demanded check passed. */
static bool conn_verified(nng_tls_engine_conn *conn)
{
    return conn->ssl && conn->done && !conn->failure && !conn->closed;
}

/* --- Registration --- */

static nng_tls_engine_config_ops config_ops = {
    .size = sizeof(nng_tls_engine_config),
    .init = config_init,
    .fini = config_fini,
    .server = config_op_server,
    .auth = config_op_auth,
    .ca_chain = config_op_ca_chain,
    .own_cert = config_op_own_cert,
    .version = config_op_version,
};

/* nng copies the whole struct, which grew in later versions: room for what they would read. */
static struct {
    nng_tls_engine_conn_ops ops;
    void *room[8];
} conn_ops = {.ops = {
                  .size = sizeof(nng_tls_engine_conn),
                  .init = conn_init,
                  .fini = conn_fini,
                  .close = conn_close,
                  .handshake = conn_handshake,
                  .recv = conn_recv,
                  .send = conn_send,
                  .verified = conn_verified,
              }};

static const nng_tls_engine engine = {
    .version = NNG_TLS_ENGINE_V1,
    .config_ops = &config_ops,
    .conn_ops = &conn_ops.ops,
    .name = ENGINE_NAME,
    .description = "OpenSSL, TLS 1.3 only",
    .fips_mode = false,
};

static tacit_status register_engine(tacit_error *err)
{
    /* Asking for the name initialises nng, which installs its own engine then. */
    if (strcmp(nng_tls_engine_name(), ENGINE_NAME) == 0)
        return TACIT_OK;
    if (strncmp(nng_version(), "1.5.", 4) != 0)
        return tacit_fail(err, TACIT_FAILED,
                          "nng %s: the TLS engine is written for nng 1.5; install libnng 1.5.2",
                          nng_version());
    if (!make_bio_method())
        return pem_fail(err, TACIT_NO_MEMORY, "TLS engine");
    int rv = nng_tls_engine_register(&engine);
    if (rv != 0 || strcmp(nng_tls_engine_name(), ENGINE_NAME) != 0)
        return tacit_fail(err, TACIT_FAILED, "nng keeps its TLS engine '%s': %s",
                          nng_tls_engine_name(), nng_strerror(rv));
    return TACIT_OK;
}

tacit_status tacit_tls_start(tacit_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    tacit_status status = register_engine(err);
    pthread_mutex_unlock(&lock);
    return status;
}

static void config_set_greeting(nng_tls_engine_config *cfg, uint16_t peer)
{
    const uint8_t greeting[GREETING_BYTES] = {0, 'S', 'P', 0, (uint8_t)(peer >> 8), (uint8_t)peer,
                                              0, 0};
    memcpy(cfg->greeting, greeting, sizeof greeting);
    cfg->greets = peer != 0;
}

static tacit_status config_apply(nng_tls_engine_config *cfg, const tacit_tls_setup *setup,
                                 tacit_error *err)
{
    tacit_status status = TACIT_OK;
    if (setup->server ? !setup->certificate_pem
                      : !setup->peer_name || (!setup->roots_pem && !setup->root_pin))
        return tacit_fail(err, TACIT_USAGE,
                          "TLS: a server needs a certificate, a client a name and a root");
    if (setup->certificate_pem)
        TACIT_TRY(config_set_own(cfg, setup->certificate_pem, setup->key_pem, err), done);
    if (setup->roots_pem) {
        TACIT_TRY(config_set_roots(cfg, setup->roots_pem, setup->crl_pem, err), done);
        config_demand_certificate(cfg, true);
    } else if (setup->root_pin && !setup->server) {
        memcpy(cfg->pin, setup->root_pin, sizeof cfg->pin);
        cfg->pinned = true;
    }
    if (!setup->server)
        TACIT_TRY(config_set_name(cfg, setup->peer_name, err), done);
    else
        config_set_greeting(cfg, setup->sp_peer);
done:
    return status;
}

tacit_status tacit_tls_config_new(nng_tls_config **config, tls_gate **gate,
                                  tacit_tls_report **report, const tacit_tls_setup *setup,
                                  tacit_error *err)
{
    *config = NULL;
    tacit_status status = tacit_tls_start(err);
    if (status != TACIT_OK)
        return status;
    newest_config = NULL;
    int rv =
        nng_tls_config_alloc(config, setup->server ? NNG_TLS_MODE_SERVER : NNG_TLS_MODE_CLIENT);
    nng_tls_engine_config *cfg = newest_config;
    newest_config = NULL;
    if (rv != 0 || !cfg)
        return tacit_fail(err, TACIT_NO_MEMORY, "TLS configuration: %s", nng_strerror(rv));
    status = config_apply(cfg, setup, err);
    if (status != TACIT_OK) {
        nng_tls_config_free(*config);
        *config = NULL;
        return status;
    }
    *gate = &cfg->gate;
    if (report) {
        atomic_fetch_add(&cfg->report->references, 1);
        *report = cfg->report;
    }
    return TACIT_OK;
}
