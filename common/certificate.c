#include "common/certificate.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/pem.h"
#include "common/text.h"
#include "common/tls.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEVICE_URI "urn:tacit:device:"
enum {
    DEVICE_URI_BYTES = sizeof DEVICE_URI - 1,
    SERVER_NAMES_MAX = 16,
    COMMON_NAME_MAX = 64,
    DAYS_MAX = 398
};

struct tacit_ca {
    X509 *certificate;
    EVP_PKEY *key;
    char *root_pem;
    unsigned days; /* life of what it issues */
};

/* --- PEM out --- */

static tacit_status copy_out(BIO *bio, char **out, tacit_error *err)
{
    char *data;
    long size = BIO_get_mem_data(bio, &data);
    *out = size > 0 ? malloc((size_t)size + 1) : NULL;
    if (!*out)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a PEM text");
    memcpy(*out, data, (size_t)size);
    (*out)[size] = 0;
    return TACIT_OK;
}

static tacit_status certificates_to_pem(X509 *const *certificates, int count, char **out,
                                        tacit_error *err)
{
    BIO *bio = BIO_new(BIO_s_mem());
    bool written = bio != NULL;
    for (int i = 0; written && i < count; i++)
        written = PEM_write_bio_X509(bio, certificates[i]) == 1;
    tacit_status status = written ? copy_out(bio, out, err)
                                  : pem_fail(err, TACIT_FAILED, "cannot write a certificate");
    BIO_free(bio);
    return status;
}

static tacit_status store_key(EVP_PKEY *key, const char *path, tacit_error *err)
{
    char *data;
    tacit_status status;
    BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || !PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) {
        status = pem_fail(err, TACIT_FAILED, "cannot write a private key");
    } else {
        long size = BIO_get_mem_data(bio, &data);
        status = tacit_file_write(path, data, (size_t)size, 0600, err);
        OPENSSL_cleanse(data, (size_t)size);
    }
    BIO_free(bio);
    return status;
}

/* --- Keys and requests --- */

static tacit_status fresh_key(EVP_PKEY **key, tacit_error *err)
{
    *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    return *key ? TACIT_OK : pem_fail(err, TACIT_FAILED, "cannot make an Ed25519 key");
}

tacit_status tacit_tls_key_create(const char *path, tacit_error *err)
{
    EVP_PKEY *key;
    tacit_status status = fresh_key(&key, err);
    if (status != TACIT_OK)
        return status;
    status = store_key(key, path, err);
    EVP_PKEY_free(key);
    return status;
}

tacit_status tacit_tls_key_load(tacit_secret *pem, const char *path, tacit_error *err)
{
    tacit_secret bytes = {0};
    EVP_PKEY *key = NULL;
    tacit_status status;
    *pem = (tacit_secret){0};
    TACIT_TRY(tacit_secret_load(&bytes, path, 1, TACIT_PEM_MAX, err), done);
    TACIT_TRY(tacit_secret_new(pem, bytes.size + 1, err), done);
    memcpy(pem->data, bytes.data, bytes.size);
    status = pem_private_key((const char *)pem->data, &key, err);
    if (status != TACIT_OK) {
        tacit_fail_context(err, "%s", path);
        tacit_secret_free(pem);
    }
done:
    EVP_PKEY_free(key);
    tacit_secret_free(&bytes);
    return status;
}

static bool fill_request(X509_REQ *request, EVP_PKEY *key)
{
    return X509_REQ_set_version(request, X509_REQ_VERSION_1) && X509_REQ_set_pubkey(request, key) &&
           X509_REQ_sign(request, key, NULL) > 0;
}

tacit_status tacit_csr_create(const char *key_pem, uint8_t **der, size_t *size, tacit_error *err)
{
    EVP_PKEY *key;
    X509_REQ *request = NULL;
    unsigned char *made = NULL;
    tacit_status status = pem_private_key(key_pem, &key, err);
    if (status != TACIT_OK)
        return status;
    request = X509_REQ_new();
    int length = request && fill_request(request, key) ? i2d_X509_REQ(request, &made) : -1;
    *der = length > 0 ? malloc((size_t)length) : NULL;
    if (*der) {
        memcpy(*der, made, (size_t)length);
        *size = (size_t)length;
    } else {
        status = pem_fail(err, TACIT_FAILED, "cannot make a certificate request");
    }
    OPENSSL_free(made);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    return status;
}

