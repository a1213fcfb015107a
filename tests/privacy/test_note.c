#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/note.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* The published example of the format (Go's sumdb/note, quoted by C2SP signed-note). */
#define EXAMPLE_VKEY "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
#define EXAMPLE_TEXT                                                                               \
    "If you think cryptography is the answer to your problem,\n"                                   \
    "then you don't know what your problem is.\n"
#define EXAMPLE_SIGNATURE                                                                          \
    "\xe2\x80\x94 PeterNeumann "                                                                   \
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=" \
    "\n"

static tacit_note_key example_key(void)
{
    tacit_error err;
    tacit_note_key key;
    assert_int_equal(tacit_note_key_parse(&key, EXAMPLE_VKEY, &err), TACIT_OK);
    return key;
}

static tacit_status verify(const char *note, const tacit_note_key *key)
{
    tacit_error err;
    size_t text;
    return tacit_note_verify(note, strlen(note), key, &text, &err);
}

static void test_the_published_example_verifies(void **state)
{
    (void)state;
    tacit_error err;
    tacit_note_key key = example_key();
    const char note[] = EXAMPLE_TEXT "\n" EXAMPLE_SIGNATURE;
    size_t text;
    assert_string_equal(key.name, "PeterNeumann");
    assert_int_equal(tacit_note_key_id(&key), 0xc74f20a3);
    assert_int_equal(tacit_note_verify(note, strlen(note), &key, &text, &err), TACIT_OK);
    assert_int_equal(text, strlen(EXAMPLE_TEXT));
    char vkey[TACIT_VKEY_MAX];
    tacit_note_key_write(&key, vkey);
    assert_string_equal(vkey, EXAMPLE_VKEY);
}

static void test_a_second_published_key_parses(void **state)
{
    (void)state;
    tacit_error err;
    tacit_note_key key;
    assert_int_equal(
        tacit_note_key_parse(
            &key, "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop", &err),
        TACIT_OK);
    assert_int_equal(tacit_note_key_id(&key), 0xaf0cfe78);
}

static void test_no_piece_of_a_key_is_a_key(void **state)
{
    (void)state;
    tacit_error err;
    tacit_note_key key;
    char text[128];
    size_t n = strlen(EXAMPLE_VKEY);
    for (size_t from = 0; from < n; from++)
        for (size_t to = from; to <= n; to++) {
            if (from == 0 && to == n)
                continue;
            snprintf(text, sizeof text, "%.*s", (int)(to - from), EXAMPLE_VKEY + from);
            assert_int_equal(tacit_note_key_parse(&key, text, &err), TACIT_BAD_INPUT);
        }
    for (size_t i = 0; i < n; i++)
        for (unsigned other = 1; other < 256; other++) {
            snprintf(text, sizeof text, "%s", EXAMPLE_VKEY);
            if (tolower(other) == tolower((unsigned char)text[i]) && i > 12 && i < 21)
                continue; /* the key id may be written in capitals */
            if ((unsigned char)text[i] == other)
                continue;
            text[i] = (char)other;
            assert_int_equal(tacit_note_key_parse(&key, text, &err), TACIT_BAD_INPUT);
        }
}

static const struct {
    const char *what;
    const char *note;
    tacit_status status;
} hostile[] = {
    {"empty", "", TACIT_BAD_INPUT},
    {"text alone", EXAMPLE_TEXT, TACIT_BAD_INPUT},
    {"no signature line", EXAMPLE_TEXT "\n", TACIT_BAD_INPUT},
    {"no last line feed", EXAMPLE_TEXT "\n\xe2\x80\x94 PeterNeumann x08go/ZJ", TACIT_BAD_INPUT},
    {"other text", "x" EXAMPLE_TEXT "\n" EXAMPLE_SIGNATURE, TACIT_INTEGRITY},
    {"text without its line feed",
     "If you think cryptography is the answer to your problem,\n\n" EXAMPLE_SIGNATURE,
     TACIT_INTEGRITY},
    {"hyphen for the dash", EXAMPLE_TEXT "\n- PeterNeumann x08go/ZJ\n", TACIT_BAD_INPUT},
    {"signature too short", EXAMPLE_TEXT "\n\xe2\x80\x94 PeterNeumann x08go/ZJ\n", TACIT_INTEGRITY},
    {"no padding",
     EXAMPLE_TEXT
     "\n\xe2\x80\x94 PeterNeumann "
     "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6"
     "RyyBwJnAM\n",
     TACIT_BAD_INPUT},
    {"signed twice", EXAMPLE_TEXT "\n" EXAMPLE_SIGNATURE EXAMPLE_SIGNATURE, TACIT_INTEGRITY},
    {"junk after it", EXAMPLE_TEXT "\n" EXAMPLE_SIGNATURE "junk\n", TACIT_BAD_INPUT},
    {"control byte", "a\tb\n\n" EXAMPLE_SIGNATURE, TACIT_BAD_INPUT},
    {"carriage return", EXAMPLE_TEXT "\r\n\n" EXAMPLE_SIGNATURE, TACIT_BAD_INPUT},
    {"not UTF-8", "a\xff\n\n" EXAMPLE_SIGNATURE, TACIT_BAD_INPUT},
};

