/* Any bytes as a request and as a reply from the network. What is taken for a request can be
 * answered, and the answer is a reply to exactly that request. */
#include "fuzz_target.h"

#include "common/envelope.h"

#include <string.h>

bool fuzz_accepted;

static void answer(const tacit_received *r)
{
    tacit_buffer bytes = {0};
    tacit_answer a;
    tacit_error err;
    static const uint8_t key[32] = {1};
    (void)tacit_request_judge(r, 3, r->action, key, 1);
    FUZZ_CHECK(tacit_request_verify(r, key, &err) == TACIT_INTEGRITY);
    FUZZ_CHECK(tacit_reply_build(r, TACIT_REFUSED, "no", key, r->request.body, NULL, &bytes,
                                 &err) == TACIT_OK ||
               r->request.body.size > TACIT_BODY_MAX);
    if (bytes.size) {
        FUZZ_CHECK(tacit_reply_parse(&a, bytes.data, bytes.size, &r->request, r->hash, NULL,
                                     &err) == TACIT_OK);
        FUZZ_CHECK(a.reply.body.size == r->request.body.size);
        tacit_answer_free(&a);
    }
    tacit_buffer_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_received r;
    tacit_answer a;
    tacit_request request = {.protocol = 1};
    tacit_error err;
    uint8_t hash[32] = {0};
    fuzz_accepted = tacit_request_parse(&r, data, size, &err) == TACIT_OK;
    if (fuzz_accepted) {
        answer(&r);
        tacit_received_free(&r);
    }
    /* As a reply it answers nothing: the hash of the request would have to be all zero. */
    if (tacit_reply_parse(&a, data, size, &request, hash, NULL, &err) == TACIT_OK) {
        fuzz_accepted = true;
        tacit_answer_free(&a);
    }
    return 0;
}
