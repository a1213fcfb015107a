/* Certificates: what is issued is read back by the openssl program (an implementation with its own
 * view of the fields), hostile requests get nothing but their key, times are the injected clock's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/certificate.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"
#include "common/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static tacit_ca *ca;
static const uint8_t device[16] = {0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const char *const names[] = {"server.example", "127.0.0.1", "::1"};

static uint64_t fixed_now;
static uint64_t fixed_clock(void *ctx)
{
    (void)ctx;
    return fixed_now;
}

static void in_folder(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", folder, name);
}

/* Output of a shell command, which must succeed; "$F" in it is `argument`. */
static void shell(char *out, size_t size, const char *command, const char *argument)
{
    assert_int_equal(setenv("F", argument, 1), 0);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, size - 1, pipe);
    out[n] = 0;
    assert_int_equal(pclose(pipe), 0);
}

static void save(const char *path, const void *data, size_t size)
{
    tacit_error err;
    assert_int_equal(tacit_file_write(path, data, size, 0600, &err), TACIT_OK);
}

static int setup(void **state)
{
    tacit_error err;
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tacit-certificate-XXXXXX");
    if (!mkdtemp(folder) || tacit_ca_create(folder, "Fleet root", &err) != TACIT_OK ||
        tacit_ca_load(&ca, folder, &err) != TACIT_OK)
        return -1;
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    tacit_ca_free(ca);
    tacit_clock_inject(NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void make_key(tacit_secret *pem, const char *name)
{
    char path[128];
    tacit_error err;
    in_folder(path, name);
    assert_int_equal(tacit_tls_key_create(path, &err), TACIT_OK);
    assert_int_equal(tacit_tls_key_load(pem, path, &err), TACIT_OK);
}

static char *make_device(tacit_secret *key)
{
    uint8_t *csr;
    size_t size;
    char *chain;
    tacit_error err;
    make_key(key, "device.key");
    assert_int_equal(tacit_csr_create((const char *)key->data, &csr, &size, &err), TACIT_OK);
    assert_int_equal(tacit_ca_issue_device(ca, csr, size, device, &chain, &err), TACIT_OK);
    free(csr);
    return chain;
}

static void root_is_never_replaced(void **state)
{
    char path[128], out[4096];
    struct stat st;
    tacit_error err;
    uint8_t fingerprint[32];
    char hex[65], plain[256] = "";
    (void)state;
    assert_int_equal(tacit_ca_create(folder, "Another", &err), TACIT_CONFLICT);
    in_folder(path, "ca.key");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    in_folder(path, "ca.pem");
    shell(out, sizeof out, "openssl x509 -in $F -noout -text", path);
    assert_non_null(strstr(out, "CN = Fleet root"));
    assert_non_null(strstr(out, "CA:TRUE, pathlen:0"));
    assert_non_null(strstr(out, "Certificate Sign, CRL Sign"));
    shell(out, sizeof out, "openssl x509 -in $F -noout -fingerprint -sha256 | cut -d= -f2", path);
    size_t n = 0;
    for (char *c = out; *c; c++)
        if (*c != ':' && *c != '\n')
            plain[n++] = (char)(*c >= 'A' ? *c + 32 : *c);
    tacit_ca_fingerprint(ca, fingerprint);
    tacit_hex(hex, fingerprint, 32);
    assert_string_equal(hex, plain);
}

static void server_certificate_holds_names(void **state)
{
    tacit_secret key;
    char path[128], out[8192], *chain;
    tacit_error err;
    (void)state;
    make_key(&key, "server.key");
    assert_int_equal(tacit_ca_issue_server(ca, (const char *)key.data, names, 3, &chain, &err),
                     TACIT_OK);
    in_folder(path, "server.pem");
    save(path, chain, strlen(chain));
    shell(out, sizeof out, "openssl x509 -in $F -noout -text", path);
    assert_non_null(strstr(out, "DNS:server.example, IP Address:127.0.0.1, "
                                "IP Address:0:0:0:0:0:0:0:1"));
    assert_non_null(strstr(out, "TLS Web Server Authentication"));
    assert_null(strstr(out, "TLS Web Client Authentication"));
    shell(out, sizeof out, "grep -c BEGIN $F", path);
    assert_string_equal(out, "2\n");
    assert_int_equal(tacit_certificate_verify(chain, tacit_ca_root_pem(ca), TACIT_USE_SERVER, &err),
                     TACIT_OK);
    assert_int_equal(tacit_certificate_verify(chain, tacit_ca_root_pem(ca), TACIT_USE_CLIENT, &err),
                     TACIT_INTEGRITY);
    assert_int_equal(tacit_certificate_matches_key(chain, (const char *)key.data, &err), TACIT_OK);
    free(chain);
    const char *const bad[] = {"a,DNS:evil.example", "", "-a", "a..b", "a b", "*.example", "a."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(
            tacit_ca_issue_server(ca, (const char *)key.data, &bad[i], 1, &chain, &err),
            TACIT_BAD_INPUT);
    tacit_secret_free(&key);
}

static void device_certificate_names_device(void **state)
{
    tacit_secret key, other;
    char path[128], out[8192];
    tacit_certificate_info info;
    tacit_error err;
    (void)state;
    fixed_now = 1800000000000;
    tacit_clock_inject(fixed_clock, NULL);
    char *chain = make_device(&key);
    in_folder(path, "device.pem");
    save(path, chain, strlen(chain));
    shell(out, sizeof out, "openssl x509 -in $F -noout -text", path);
    assert_non_null(strstr(out, "URI:urn:tacit:device:ab0102030405060708090a0b0c0d0e0f"));
    assert_non_null(strstr(out, "TLS Web Client Authentication"));
    assert_null(strstr(out, "TLS Web Server Authentication"));
    assert_non_null(strstr(out, "CA:FALSE"));
    assert_int_equal(tacit_certificate_read(chain, &info, &err), TACIT_OK);
    assert_true(info.has_device);
    assert_memory_equal(info.device, device, 16);
    assert_int_equal(info.not_before_ms, 1800000000000 - 3600000);
    assert_int_equal(info.not_after_ms, 1800000000000 + 30ull * 86400000);
    assert_false(tacit_certificate_is_due(&info, 1800000000000 + 14ull * 86400000));
    assert_true(tacit_certificate_is_due(&info, 1800000000000 + 16ull * 86400000));
    make_key(&other, "other.key");
    assert_int_equal(tacit_certificate_matches_key(chain, (const char *)other.data, &err),
                     TACIT_INTEGRITY);
    free(chain);
    tacit_secret_free(&key);
    tacit_secret_free(&other);
    tacit_clock_inject(NULL, NULL);
}

static void expiry_follows_clock_and_floor(void **state)
{
    tacit_secret key;
    tacit_error err;
    (void)state;
    fixed_now = 1800000000000;
    tacit_clock_inject(fixed_clock, NULL);
    char *chain = make_device(&key);
    const char *root = tacit_ca_root_pem(ca);
    assert_int_equal(tacit_certificate_verify(chain, root, TACIT_USE_CLIENT, &err), TACIT_OK);
    fixed_now += 31ull * 86400000;
    assert_int_equal(tacit_certificate_verify(chain, root, TACIT_USE_CLIENT, &err),
                     TACIT_INTEGRITY);
    assert_non_null(strstr(err.message, "expired"));
    fixed_now = 1800000000000;
    assert_int_equal(tacit_certificate_verify(chain, root, TACIT_USE_CLIENT, &err), TACIT_OK);
    tacit_tls_raise_time_floor(1800000000000 + 31ull * 86400000);
    tacit_tls_raise_time_floor(5); /* never sinks */
    assert_int_equal(tacit_certificate_verify(chain, root, TACIT_USE_CLIENT, &err),
                     TACIT_INTEGRITY);
    tacit_tls_reset_time_floor();
    free(chain);
    tacit_secret_free(&key);
    tacit_clock_inject(NULL, NULL);
}

static void serials_differ(void **state)
{
    tacit_secret key;
    char path[128], first[128], second[128];
    (void)state;
    in_folder(path, "serial.pem");
    for (int i = 0; i < 2; i++) {
        char *chain = make_device(&key);
        save(path, chain, strlen(chain));
        shell(i ? second : first, 128, "openssl x509 -in $F -noout -serial", path);
        free(chain);
        tacit_secret_free(&key);
    }
    assert_true(strlen(first) > 30);
    assert_string_not_equal(first, second);
}

/* A request by the openssl program that asks for everything. */
static void hostile_wishes_are_ignored(void **state)
{
    char path[128], out[8192], *chain;
    uint8_t *csr;
    size_t size;
    tacit_error err;
    (void)state;
    in_folder(path, "wish");
    shell(out, sizeof out,
          "cd $F && openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "
          "wish.key -outform DER -out wish.csr -subj /CN=root/O=evil -addext basicConstraints="
          "critical,CA:TRUE -addext subjectAltName=DNS:server.example -addext "
          "extendedKeyUsage=serverAuth 2>/dev/null",
          folder);
    in_folder(path, "wish.csr");
    assert_int_equal(tacit_file_read(path, 10000, &csr, &size, &err), TACIT_OK);
    assert_int_equal(tacit_ca_issue_device(ca, csr, size, device, &chain, &err), TACIT_OK);
    in_folder(path, "wish.pem");
    save(path, chain, strlen(chain));
    shell(out, sizeof out, "openssl x509 -in $F -noout -text", path);
    assert_null(strstr(out, "CA:TRUE"));
    assert_null(strstr(out, "server.example"));
    assert_null(strstr(out, "evil"));
    assert_null(strstr(out, "TLS Web Server Authentication"));
    assert_non_null(strstr(out, "prime256v1"));
    free(chain);
    /* No byte of the request may change without notice: the signature covers all that counts. */
    size_t accepted = 0;
    for (size_t i = 0; i < size; i++) {
        csr[i] ^= 0x40;
        if (tacit_ca_issue_device(ca, csr, size, device, &chain, &err) == TACIT_OK) {
            accepted++;
            free(chain);
        } else {
            assert_int_equal(err.status, TACIT_BAD_INPUT);
        }
        csr[i] ^= 0x40;
    }
    assert_int_equal(accepted, 0);
    for (size_t cut = 0; cut < size; cut += 7)
        assert_int_equal(tacit_ca_issue_device(ca, csr, cut, device, &chain, &err),
                         TACIT_BAD_INPUT);
    uint8_t *longer = calloc(1, size + 1);
    memcpy(longer, csr, size);
    assert_int_equal(tacit_ca_issue_device(ca, longer, size + 1, device, &chain, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "trailing"));
    free(longer);
    uint8_t *huge = calloc(1, TACIT_CSR_MAX + 1);
    assert_int_equal(tacit_ca_issue_device(ca, huge, TACIT_CSR_MAX + 1, device, &chain, &err),
                     TACIT_BAD_INPUT);
    free(huge);
    free(csr);
}

static void weak_keys_are_refused(void **state)
{
    static const char *const options[] = {"rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-384",
                                          "ec -pkeyopt ec_paramgen_curve:P-256 -pkeyopt "
                                          "ec_param_enc:explicit"};
    char command[512], path[128], *chain, out[64];
    uint8_t *csr;
    size_t size;
    tacit_error err;
    (void)state;
    in_folder(path, "weak.csr");
    for (size_t i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "openssl req -new -newkey %s -nodes -keyout /dev/null -outform DER -out $F "
                 "-subj /CN=x 2>/dev/null",
                 options[i]);
        shell(out, sizeof out, command, path);
        assert_int_equal(tacit_file_read(path, 10000, &csr, &size, &err), TACIT_OK);
        assert_int_equal(tacit_ca_issue_device(ca, csr, size, device, &chain, &err),
                         TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, "Ed25519 or P-256"));
        free(csr);
    }
}

static void damaged_pem_is_refused(void **state)
{
    tacit_certificate_info info;
    tacit_error err;
    (void)state;
    assert_int_equal(tacit_certificate_read("", &info, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_certificate_read("-----BEGIN CERTIFICATE-----\nAAAA\n", &info, &err),
                     TACIT_BAD_INPUT);
    char *huge = malloc(TACIT_PEM_MAX + 2);
    memset(huge, 'a', TACIT_PEM_MAX + 1);
    huge[TACIT_PEM_MAX + 1] = 0;
    assert_int_equal(tacit_certificate_read(huge, &info, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "at most"));
    free(huge);
    const char *root = tacit_ca_root_pem(ca);
    char *many = calloc(20, strlen(root) + 1);
    for (int i = 0; i < 17; i++)
        memcpy(many + (size_t)i * strlen(root), root, strlen(root) + 1);
    assert_int_equal(tacit_certificate_read(many, &info, &err), TACIT_BAD_INPUT);
    free(many);
}

static void strangers_are_refused(void **state)
{
    char other_folder[128], *chain;
    tacit_ca *other;
    tacit_secret key;
    tacit_error err;
    uint8_t *csr;
    size_t size;
    (void)state;
    in_folder(other_folder, "other");
    assert_int_equal(tacit_file_make_dir(other_folder, 0700, &err), TACIT_OK);
    assert_int_equal(tacit_ca_create(other_folder, "Fleet root", &err), TACIT_OK);
    assert_int_equal(tacit_ca_load(&other, other_folder, &err), TACIT_OK);
    make_key(&key, "stranger.key");
    assert_int_equal(tacit_csr_create((const char *)key.data, &csr, &size, &err), TACIT_OK);
    assert_int_equal(tacit_ca_issue_device(other, csr, size, device, &chain, &err), TACIT_OK);
    assert_int_equal(tacit_certificate_verify(chain, tacit_ca_root_pem(ca), TACIT_USE_CLIENT, &err),
                     TACIT_INTEGRITY);
    assert_int_equal(
        tacit_certificate_verify(chain, tacit_ca_root_pem(other), TACIT_USE_CLIENT, &err),
        TACIT_OK);
    /* Two roots side by side, as while one replaces the other. */
    char *both = calloc(1, strlen(tacit_ca_root_pem(ca)) + strlen(tacit_ca_root_pem(other)) + 1);
    memcpy(both, tacit_ca_root_pem(ca), strlen(tacit_ca_root_pem(ca)));
    memcpy(both + strlen(both), tacit_ca_root_pem(other), strlen(tacit_ca_root_pem(other)));
    assert_int_equal(tacit_certificate_verify(chain, both, TACIT_USE_CLIENT, &err), TACIT_OK);
    free(both);
    free(csr);
    free(chain);
    tacit_ca_free(other);
    tacit_secret_free(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_is_never_replaced),
        cmocka_unit_test(server_certificate_holds_names),
        cmocka_unit_test(device_certificate_names_device),
        cmocka_unit_test(expiry_follows_clock_and_floor),
        cmocka_unit_test(serials_differ),
        cmocka_unit_test(hostile_wishes_are_ignored),
        cmocka_unit_test(weak_keys_are_refused),
        cmocka_unit_test(damaged_pem_is_refused),
        cmocka_unit_test(strangers_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