static void test_hostile_notes_are_refused(void **state)
{
    (void)state;
    tacit_note_key key = example_key();
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        tacit_status status = verify(hostile[i].note, &key);
        if (status != hostile[i].status)
            print_error("%s: %d\n", hostile[i].what, status);
        assert_int_equal(status, hostile[i].status);
    }
}

static void test_unknown_signers_are_skipped(void **state)
{
    (void)state;
    tacit_note_key key = example_key(), other = key;
    assert_int_equal(
        verify(EXAMPLE_TEXT
               "\n\xe2\x80\x94 witness.example AAAAAAAAAAAAAAAAAA==\n" EXAMPLE_SIGNATURE,
               &key),
        TACIT_OK);
    other.key[0] ^= 1;
    assert_int_equal(verify(EXAMPLE_TEXT "\n" EXAMPLE_SIGNATURE, &other), TACIT_INTEGRITY);
}

static void make_checkpoint(tacit_checkpoint *c, tacit_note_key *key,
                            char note[TACIT_CHECKPOINT_MAX])
{
    tacit_error err;
    tacit_identity *id;
    *c = (tacit_checkpoint){.origin = "tacit.example/log", .size = 1234567};
    for (size_t i = 0; i < sizeof c->root; i++)
        c->root[i] = (uint8_t)(3 * i);
    assert_int_equal(tacit_identity_ephemeral(&id, &err), TACIT_OK);
    assert_int_equal(tacit_note_key_make(key, c->origin, tacit_identity_sign_key(id), &err),
                     TACIT_OK);
    assert_int_equal(tacit_checkpoint_sign(c, id, note, &err), TACIT_OK);
    tacit_identity_free(id);
}

static void test_checkpoints_round_trip(void **state)
{
    (void)state;
    tacit_error err;
    tacit_checkpoint c, back;
    tacit_note_key key, other;
    char note[TACIT_CHECKPOINT_MAX];
    make_checkpoint(&c, &key, note);
    const char text[] = "tacit.example/log\n1234567\n"
                        "AAMGCQwPEhUYGx4hJCcqLTAzNjk8P0JFSEtOUVRXWl0=\n\n\xe2\x80\x94 ";
    assert_memory_equal(note, text, strlen(text));
    assert_int_equal(tacit_checkpoint_verify(&back, note, strlen(note), &key, &err), TACIT_OK);
    assert_true(back.size == c.size);
    assert_memory_equal(back.root, c.root, sizeof c.root);
    assert_string_equal(back.origin, c.origin);
    other = key;
    snprintf(other.name, sizeof other.name, "other.example/log");
    assert_int_equal(tacit_checkpoint_verify(&back, note, strlen(note), &other, &err),
                     TACIT_INTEGRITY);
}

static void test_every_flipped_bit_of_a_checkpoint_is_noticed(void **state)
{
    (void)state;
    tacit_error err;
    tacit_checkpoint c, back;
    tacit_note_key key;
    char note[TACIT_CHECKPOINT_MAX];
    make_checkpoint(&c, &key, note);
    size_t n = strlen(note);
    for (size_t i = 0; i < n; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            note[i] = (char)(note[i] ^ (1 << bit));
            assert_int_not_equal(tacit_checkpoint_verify(&back, note, n, &key, &err), TACIT_OK);
            note[i] = (char)(note[i] ^ (1 << bit));
        }
    for (size_t cut = 0; cut < n; cut++)
        assert_int_not_equal(tacit_checkpoint_verify(&back, note, cut, &key, &err), TACIT_OK);
}

#define SIG "\n\xe2\x80\x94 x AAAAAAAAAAAA\n"
#define ROOT "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"

