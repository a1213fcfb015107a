/* Any bytes as the statement of a restore: what is read is what a log can be held to. */
#include "fuzz_target.h"

#include "common/message.h"
#include "privacy/restore.h"

#include <string.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t signature[TACIT_SIGNATURE_BYTES];
    Tacit__Restored body = TACIT__RESTORED__INIT;
    tacit_restore r;
    tacit_note_key key;
    tacit_error err;
    body.statement = tacit_field_of(data, size);
    body.signature = tacit_field_of(signature, sizeof signature);
    fuzz_accepted = tacit_restore_read(&r, &body, &err) == TACIT_OK;
    if (fuzz_accepted) {
        FUZZ_CHECK(r.generation >= 2 && r.last.size >= r.size);
        FUZZ_CHECK(strcmp(r.old_origin, r.new_origin) != 0);
        FUZZ_CHECK(strcmp(r.old_origin, r.last.origin) == 0);
        FUZZ_CHECK(tacit_note_key_make(&key, r.new_origin, r.log_key, &err) == TACIT_OK);
    }
    FUZZ_CHECK(tacit_restore_open(&r, &body, signature, &err) == TACIT_INTEGRITY);
    return 0;
}
