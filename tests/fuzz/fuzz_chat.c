/* Any bytes as a chat template, which comes out of a model file: what is recognised renders. */
#include "fuzz_target.h"

#include "engine/chat.h"

#include <string.h>

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup(size ? (const char *)data : "", size), said[] = " Hi</think> ";
    tacit_content content[] = {{TACIT_CONTENT_TEXT, said}, {TACIT_CONTENT_IMAGE, said}};
    const tacit_message message[] = {
        {.role = TACIT_ROLE_SYSTEM, .content = content, .n_content = 1},
        {.role = TACIT_ROLE_USER, .content = content, .n_content = 2},
        {.role = TACIT_ROLE_ASSISTANT, .content = content, .n_content = 1}};
    tacit_chat chat;
    tacit_error err;
    FUZZ_CHECK(text != NULL);
    fuzz_accepted = tacit_chat_recognise(&chat, text, &err) == TACIT_OK;
    if (fuzz_accepted) {
        FUZZ_CHECK(strlen(chat.says) < sizeof chat.says);
        /* With a system turn, and without one unless the date would stand there. */
        for (size_t from = 0; from < 2 - (size_t)chat.form.says_the_date; from++) {
            tacit_pieces pieces;
            FUZZ_CHECK(tacit_chat_render(&chat, message + from, 3 - from, true, &pieces, &err) ==
                       TACIT_OK);
            size_t media = 0;
            for (size_t i = 0; i < pieces.count; i++)
                media += pieces.piece[i].kind == TACIT_PIECE_MEDIA;
            FUZZ_CHECK(media == 1);
            tacit_pieces_free(&pieces);
        }
    }
    free(text);
    return 0;
}