static void test_checkpoint_text_is_strict(void **state)
{
    (void)state;
    tacit_error err;
    tacit_checkpoint c;
    const char good[] = "o\n0\n" ROOT SIG, extended[] = "o\n0\n" ROOT "extension line\n" SIG;
    assert_int_equal(tacit_checkpoint_parse(&c, good, strlen(good), &err), TACIT_OK);
    assert_int_equal(tacit_checkpoint_parse(&c, extended, strlen(extended), &err), TACIT_OK);
    const char *bad[] = {
        "o\n00\n" ROOT SIG,
        "o\n-1\n" ROOT SIG,
        "o\n\n" ROOT SIG,
        "o\n1 \n" ROOT SIG,
        "o\n9223372036854775808\n" ROOT SIG,
        "a b\n1\n" ROOT SIG,
        "a+b\n1\n" ROOT SIG,
        "o\n1\n47DEQpj8\n" SIG,
        "o\n1\n" SIG,
        "o\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=\n" SIG,
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tacit_checkpoint_parse(&c, bad[i], strlen(bad[i]), &err), TACIT_BAD_INPUT);
}

/* --- cosignatures: a checkpoint of one leaf "x", signed by Go's sumdb/note and cosigned by
 * torchwood v0.6.1 with keys of seeds 01.. and 02.. --- */

#define COSIGNED_LOG "tacit.example/log+2d5a142d+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
#define COSIGNED_WITNESS "witness.example/w1+df1c0a35+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU"
#define COSIGNED_TEXT "tacit.example/log\n1\nPH6byTDck/AfppmF7yQtn56GHzxTVaokzl70tLinDMs=\n"
#define COSIGNED_BY_LOG                                                                            \
    "\xe2\x80\x94 tacit.example/log "                                                              \
    "LVoULbEsv9uztr77SB80VWP2B3vDygWBQem9b/6hv80Q4vh3qnTV4nJvHTrGB7v6b1I1C0i7OTv7Axzqzl+BXd/"      \
    "XnwQ=\n"
#define COSIGNED_BY_WITNESS                                                                        \
    "\xe2\x80\x94 witness.example/w1 "                                                             \
    "3xwKNQAAAABrDVJvnX/hm7TLJAQqZtFuSvZeOzXxD2tW+i3PfOE8l6mt8g/bMQztTXGShCsg/"                    \
    "XA39gP56oRIQ0hufuxF/SbS+kYQAQ==\n"

static tacit_note_key witness_of(const char *vkey)
{
    tacit_error err;
    tacit_note_key key;
    assert_int_equal(tacit_witness_key_parse(&key, vkey, &err), TACIT_OK);
    return key;
}

static void test_a_cosignature_of_others_holds(void **state)
{
    (void)state;
    tacit_error err;
    tacit_note_key log, witness = witness_of(COSIGNED_WITNESS);
    tacit_checkpoint c;
    uint64_t time_s;
    uint8_t leaf[TACIT_HASH_BYTES];
    char note[] = COSIGNED_TEXT "\n" COSIGNED_BY_LOG COSIGNED_BY_WITNESS, vkey[TACIT_VKEY_MAX];
    assert_int_equal(tacit_note_key_parse(&log, COSIGNED_LOG, &err), TACIT_OK);
    assert_int_equal(tacit_checkpoint_verify(&c, note, strlen(note), &log, &err), TACIT_OK);
    tacit_merkle_leaf(leaf, "x", 1);
    assert_memory_equal(c.root, leaf, sizeof leaf);
    assert_int_equal(tacit_checkpoint_cosigned(note, strlen(note), &witness, &time_s, &err),
                     TACIT_OK);
    assert_int_equal(time_s, 0x6b0d526f);
    tacit_witness_key_write(&witness, vkey);
    assert_string_equal(vkey, COSIGNED_WITNESS);
    size_t n = strlen(note), from = strlen(COSIGNED_TEXT "\n" COSIGNED_BY_LOG);
    for (size_t i = 0; i < n; i++) { /* the text, and every character of its own line */
        if (i == strlen(COSIGNED_TEXT))
            i = from;
        note[i] ^= 1;
        assert_int_not_equal(tacit_checkpoint_cosigned(note, n, &witness, NULL, &err), TACIT_OK);
        note[i] ^= 1;
    }
}