static bool is_p256(EVP_PKEY *key)
{
    char group[32] = "", encoding[32] = "";
    size_t n = 0;
    return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
           EVP_PKEY_get_group_name(key, group, sizeof group, &n) &&
           EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_EC_ENCODING, encoding,
                                          sizeof encoding, &n) &&
           strcmp(group, "prime256v1") == 0 && strcmp(encoding, "named_curve") == 0;
}

/* Takes nothing from the request but its key, and that only with proof of possession. */
static tacit_status key_of_request(const uint8_t *csr, size_t size, EVP_PKEY **key,
                                   tacit_error *err)
{
    const unsigned char *at = csr;
    tacit_status status = TACIT_OK;
    *key = NULL;
    if (size > TACIT_CSR_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "certificate request: expected at most %d bytes, found %zu",
                          TACIT_CSR_MAX, size);
    X509_REQ *request = d2i_X509_REQ(NULL, &at, (long)size);
    if (!request)
        return pem_fail(err, TACIT_BAD_INPUT, "certificate request: not PKCS #10");
    *key = X509_REQ_get_pubkey(request);
    if (at != csr + size)
        status = tacit_fail(err, TACIT_BAD_INPUT, "certificate request: trailing bytes");
    else if (!*key)
        status = pem_fail(err, TACIT_BAD_INPUT, "certificate request: unusable key");
    else if (EVP_PKEY_get_base_id(*key) != EVP_PKEY_ED25519 && !is_p256(*key))
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "certificate request: expected an Ed25519 or P-256 key");
    else if (X509_REQ_verify(request, *key) != 1)
        status = pem_fail(err, TACIT_BAD_INPUT,
                          "certificate request: its signature does not prove the key");
    if (status != TACIT_OK) {
        EVP_PKEY_free(*key);
        *key = NULL;
    }
    X509_REQ_free(request);
    return status;
}

/* --- Making certificates --- */

static bool set_serial(X509 *certificate)
{
    uint8_t bytes[20];
    randombytes_buf(bytes, sizeof bytes);
    bytes[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return ok;
}

static bool set_life(X509 *certificate, unsigned days)
{
    time_t now = (time_t)(tacit_clock_wall_ms() / 1000);
    return ASN1_TIME_set(X509_getm_notBefore(certificate), now - TACIT_CERTIFICATE_SLACK_S) &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), now + (time_t)days * 86400);
}

static bool set_common_name(X509 *certificate, const char *name)
{
    X509_NAME *subject = X509_get_subject_name(certificate);
    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                                      -1, 0) == 1;
}

typedef struct extension {
    int nid;
    const char *value;
} extension;

/* The fixed extensions of each kind of certificate; subject alternative names come apart. */
static const extension root_extensions[] = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                            {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                            {NID_subject_key_identifier, "hash"},
                                            {0, NULL}};
static const extension server_extensions[] = {{NID_basic_constraints, "critical,CA:FALSE"},
                                              {NID_key_usage, "critical,digitalSignature"},
                                              {NID_ext_key_usage, "serverAuth"},
                                              {NID_subject_key_identifier, "hash"},
                                              {NID_authority_key_identifier, "keyid:always"},
                                              {0, NULL}};
static const extension device_extensions[] = {{NID_basic_constraints, "critical,CA:FALSE"},
                                              {NID_key_usage, "critical,digitalSignature"},
                                              {NID_ext_key_usage, "clientAuth"},
                                              {NID_subject_key_identifier, "hash"},
                                              {NID_authority_key_identifier, "keyid:always"},
                                              {0, NULL}};

