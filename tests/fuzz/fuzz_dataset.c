/* Any bytes as one line of a dataset: a record with an id, a question and an answer, whose media
 * lie below the folder; or refused. */
#include "fuzz_target.h"

#include "engine/dataset.h"

#include <string.h>

bool fuzz_accepted;

static void check_message(const tacit_message *m)
{
    FUZZ_CHECK(m->n_content >= 1);
    for (size_t i = 0; i < m->n_content; i++) {
        FUZZ_CHECK(m->content[i].text);
        if (m->content[i].kind != TACIT_CONTENT_TEXT) {
            FUZZ_CHECK(strncmp(m->content[i].text, "folder/", 7) == 0);
            FUZZ_CHECK(!strstr(m->content[i].text, "/../"));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_record record;
    tacit_error err;
    tacit_status status = tacit_record_parse(&record, (const char *)data, size, "folder", &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (status != TACIT_OK)
        return 0;
    FUZZ_CHECK(record.id[0] && record.n_messages >= 2);
    for (size_t i = 0; i < record.n_messages; i++)
        check_message(&record.message[i]);
    tacit_record_free(&record);
    return 0;
}
