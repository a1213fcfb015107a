/* X.509 certificates of a deployment (RFC 5280) through OpenSSL: one root of the server, its TLS
 * certificate, and a certificate for each device's TLS key. The root only says "this key belongs to
 * a device enrolled here"; who sends a request is decided by the signed envelope.
 *
 * Names and extensions of a request for a certificate (PKCS #10) are ignored: the issuer writes its
 * own. Times come from common/clock.h. PEM and DER from outside are capped before they are parsed.
 * Every function is thread-safe except where one tacit_ca is shared: then calls are serialised by
 * the caller. Strings returned through `char **` are malloc'ed, NUL-terminated, the caller's. */
#ifndef TACIT_COMMON_CERTIFICATE_H
#define TACIT_COMMON_CERTIFICATE_H

#include "common/digest.h"
#include "common/identity.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TACIT_PEM_MAX 65536       /* most bytes of a PEM text, chains and several roots included */
#define TACIT_CSR_MAX 4096        /* most bytes of a request in DER */
#define TACIT_CERTIFICATE_DAYS 30 /* devices and server */
#define TACIT_ROOT_DAYS 7300      /* 20 years: a new root is a new enrolment of every device */
#define TACIT_CERTIFICATE_SLACK_S 3600 /* certificates start this long before they are issued */

/* --- TLS keys --- */

/* Makes an Ed25519 TLS key, PEM (PKCS #8), mode 0600, replacing an existing file atomically: a
 * renewal makes a new key each time. */
tacit_status tacit_tls_key_create(const char *path, tacit_error *err) TACIT_MUST_CHECK;

/* The PEM text in guarded memory, NUL-terminated (size counts the NUL). */
tacit_status tacit_tls_key_load(tacit_secret *pem, const char *path,
                                tacit_error *err) TACIT_MUST_CHECK;

/* PKCS #10 request, DER, signed by the key (proof of possession). *der is malloc'ed. */
tacit_status tacit_csr_create(const char *key_pem, uint8_t **der, size_t *size,
                              tacit_error *err) TACIT_MUST_CHECK;

/* --- The issuer --- */

typedef struct tacit_ca tacit_ca;

/* Makes a root: DIR/ca.key (0600) and DIR/ca.pem (0644), valid TACIT_ROOT_DAYS. `name` appears as
 * its common name (1 to 64 printable ASCII characters). TACIT_CONFLICT when one of them exists. */
tacit_status tacit_ca_create(const char *dir, const char *name, tacit_error *err) TACIT_MUST_CHECK;

/* Loads both and checks that the first certificate of ca.pem is the key's. Further ones there are
 * roots that are trusted beside it, while one takes the other's place. */
tacit_status tacit_ca_load(tacit_ca **out, const char *dir, tacit_error *err) TACIT_MUST_CHECK;
void tacit_ca_free(tacit_ca *ca);

/* Life of the certificates issued from now on, 1 to 398 days; TACIT_CERTIFICATE_DAYS at first. */
void tacit_ca_set_days(tacit_ca *ca, unsigned days);

/* The own root and after it the others of ca.pem: what devices are to trust, and what their
 * certificates are held against. Valid as long as `ca`. */
const char *tacit_ca_root_pem(const tacit_ca *ca);

/* The root's fingerprint that an enrolment token carries: SHA-256 of its DER bytes, as
 * `openssl x509 -fingerprint -sha256` prints it. */
void tacit_ca_fingerprint(const tacit_ca *ca, uint8_t out[TACIT_DIGEST_BYTES]);

/* TACIT_BAD_INPUT unless a server certificate can be made out to the name. */
tacit_status tacit_server_name_check(const char *name, tacit_error *err) TACIT_MUST_CHECK;

/* A server certificate for the key in `key_pem`: serverAuth only, 30 days, subject alternative
 * names from `names` (1 to 16; each a DNS name or an IPv4 or IPv6 address). *chain is the
 * certificate followed by the root, so that a device which knows only the fingerprint can check
 * it. TACIT_BAD_INPUT for a malformed name. */
tacit_status tacit_ca_issue_server(tacit_ca *ca, const char *key_pem, const char *const *names,
                                   size_t count, char **chain, tacit_error *err) TACIT_MUST_CHECK;

/* A device certificate for the key of a hostile PKCS #10 request (DER, at most TACIT_CSR_MAX):
 * proof of possession is checked, the key must be Ed25519 or P-256, trailing bytes are refused,
 * everything else in the request is ignored. The result has a random serial of 159 bits, SAN URI
 * urn:tacit:device:HEX, clientAuth only, CA false, 30 days. *chain is one certificate (PEM).
 * TACIT_BAD_INPUT says what is wrong with the request. */
tacit_status tacit_ca_issue_device(tacit_ca *ca, const uint8_t *csr, size_t size,
                                   const uint8_t device[TACIT_DEVICE_BYTES], char **chain,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* --- Reading certificates: the first one of a PEM text --- */

typedef struct tacit_certificate_info {
    uint64_t not_before_ms, not_after_ms;    /* wall clock */
    uint8_t fingerprint[TACIT_DIGEST_BYTES]; /* SHA-256 of the DER bytes */
    bool has_device;
    uint8_t device[TACIT_DEVICE_BYTES]; /* from SAN urn:tacit:device:HEX */
} tacit_certificate_info;

tacit_status tacit_certificate_read(const char *pem, tacit_certificate_info *out,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* True when more than half of the life of the certificate is over at `now_ms`: time to renew. */
bool tacit_certificate_is_due(const tacit_certificate_info *info, uint64_t now_ms);

/* TACIT_INTEGRITY when the first certificate of `chain` is not for the private key `key_pem`. */
tacit_status tacit_certificate_matches_key(const char *chain, const char *key_pem,
                                           tacit_error *err) TACIT_MUST_CHECK;

typedef enum tacit_certificate_use {
    TACIT_USE_CLIENT, /* clientAuth */
    TACIT_USE_SERVER  /* serverAuth */
} tacit_certificate_use;

/* Checks `chain` up to one of `roots` (PEM, one or more) for the use, at the wall clock or the time
 * floor (tls_engine.h), whichever is later. TACIT_INTEGRITY with OpenSSL's reason in words. */
tacit_status tacit_certificate_verify(const char *chain, const char *roots,
                                      tacit_certificate_use use, tacit_error *err) TACIT_MUST_CHECK;

#endif