static bool add_extensions(X509 *certificate, X509 *issuer, const extension *table)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, certificate, NULL, NULL, 0);
    X509V3_set_ctx_nodb(&ctx);
    for (const extension *e = table; e->value; e++) {
        X509_EXTENSION *made = X509V3_EXT_conf_nid(NULL, &ctx, e->nid, e->value);
        bool ok = made && X509_add_ext(certificate, made, -1);
        X509_EXTENSION_free(made);
        if (!ok)
            return false;
    }
    return true;
}

/* Everything but the subject alternative names and the signature. */
static X509 *start_certificate(X509 *issuer, EVP_PKEY *key, const char *common_name, unsigned days,
                               const extension *table)
{
    X509 *made = X509_new();
    X509 *parent = issuer ? issuer : made;
    if (made && X509_set_version(made, X509_VERSION_3) && set_serial(made) &&
        set_life(made, days) && set_common_name(made, common_name) && X509_set_pubkey(made, key) &&
        X509_set_issuer_name(made, X509_get_subject_name(parent)) &&
        add_extensions(made, parent, table))
        return made;
    X509_free(made);
    return NULL;
}

static tacit_status finish_certificate(tacit_ca *ca, X509 *made, GENERAL_NAMES *names, bool chain,
                                       char **pem, tacit_error *err)
{
    if (!made || !names || X509_add1_ext_i2d(made, NID_subject_alt_name, names, 0, 0) != 1 ||
        X509_sign(made, ca->key, NULL) <= 0)
        return pem_fail(err, TACIT_FAILED, "cannot make a certificate");
    X509 *const both[] = {made, ca->certificate};
    return certificates_to_pem(both, chain ? 2 : 1, pem, err);
}

static bool push_name(GENERAL_NAMES *names, int type, ASN1_STRING *value)
{
    GENERAL_NAME *name = value ? GENERAL_NAME_new() : NULL;
    if (!name) {
        ASN1_STRING_free(value);
        return false;
    }
    GENERAL_NAME_set0_value(name, type, value);
    if (sk_GENERAL_NAME_push(names, name))
        return true;
    GENERAL_NAME_free(name);
    return false;
}

static ASN1_STRING *ia5(const char *text)
{
    ASN1_IA5STRING *made = ASN1_IA5STRING_new();
    if (made && !ASN1_STRING_set(made, text, -1)) {
        ASN1_IA5STRING_free(made);
        return NULL;
    }
    return made;
}

/* Letters, digits, '-' in labels of 1 to 63, joined by dots (RFC 1123). */
static bool is_dns_name(const char *name)
{
    size_t label = 0, total = strlen(name);
    if (total == 0 || total > 253)
        return false;
    for (const char *c = name; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                      (*c >= '0' && *c <= '9') || (*c == '-' && label > 0);
        if (*c == '.' ? label == 0 : !letter || ++label > 63)
            return false;
        if (*c == '.')
            label = 0;
    }
    return label > 0;
}

static tacit_status refuse_server_name(const char *name, tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "'%s': expected a DNS name or an IP address of the server", name);
}

tacit_status tacit_server_name_check(const char *name, tacit_error *err)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(name);
    bool fits = address || is_dns_name(name);
    ASN1_OCTET_STRING_free(address);
    return fits ? TACIT_OK : refuse_server_name(name, err);
}

static tacit_status push_server_name(GENERAL_NAMES *names, const char *name, tacit_error *err)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(name);
    if (!address && !is_dns_name(name))
        return refuse_server_name(name, err);
    bool ok = address ? push_name(names, GEN_IPADD, address) : push_name(names, GEN_DNS, ia5(name));
    return ok ? TACIT_OK : pem_fail(err, TACIT_NO_MEMORY, "server names");
}

