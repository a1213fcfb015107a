/* Any bytes as a configuration file: what is read keeps the table's bounds, what is refused leaves
 * nothing behind. */
#include "fuzz_target.h"

#include "common/config.h"

#include <math.h>
#include <string.h>

bool fuzz_accepted;

typedef struct part {
    char *text;
    tacit_config_list files;
} part;

typedef struct sample {
    char *server;
    double epsilon;
    uint64_t steps;
    bool fast;
    int unit;
    tacit_config_list names;
    tacit_config_items parts;
} sample;

static const char *const units[] = {"record", "subject", "device", NULL};

static const tacit_config_row part_rows[] = {
    {.key = "text", .kind = TACIT_CONFIG_TEXT, .at = offsetof(part, text), .required = true},
    {.key = "files", .kind = TACIT_CONFIG_LIST, .at = offsetof(part, files)},
    {.key = NULL}};

static const tacit_config_row rows[] = {
    {.key = "server", .kind = TACIT_CONFIG_TEXT, .at = offsetof(sample, server), .required = true},
    {.key = "policy.epsilon",
     .kind = TACIT_CONFIG_REAL,
     .at = offsetof(sample, epsilon),
     .min = 0.5,
     .max = 100},
    {.key = "policy.unit", .kind = TACIT_CONFIG_WORD, .at = offsetof(sample, unit), .words = units},
    {.key = "steps", .kind = TACIT_CONFIG_U64, .at = offsetof(sample, steps), .min = 1, .max = 99},
    {.key = "fast", .kind = TACIT_CONFIG_BOOL, .at = offsetof(sample, fast)},
    {.key = "names", .kind = TACIT_CONFIG_LIST, .at = offsetof(sample, names), .min = 0, .max = 3},
    {.key = "parts",
     .kind = TACIT_CONFIG_ITEMS,
     .at = offsetof(sample, parts),
     .item_rows = part_rows,
     .item_size = sizeof(part)},
    {.key = NULL}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sample s = {.epsilon = 1, .steps = 1};
    tacit_error err = {0};
    fuzz_accepted =
        tacit_config_parse("fuzz", (const char *)data, size, rows, &s, &err) == TACIT_OK;
    if (fuzz_accepted) {
        FUZZ_CHECK(s.server && strlen(s.server) >= 1 && strlen(s.server) <= 4096);
        FUZZ_CHECK(s.epsilon >= 0.5 && s.epsilon <= 100);
        FUZZ_CHECK(s.steps >= 1 && s.steps <= 99 && s.unit >= 0 && s.unit <= 2);
        FUZZ_CHECK(s.names.count <= 3 && s.parts.count <= 256);
        for (size_t i = 0; i < s.parts.count; i++)
            FUZZ_CHECK(((part *)s.parts.item)[i].text);
        tacit_config_free(rows, &s);
    } else {
        FUZZ_CHECK(err.message[0]);
    }
    FUZZ_CHECK(!s.server && !s.names.item && !s.parts.item);
    return 0;
}
