/* Identities: RFC 8032 and RFC 7748 vectors, domains, the file and its damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/identity.h"
#include "common/text.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tacit-identity-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void in_folder(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", folder, name);
}

/* RFC 8032 section 7.1, TEST 2: one byte 0x72. */
static void verifies_published_signature(void **state)
{
    uint8_t key[32], signature[64], message = 0x72;
    (void)state;
    assert_true(
        tacit_unhex(key, 32, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"));
    assert_true(tacit_unhex(signature, 64,
                            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"));
    assert_true(tacit_signature_holds(key, NULL, &message, 1, signature));
    message ^= 1;
    assert_false(tacit_signature_holds(key, NULL, &message, 1, signature));
}

/* A file written by hand with the seed of RFC 8032 TEST 1 and Alice's key of RFC 7748 section 6.1
 * must give the published public keys, signature and shared secret. */
static void loads_published_keys(void **state)
{
    char path[128], hex[129];
    uint8_t file[93] = "tacit-keys-1", shared[32], bob[32], signature[64];
    tacit_identity *id;
    tacit_error err;
    (void)state;
    in_folder(path, "known");
    assert_true(tacit_unhex(file + 13, 32,
                            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"));
    assert_true(tacit_unhex(file + 45, 32,
                            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
    crypto_generichash(file + 77, 16, file, 77, NULL, 0);
    assert_int_equal(tacit_file_write(path, file, sizeof file, 0600, &err), TACIT_OK);
    assert_int_equal(tacit_identity_load(&id, path, &err), TACIT_OK);
    tacit_hex(hex, tacit_identity_sign_key(id), 32);
    assert_string_equal(hex, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_int_equal(tacit_identity_sign(id, NULL, "", 0, signature, &err), TACIT_OK);
    tacit_hex(hex, signature, 64);
    assert_string_equal(hex, "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8"
                             "821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b");
    assert_true(
        tacit_unhex(bob, 32, "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
    assert_int_equal(tacit_identity_exchange(id, bob, shared, &err), TACIT_OK);
    tacit_hex(hex, shared, 32);
    assert_string_equal(hex, "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    tacit_identity_free(id);
}

static void domains_separate(void **state)
{
    tacit_identity *id;
    tacit_error err;
    uint8_t signature[64];
    (void)state;
    assert_int_equal(tacit_identity_ephemeral(&id, &err), TACIT_OK);
    const uint8_t *key = tacit_identity_sign_key(id);
    assert_int_equal(tacit_identity_sign(id, "tacit-request-1", "abc", 3, signature, &err),
                     TACIT_OK);
    assert_true(tacit_signature_holds(key, "tacit-request-1", "abc", 3, signature));
    assert_false(tacit_signature_holds(key, "tacit-reply-1", "abc", 3, signature));
    assert_false(tacit_signature_holds(key, "tacit-request-1", "ab", 2, signature));
    assert_false(tacit_signature_holds(key, NULL, "abc", 3, signature));
    /* The rule written out: domain, NUL, message. */
    assert_true(tacit_signature_holds(key, NULL, "tacit-request-1\0abc", 19, signature));
    uint8_t zero[32] = {0};
    assert_false(tacit_signature_holds(zero, "tacit-request-1", "abc", 3, signature));
    tacit_identity_free(id);
}

static void creates_once_and_reloads(void **state)
{
    char path[128];
    struct stat st;
    tacit_identity *made, *again;
    tacit_error err;
    (void)state;
    in_folder(path, "mine");
    assert_int_equal(tacit_identity_create(&made, path, &err), TACIT_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(tacit_identity_create(&again, path, &err), TACIT_CONFLICT);
    assert_null(again);
    assert_int_equal(tacit_identity_load(&again, path, &err), TACIT_OK);
    assert_memory_equal(tacit_identity_sign_key(made), tacit_identity_sign_key(again), 32);
    assert_memory_equal(tacit_identity_exchange_key(made), tacit_identity_exchange_key(again), 32);
    tacit_identity_free(again);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(tacit_identity_load(&again, path, &err), TACIT_REFUSED);
    assert_non_null(strstr(err.message, "chmod 600"));
    tacit_identity_free(made);
}

static void notices_every_damaged_byte(void **state)
{
    char path[128];
    uint8_t *bytes;
    size_t size;
    tacit_identity *id;
    tacit_error err;
    (void)state;
    in_folder(path, "damaged");
    assert_int_equal(tacit_identity_create(&id, path, &err), TACIT_OK);
    tacit_identity_free(id);
    assert_int_equal(tacit_file_read(path, 1000, &bytes, &size, &err), TACIT_OK);
    assert_int_equal(size, 93);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x20;
        assert_int_equal(tacit_file_write(path, bytes, size, 0600, &err), TACIT_OK);
        assert_int_equal(tacit_identity_load(&id, path, &err), TACIT_INTEGRITY);
        bytes[i] ^= 0x20;
    }
    assert_int_equal(tacit_file_write(path, bytes, size - 1, 0600, &err), TACIT_OK);
    assert_int_equal(tacit_identity_load(&id, path, &err), TACIT_BAD_INPUT);
    in_folder(path, "missing");
    assert_int_equal(tacit_identity_load(&id, path, &err), TACIT_NOT_FOUND);
    free(bytes);
}

static void refuses_small_order(void **state)
{
    tacit_identity *id;
    tacit_error err;
    uint8_t zero[32] = {0}, shared[32];
    (void)state;
    assert_int_equal(tacit_identity_ephemeral(&id, &err), TACIT_OK);
    assert_int_equal(tacit_identity_exchange(id, zero, shared, &err), TACIT_INTEGRITY);
    assert_memory_equal(shared, zero, 32);
    tacit_identity_free(id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verifies_published_signature),
        cmocka_unit_test(loads_published_keys),
        cmocka_unit_test(domains_separate),
        cmocka_unit_test(creates_once_and_reloads),
        cmocka_unit_test(notices_every_damaged_byte),
        cmocka_unit_test(refuses_small_order),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