tacit_status tacit_ca_issue_server(tacit_ca *ca, const char *key_pem, const char *const *names,
                                   size_t count, char **chain, tacit_error *err)
{
    tacit_status status;
    EVP_PKEY *key = NULL;
    X509 *made = NULL;
    GENERAL_NAMES *alternative = GENERAL_NAMES_new();
    *chain = NULL;
    if (count < 1 || count > SERVER_NAMES_MAX) {
        status = tacit_fail(err, TACIT_BAD_INPUT, "server names: expected 1 to %d, found %zu",
                            SERVER_NAMES_MAX, count);
        goto done;
    }
    for (size_t i = 0; i < count; i++)
        TACIT_TRY(push_server_name(alternative, names[i], err), done);
    TACIT_TRY(pem_private_key(key_pem, &key, err), done);
    made = start_certificate(ca->certificate, key, "tacit-server", ca->days, server_extensions);
    TACIT_TRY(finish_certificate(ca, made, alternative, true, chain, err), done);
done:
    GENERAL_NAMES_free(alternative);
    X509_free(made);
    EVP_PKEY_free(key);
    return status;
}

tacit_status tacit_ca_issue_device(tacit_ca *ca, const uint8_t *csr, size_t size,
                                   const uint8_t device[TACIT_DEVICE_BYTES], char **chain,
                                   tacit_error *err)
{
    char uri[DEVICE_URI_BYTES + 2 * TACIT_DEVICE_BYTES + 1] = DEVICE_URI;
    X509 *made = NULL;
    EVP_PKEY *key;
    *chain = NULL;
    tacit_status status = key_of_request(csr, size, &key, err);
    if (status != TACIT_OK)
        return status;
    tacit_hex(uri + DEVICE_URI_BYTES, device, TACIT_DEVICE_BYTES);
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    if (names && push_name(names, GEN_URI, ia5(uri)))
        made = start_certificate(ca->certificate, key, uri + DEVICE_URI_BYTES, ca->days,
                                 device_extensions);
    status = finish_certificate(ca, made, names, false, chain, err);
    GENERAL_NAMES_free(names);
    X509_free(made);
    EVP_PKEY_free(key);
    return status;
}

/* --- The issuer --- */

static bool is_plain_name(const char *name)
{
    size_t size = strlen(name);
    if (size < 1 || size > COMMON_NAME_MAX)
        return false;
    for (const char *c = name; *c; c++)
        if (*c < 0x20 || *c > 0x7e)
            return false;
    return true;
}

typedef struct ca_paths {
    char certificate[4096], key[4096];
} ca_paths;

static tacit_status ca_paths_of(ca_paths *paths, const char *dir, tacit_error *err)
{
    tacit_status status =
        tacit_file_join(paths->certificate, sizeof paths->certificate, dir, "ca.pem", err);
    if (status == TACIT_OK)
        status = tacit_file_join(paths->key, sizeof paths->key, dir, "ca.key", err);
    return status;
}

tacit_status tacit_ca_create(const char *dir, const char *name, tacit_error *err)
{
    ca_paths paths;
    EVP_PKEY *key = NULL;
    X509 *root = NULL;
    char *pem = NULL;
    tacit_status status;
    TACIT_TRY(tacit_crypto_start(err), done);
    TACIT_TRY(ca_paths_of(&paths, dir, err), done);
    if (!is_plain_name(name))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "name of the root: expected 1 to %d printable ASCII characters",
                          COMMON_NAME_MAX);
    if (access(paths.certificate, F_OK) == 0 || access(paths.key, F_OK) == 0)
        return tacit_fail(err, TACIT_CONFLICT,
                          "%s: a root exists here; a new one would lock every device out", dir);
    TACIT_TRY(fresh_key(&key, err), done);
    root = start_certificate(NULL, key, name, TACIT_ROOT_DAYS, root_extensions);
    if (!root || X509_sign(root, key, NULL) <= 0) {
        status = pem_fail(err, TACIT_FAILED, "cannot make the root certificate");
        goto done;
    }
    TACIT_TRY(certificates_to_pem(&root, 1, &pem, err), done);
    TACIT_TRY(store_key(key, paths.key, err), done);
    TACIT_TRY(tacit_file_write(paths.certificate, pem, strlen(pem), 0644, err), done);
done:
    free(pem);
    X509_free(root);
    EVP_PKEY_free(key);
    return status;
}

