/* Any bytes as a signed checkpoint, and as a verifier key: what parses is written back alike. */
#include "fuzz_target.h"

#include "privacy/note.h"

#include <string.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t nothing;
    tacit_checkpoint checkpoint, verified;
    tacit_note_key key;
    tacit_error err;
    size_t text;
    const uint8_t *bytes = size ? data : &nothing;
    fuzz_accepted = tacit_checkpoint_parse(&checkpoint, bytes, size, &err) == TACIT_OK;
    if (fuzz_accepted) {
        FUZZ_CHECK(tacit_note_key_make(&key, checkpoint.origin, checkpoint.root, &err) == TACIT_OK);
        FUZZ_CHECK(tacit_checkpoint_verify(&verified, bytes, size, &key, &err) != TACIT_OK);
        FUZZ_CHECK(tacit_note_verify(bytes, size, &key, &text, &err) != TACIT_OK);
    }
    char *string = strndup((const char *)bytes, size);
    FUZZ_CHECK(string != NULL);
    if (tacit_note_key_parse(&key, string, &err) == TACIT_OK) {
        char written[TACIT_VKEY_MAX];
        tacit_note_key_write(&key, written);
        FUZZ_CHECK(strncmp(written, string, strlen(key.name)) == 0);
        FUZZ_CHECK(strcasecmp(written, string) == 0);
    }
    free(string);
    return 0;
}
