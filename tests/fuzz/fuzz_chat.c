/* Any bytes as a chat template, which comes out of a model file: what is recognised renders. */
#include "fuzz_target.h"

#include "engine/chat.h"

#include <string.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup(size ? (const char *)data : "", size), said[] = "Hi";
    tacit_content content = {TACIT_CONTENT_TEXT, said};
    tacit_message message = {TACIT_ROLE_USER, &content, 1};
    tacit_chat chat;
    tacit_error err;
    FUZZ_CHECK(text != NULL);
    fuzz_accepted = tacit_chat_recognise(&chat, text, &err) == TACIT_OK;
    if (fuzz_accepted) {
        tacit_pieces pieces;
        FUZZ_CHECK(strlen(chat.system) < sizeof chat.system);
        FUZZ_CHECK(tacit_chat_render(&chat, &message, 1, true, &pieces, &err) == TACIT_OK);
        FUZZ_CHECK(pieces.count >= 3);
        tacit_pieces_free(&pieces);
    }
    free(text);
    return 0;
}