static tacit_status ca_read(tacit_ca *ca, const ca_paths *paths, tacit_error *err)
{
    STACK_OF(X509) *certificates = NULL;
    tacit_secret key_pem = {0};
    X509 *roots[PEM_CERTIFICATES_MAX];
    uint8_t *text = NULL;
    size_t size;
    int count = 0;
    tacit_status status;
    TACIT_TRY(tacit_file_read(paths->certificate, TACIT_PEM_MAX, &text, &size, err), done);
    TACIT_TRY(pem_certificates((const char *)text, &certificates, err), done);
    TACIT_TRY(tacit_tls_key_load(&key_pem, paths->key, err), done);
    TACIT_TRY(pem_private_key((const char *)key_pem.data, &ca->key, err), done);
    for (int i = 0; i < sk_X509_num(certificates) && i < PEM_CERTIFICATES_MAX; i++)
        roots[count++] = sk_X509_value(certificates, i);
    TACIT_TRY(certificates_to_pem(roots, count, &ca->root_pem, err), done);
    ca->certificate = sk_X509_shift(certificates);
    if (X509_check_private_key(ca->certificate, ca->key) != 1) {
        status = pem_fail(err, TACIT_INTEGRITY, "ca.pem and ca.key do not belong together");
        goto done;
    }
done:
    if (certificates)
        sk_X509_pop_free(certificates, X509_free);
    tacit_secret_free(&key_pem);
    free(text);
    return status;
}

tacit_status tacit_ca_load(tacit_ca **out, const char *dir, tacit_error *err)
{
    ca_paths paths;
    *out = NULL;
    tacit_status status = tacit_crypto_start(err);
    if (status == TACIT_OK)
        status = ca_paths_of(&paths, dir, err);
    if (status != TACIT_OK)
        return status;
    tacit_ca *ca = calloc(1, sizeof *ca);
    if (!ca)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the root");
    ca->days = TACIT_CERTIFICATE_DAYS;
    status = ca_read(ca, &paths, err);
    if (status != TACIT_OK) {
        tacit_ca_free(ca);
        return tacit_fail_context(err, "%s", dir);
    }
    *out = ca;
    return TACIT_OK;
}

void tacit_ca_free(tacit_ca *ca)
{
    if (!ca)
        return;
    X509_free(ca->certificate);
    EVP_PKEY_free(ca->key);
    free(ca->root_pem);
    free(ca);
}

void tacit_ca_set_days(tacit_ca *ca, unsigned days)
{
    ca->days = days < 1 ? 1 : days > DAYS_MAX ? DAYS_MAX : days;
}

const char *tacit_ca_root_pem(const tacit_ca *ca)
{
    return ca->root_pem;
}

static void fingerprint_of(X509 *certificate, uint8_t out[TACIT_DIGEST_BYTES])
{
    unsigned int size = TACIT_DIGEST_BYTES;
    if (!X509_digest(certificate, EVP_sha256(), out, &size))
        memset(out, 0, TACIT_DIGEST_BYTES);
}

void tacit_ca_fingerprint(const tacit_ca *ca, uint8_t out[TACIT_DIGEST_BYTES])
{
    fingerprint_of(ca->certificate, out);
}

/* --- Reading --- */

static bool time_to_ms(const ASN1_TIME *time, uint64_t *ms)
{
    struct tm parts;
    if (!ASN1_TIME_to_tm(time, &parts))
        return false;
    time_t seconds = timegm(&parts);
    if (seconds < 0)
        return false;
    *ms = (uint64_t)seconds * 1000;
    return true;
}

static bool device_of(X509 *certificate, uint8_t device[TACIT_DEVICE_BYTES])
{
    bool found = false;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; names && !found && i < sk_GENERAL_NAME_num(names); i++) {
        int type;
        const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
        if (type != GEN_URI ||
            ASN1_STRING_length(value) != DEVICE_URI_BYTES + 2 * TACIT_DEVICE_BYTES)
            continue;
        char text[DEVICE_URI_BYTES + 2 * TACIT_DEVICE_BYTES + 1] = {0};
        memcpy(text, ASN1_STRING_get0_data(value), sizeof text - 1);
        found = memcmp(text, DEVICE_URI, DEVICE_URI_BYTES) == 0 &&
                tacit_unhex(device, TACIT_DEVICE_BYTES, text + DEVICE_URI_BYTES);
    }
    GENERAL_NAMES_free(names);
    return found;
}

