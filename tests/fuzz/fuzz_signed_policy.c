/* Any bytes as a file of 'tacit-client policy sign': what opens says something that can be signed,
 * and no foreign key has signed it. */
#include "fuzz_target.h"

#include "common/message.h"
#include "privacy/signed_policy.h"

#include <string.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t stranger[TACIT_SIGN_KEY_BYTES] = {0x58, 1, 2, 3};
    tacit_signed_policy p;
    Tacit__PolicyChanged change;
    tacit_error err;
    fuzz_accepted = tacit_signed_policy_open(&p, data, size, &err) == TACIT_OK;
    if (!fuzz_accepted)
        return 0;
    FUZZ_CHECK(tacit_policy_validate(&p.policy, &err) == TACIT_OK);
    FUZZ_CHECK(p.policy.serial >= 1 && p.policy.serial <= TACIT_SIGNED_SERIAL_MAX);
    FUZZ_CHECK(p.message->who[0] && p.message->reason[0]);
    tacit_signed_policy_change(p.message, &change);
    FUZZ_CHECK(tacit_policy_change_signer(&change, p.policy.serial, stranger, stranger) ==
               TACIT_POLICY_BY_NOBODY);
    tacit_message_free(p.message);
    return 0;
}