static void test_cosignature_and_signature_are_told_apart(void **state)
{
    (void)state;
    tacit_error err;
    tacit_note_key key, witness = witness_of(COSIGNED_WITNESS);
    const char note[] = COSIGNED_TEXT "\n" COSIGNED_BY_LOG COSIGNED_BY_WITNESS;
    const char alone[] = COSIGNED_TEXT "\n" COSIGNED_BY_LOG;
    const char twice[] = COSIGNED_TEXT "\n" COSIGNED_BY_LOG COSIGNED_BY_WITNESS COSIGNED_BY_WITNESS;
    size_t text;
    assert_int_equal(tacit_note_key_parse(&key, COSIGNED_WITNESS, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_witness_key_parse(&key, COSIGNED_LOG, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_note_verify(note, strlen(note), &witness, &text, &err), TACIT_INTEGRITY);
    assert_int_equal(tacit_checkpoint_cosigned(alone, strlen(alone), &witness, NULL, &err),
                     TACIT_INTEGRITY);
    assert_int_equal(tacit_checkpoint_cosigned(twice, strlen(twice), &witness, NULL, &err),
                     TACIT_INTEGRITY);
}

static void test_cosigning_and_adding(void **state)
{
    (void)state;
    tacit_error err;
    tacit_identity *id;
    tacit_note_key mine, other = witness_of(COSIGNED_WITNESS);
    uint64_t time_s;
    char note[TACIT_CHECKPOINT_MAX] = COSIGNED_TEXT "\n" COSIGNED_BY_LOG;
    char base[TACIT_CHECKPOINT_MAX] = COSIGNED_TEXT "\n" COSIGNED_BY_LOG;
    char longer[TACIT_CHECKPOINT_MAX] = "another/log\n1\n"
                                        "PH6byTDck/AfppmF7yQtn56GHzxTVaokzl70tLinDMs=\n"
                                        "\n" COSIGNED_BY_LOG;
    assert_int_equal(tacit_identity_ephemeral(&id, &err), TACIT_OK);
    assert_int_equal(tacit_note_key_make(&mine, "w2", tacit_identity_sign_key(id), &err), TACIT_OK);
    assert_int_equal(tacit_checkpoint_cosign(note, &mine, id, 1234567890123, &err), TACIT_OK);
    assert_int_equal(tacit_checkpoint_cosign(note, &mine, id, 9, &err), TACIT_CONFLICT);
    assert_int_equal(tacit_checkpoint_cosigned(note, strlen(note), &mine, &time_s, &err), TACIT_OK);
    assert_int_equal(time_s, 1234567890123);
    assert_int_equal(tacit_checkpoint_add_cosignature(longer, note, strlen(note), &mine, &err),
                     TACIT_INTEGRITY);
    assert_int_equal(tacit_checkpoint_add_cosignature(base, note, strlen(note), &other, &err),
                     TACIT_INTEGRITY);
    for (int i = 0; i < 2; i++) { /* the second time changes nothing */
        assert_int_equal(tacit_checkpoint_add_cosignature(base, note, strlen(note), &mine, &err),
                         TACIT_OK);
        assert_string_equal(base, note);
    }
    /* A note that is full takes no more, and stays as it is. */
    char name[TACIT_NOTE_NAME_MAX + 1];
    tacit_status status = TACIT_OK;
    for (char c = 'a'; status == TACIT_OK && c <= 'z'; c++) {
        memset(name, c, TACIT_NOTE_NAME_MAX);
        name[TACIT_NOTE_NAME_MAX] = '\0';
        assert_int_equal(tacit_note_key_make(&other, name, mine.key, &err), TACIT_OK);
        memcpy(base, note, sizeof base);
        status = tacit_checkpoint_cosign(note, &other, id, 1, &err);
    }
    assert_int_equal(status, TACIT_BAD_INPUT);
    assert_string_equal(base, note);
    tacit_identity_free(id);
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cosignature_of_others_holds),
        cmocka_unit_test(test_cosignature_and_signature_are_told_apart),
        cmocka_unit_test(test_cosigning_and_adding),
        cmocka_unit_test(test_the_published_example_verifies),
        cmocka_unit_test(test_a_second_published_key_parses),
        cmocka_unit_test(test_no_piece_of_a_key_is_a_key),
        cmocka_unit_test(test_hostile_notes_are_refused),
        cmocka_unit_test(test_unknown_signers_are_skipped),
        cmocka_unit_test(test_checkpoints_round_trip),
        cmocka_unit_test(test_every_flipped_bit_of_a_checkpoint_is_noticed),
        cmocka_unit_test(test_checkpoint_text_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