tacit_status tacit_certificate_read(const char *pem, tacit_certificate_info *out, tacit_error *err)
{
    STACK_OF(X509) * chain;
    *out = (tacit_certificate_info){0};
    tacit_status status = pem_certificates(pem, &chain, err);
    if (status != TACIT_OK)
        return status;
    X509 *first = sk_X509_value(chain, 0);
    if (!time_to_ms(X509_get0_notBefore(first), &out->not_before_ms) ||
        !time_to_ms(X509_get0_notAfter(first), &out->not_after_ms))
        status = tacit_fail(err, TACIT_BAD_INPUT, "certificate: its times cannot be read");
    fingerprint_of(first, out->fingerprint);
    out->has_device = device_of(first, out->device);
    sk_X509_pop_free(chain, X509_free);
    return status;
}

bool tacit_certificate_is_due(const tacit_certificate_info *info, uint64_t now_ms)
{
    return now_ms > info->not_before_ms + (info->not_after_ms - info->not_before_ms) / 2;
}

tacit_status tacit_certificate_matches_key(const char *chain, const char *key_pem, tacit_error *err)
{
    STACK_OF(X509) *certificates = NULL;
    EVP_PKEY *key = NULL;
    tacit_status status;
    TACIT_TRY(pem_certificates(chain, &certificates, err), done);
    TACIT_TRY(pem_private_key(key_pem, &key, err), done);
    if (X509_check_private_key(sk_X509_value(certificates, 0), key) != 1)
        status = pem_fail(err, TACIT_INTEGRITY, "the certificate is not for this private key");
done:
    if (certificates)
        sk_X509_pop_free(certificates, X509_free);
    EVP_PKEY_free(key);
    return status;
}

static tacit_status run_verification(X509_STORE *store, STACK_OF(X509) * chain,
                                     tacit_certificate_use use, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    if (!ctx || !X509_STORE_CTX_init(ctx, store, sk_X509_value(chain, 0), chain)) {
        status = pem_fail(err, TACIT_NO_MEMORY, "cannot check a certificate");
    } else {
        X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
        X509_VERIFY_PARAM_set_time(param, (time_t)(tacit_tls_now_ms() / 1000));
        X509_STORE_CTX_set_purpose(ctx, use == TACIT_USE_CLIENT ? X509_PURPOSE_SSL_CLIENT
                                                                : X509_PURPOSE_SSL_SERVER);
        if (X509_verify_cert(ctx) != 1)
            status = tacit_fail(err, TACIT_INTEGRITY, "certificate: %s",
                                X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)));
    }
    X509_STORE_CTX_free(ctx);
    return status;
}

tacit_status tacit_certificate_verify(const char *chain, const char *roots,
                                      tacit_certificate_use use, tacit_error *err)
{
    STACK_OF(X509) *certificates = NULL, *trusted = NULL;
    X509_STORE *store = X509_STORE_new();
    tacit_status status;
    if (!store)
        return tacit_fail(err, TACIT_NO_MEMORY, "cannot check a certificate");
    TACIT_TRY(pem_certificates(chain, &certificates, err), done);
    TACIT_TRY(pem_certificates(roots, &trusted, err), done);
    for (int i = 0; i < sk_X509_num(trusted); i++)
        X509_STORE_add_cert(store, sk_X509_value(trusted, i));
    TACIT_TRY(run_verification(store, certificates, use, err), done);
done:
    if (certificates)
        sk_X509_pop_free(certificates, X509_free);
    if (trusted)
        sk_X509_pop_free(trusted, X509_free);
    X509_STORE_free(store);
    return status;
}
