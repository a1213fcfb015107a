/* Any bytes as a .receipt file: what unpacks packs to the same bytes. */
#include "fuzz_target.h"

#include "privacy/receipt.h"

#include <string.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_receipt receipt;
    tacit_error err;
    tacit_note_key key = {.name = "tacit.example/log"};
    void *message;
    uint8_t *packed;
    size_t packed_size;
    fuzz_accepted = tacit_receipt_unpack(&receipt, &message, data, size, &err) == TACIT_OK;
    if (!fuzz_accepted)
        return 0;
    FUZZ_CHECK(tacit_receipt_verify(&receipt, &key, NULL, &err) != TACIT_OK);
    FUZZ_CHECK(tacit_receipt_pack(&receipt, &packed, &packed_size, &err) == TACIT_OK);
    FUZZ_CHECK(packed_size == size);
    free(packed);
    tacit_message_free(message);
    return 0;
}
