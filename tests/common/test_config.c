/* Configuration files: what is read from good ones, and the exact line for each bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct model {
    char *text;
    tacit_config_list mmproj;
    uint64_t weight;
} model;

typedef struct sample {
    char *server;
    double epsilon;
    uint64_t steps;
    int64_t shift;
    bool fast;
    int unit;
    tacit_config_list names;
    tacit_config_items models;
} sample;

static void model_defaults(void *item)
{
    ((model *)item)->weight = 7;
}

static const char *const units[] = {"record", "subject", "device", NULL};

static const tacit_config_row model_rows[] = {
    {.key = "text", .kind = TACIT_CONFIG_TEXT, .at = offsetof(model, text), .required = true},
    {.key = "mmproj", .kind = TACIT_CONFIG_LIST, .at = offsetof(model, mmproj)},
    {.key = "weight", .kind = TACIT_CONFIG_U64, .at = offsetof(model, weight)},
    {.key = NULL}};

static const tacit_config_row rows[] = {
    {.key = "server",
     .kind = TACIT_CONFIG_TEXT,
     .at = offsetof(sample, server),
     .required = true,
     .min = 3,
     .max = 40,
     .help = "where the server listens"},
    {.key = "policy.epsilon",
     .kind = TACIT_CONFIG_REAL,
     .at = offsetof(sample, epsilon),
     .min = 0.5,
     .max = 100},
    {.key = "policy.unit", .kind = TACIT_CONFIG_WORD, .at = offsetof(sample, unit), .words = units},
    {.key = "train.deep.steps",
     .kind = TACIT_CONFIG_U64,
     .at = offsetof(sample, steps),
     .min = 1,
     .max = 1000},
    {.key = "shift", .kind = TACIT_CONFIG_I64, .at = offsetof(sample, shift)},
    {.key = "fast", .kind = TACIT_CONFIG_BOOL, .at = offsetof(sample, fast)},
    {.key = "names", .kind = TACIT_CONFIG_LIST, .at = offsetof(sample, names), .min = 0, .max = 3},
    {.key = "models",
     .kind = TACIT_CONFIG_ITEMS,
     .at = offsetof(sample, models),
     .item_rows = model_rows,
     .item_size = sizeof(model),
     .item_defaults = model_defaults,
     .min = 0,
     .max = 4},
    {.key = NULL}};

static tacit_status parse(const char *text, sample *out, tacit_error *err)
{
    *out = (sample){.epsilon = 8, .steps = 20};
    return tacit_config_parse("x.yaml", text, strlen(text), rows, out, err);
}

static void reads_everything(void **state)
{
    static const char text[] = "# where\n"
                               "server: tls+tcp://example.org:7443\n"
                               "policy:\n"
                               "  epsilon: 1.25e1\n"
                               "  unit: subject\n"
                               "train: {deep: {steps: 77}}\n"
                               "shift: -12\n"
                               "fast: true\n"
                               "names: [a, \"b c\", 'd: e']\n"
                               "models:\n"
                               "  - text: /m/nano.gguf\n"
                               "    mmproj: [/m/one, /m/two]\n"
                               "  - text: /m/big.gguf\n"
                               "    weight: 3\n";
    sample s;
    tacit_error err = {0};
    (void)state;
    assert_int_equal(parse(text, &s, &err), TACIT_OK);
    assert_string_equal(s.server, "tls+tcp://example.org:7443");
    assert_true(s.epsilon == 12.5);
    assert_int_equal(s.unit, 1);
    assert_int_equal(s.steps, 77);
    assert_int_equal(s.shift, -12);
    assert_true(s.fast);
    assert_int_equal(s.names.count, 3);
    assert_string_equal(s.names.item[1], "b c");
    assert_string_equal(s.names.item[2], "d: e");
    assert_int_equal(s.models.count, 2);
    const model *models = s.models.item;
    assert_string_equal(models[0].text, "/m/nano.gguf");
    assert_int_equal(models[0].mmproj.count, 2);
    assert_string_equal(models[0].mmproj.item[1], "/m/two");
    assert_int_equal(models[0].weight, 7);
    assert_string_equal(models[1].text, "/m/big.gguf");
    assert_int_equal(models[1].mmproj.count, 0);
    assert_int_equal(models[1].weight, 3);
    tacit_config_free(rows, &s);
    assert_null(s.server);
    assert_null(s.models.item);
}

static void keeps_defaults(void **state)
{
    sample s;
    tacit_error err;
    (void)state;
    assert_int_equal(parse("server: abc\nnames: []\npolicy: {}\n", &s, &err), TACIT_OK);
    assert_true(s.epsilon == 8);
    assert_int_equal(s.steps, 20);
    assert_int_equal(s.names.count, 0);
    tacit_config_free(rows, &s);
    /* A default text is replaced, not leaked. */
    s = (sample){.server = strdup("default")};
    assert_int_equal(tacit_config_parse("x", "server: given", 13, rows, &s, &err), TACIT_OK);
    assert_string_equal(s.server, "given");
    tacit_config_free(rows, &s);
}

static const struct {
    const char *text, *says;
} bad[] = {
    {"", "x.yaml: the file is empty"},
    {"\n\n# only a comment\n", "x.yaml: the file is empty"},
    {"---\n...\n", "x.yaml:2: expected \"key: value\" lines"},
    {"just text", "x.yaml:1: expected \"key: value\" lines"},
    {"- a\n- b\n", "x.yaml:1: expected \"key: value\" lines"},
    {"fast: true\n", "x.yaml: server: missing; it is where the server listens"},
    {"server: abc\nserver: def\n", "x.yaml:2: server: given twice, first in line 1"},
    {"server: abc\npolicy: {epsilon: 1, epsilon: 2}\n",
     "x.yaml:2: policy.epsilon: given twice, first in line 2"},
    {"server: abc\npolicy: {epsilon: 1}\npolicy: {unit: record}\n",
     "x.yaml:3: policy: given twice, first in line 2"},
    {"server: abc\nsrever: def\n", "x.yaml:2: srever: unknown key"},
    {"server: abc\npolicy:\n  epsilom: 3\n", "x.yaml:3: policy.epsilom: unknown key"},
    {"server: abc\npolicy:\n", "x.yaml:2: policy: expected a map, found ''"},
    {"server: abc\npolicy: 3\n", "x.yaml:2: policy: expected a map, found '3'"},
    {"server: abc\npolicy: [1]\n", "x.yaml:2: policy: expected a map, found 'a list'"},
    {"server: {a: b}\n", "x.yaml:1: server.a: unknown key"},
    {"server: []\n", "x.yaml:1: server: expected a text, found 'a list'"},
    {"server: ab\n", "x.yaml:1: server: expected a text of another length, found 'ab'"},
    {"server:\n", "x.yaml:1: server: expected a text, found ''"},
    {"server: null\n", "x.yaml:1: server: expected a text, found 'null'"},
    {"server: ~\n", "x.yaml:1: server: expected a text, found '~'"},
    {"server: \"a\\nb\"\n", "x.yaml:1: server: expected a text without control characters"},
    {"server: \"ab\\0cd\"\n", "x.yaml:1: server: a NUL in a text"},
    {"server: abc\npolicy: {epsilon: 1,5}\n", "x.yaml:2: policy.5: unknown key"},
    {"server: abc\npolicy:\n  epsilon: 1,5\n", "x.yaml:3: policy.epsilon"},
    {"server: abc\npolicy:\n  epsilon: 0.4\n", "x.yaml:3: policy.epsilon"},
    {"server: abc\npolicy:\n  epsilon: .inf\n", "x.yaml:3: policy.epsilon"},
    {"server: abc\npolicy:\n  epsilon: nan\n", "x.yaml:3: policy.epsilon"},
    {"server: abc\npolicy:\n  epsilon: 0x10\n", "x.yaml:3: policy.epsilon"},
    {"server: abc\npolicy:\n  epsilon:\n", "x.yaml:3: policy.epsilon"},
    {"server: abc\ntrain: {deep: {steps: 010}}\n", "x.yaml:2: train.deep.steps"},
    {"server: abc\ntrain: {deep: {steps: 1e3}}\n", "x.yaml:2: train.deep.steps"},
    {"server: abc\ntrain: {deep: {steps: 0}}\n", "x.yaml:2: train.deep.steps"},
    {"server: abc\ntrain: {deep: {steps: 1001}}\n", "x.yaml:2: train.deep.steps"},
    {"server: abc\ntrain: {deep: {steps: -1}}\n", "x.yaml:2: train.deep.steps"},
    {"server: abc\ntrain: {deep: {steps: 99999999999999999999}}\n", "x.yaml:2: train.deep.steps"},
    {"server: abc\nshift: 9007199254740993\n", "x.yaml:2: shift"},
    {"server: abc\nfast: yes\n", "x.yaml:2: fast: expected true or false, found 'yes'"},
    {"server: abc\nfast: \"true\"\n", "x.yaml:2: fast: expected true or false"},
    {"server: abc\nfast: True\n", "x.yaml:2: fast: expected true or false"},
    {"server: abc\npolicy: {unit: patient}\n",
     "x.yaml:2: policy.unit: expected one of record, subject, device, found 'patient'"},
    {"server: abc\nnames: a\n", "x.yaml:2: names: expected a list, found 'a'"},
    {"server: abc\nnames: [a, b, c, d]\n", "x.yaml:2: names: expected 0 to 3 entries"},
    {"server: abc\nnames: [a, [b]]\n", "x.yaml:2: names[1][0]: unknown key"},
    {"server: abc\nnames: [a, {b: c}]\n", "x.yaml:2: names[1].b: unknown key"},
    {"server: abc\nnames: [a, ~]\n", "x.yaml:2: names[1]: expected a text"},
    {"server: abc\nmodels: [a]\n", "x.yaml:2: models[0]: expected a map, found 'a'"},
    {"server: abc\nmodels:\n  - mmproj: [a]\n", "x.yaml: models[0].text: missing"},
    {"server: abc\nmodels:\n  - text: a\n  - txet: a\n", "x.yaml:4: models[1].txet: unknown key"},
    {"server: abc\nmodels:\n  - text: a\n    text: b\n",
     "x.yaml:4: models[0].text: given twice, first in line 3"},
    {"server: abc\nmodels:\n  - text: a\n    weight: x\n", "x.yaml:4: models[0].weight"},
    {"server: &a abc\n", "x.yaml:1: anchors, aliases and tags"},
    {"server: *a\n", "x.yaml:1: anchors, aliases and tags"},
    {"server: !!str abc\n", "x.yaml:1: anchors, aliases and tags"},
    {"server: abc\npolicy: &p {epsilon: 1}\n", "x.yaml:2: anchors, aliases and tags"},
    {"server: abc\n<<: {fast: true}\n", "x.yaml:2: expected a key of letters"},
    {"server: abc\n? [a]\n: b\n", "x.yaml:2: expected a key"},
    {"server: abc\n\"\": b\n", "x.yaml:2: expected a key of letters"},
    {"server: abc\n---\nserver: def\n", "x.yaml:2: a second document"},
    {"server: abc\nnames: [[[[[[[[a]]]]]]]]\n", "x.yaml:2: nested deeper"},
    {"server: \"abc\n", "not YAML"},
    {"server: abc\n\tfast: true\n", "x.yaml"},
    {"server: \xff\xfe\n", "not YAML"},
    {"server: abc\n  fast: true\n", "not YAML"},
};

static void refuses_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sample s;
        tacit_error err = {0};
        tacit_status status = parse(bad[i].text, &s, &err);
        if (status != TACIT_BAD_INPUT || !strstr(err.message, bad[i].says))
            print_error("of\n%s\nexpected '%s'\nfound    '%s'\n", bad[i].text, bad[i].says,
                        err.message);
        assert_int_equal(status, TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, bad[i].says));
        assert_null(s.server);
        assert_null(s.names.item);
        assert_null(s.models.item);
    }
}

static void bounds_the_size(void **state)
{
    size_t size = (1 << 20) + 1;
    char *text = malloc(size + 1);
    sample s = {0};
    tacit_error err;
    (void)state;
    memset(text, '#', size);
    memcpy(text, "server: abc\n", 12);
    assert_int_equal(tacit_config_parse("x", text, size, rows, &s, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_config_parse("x", text, size - 1, rows, &s, &err), TACIT_OK);
    tacit_config_free(rows, &s);
    /* More values than fit. */
    memcpy(text, "names:\n", 7);
    for (int i = 0; i < 5000; i++)
        memcpy(text + 7 + 4 * i, "- a\n", 4);
    assert_int_equal(tacit_config_parse("x", text, 7 + 4 * 5000, rows, &s, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "more than 4096 values"));
    free(text);
}

/* Whatever is cut off a good file, nothing is read beyond it and nothing leaks. */
static void survives_every_cut(void **state)
{
    static const char text[] = "server: abc\nnames: [a, \"b\"]\nmodels:\n  - text: x\n    mmproj: "
                               "[y]\npolicy: {epsilon: 2, unit: device}\n";
    (void)state;
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        char *copy = malloc(cut + 1); /* exact, for the sanitizer */
        sample s = {0};
        tacit_error err;
        memcpy(copy, text, cut);
        if (tacit_config_parse("x", copy, cut, rows, &s, &err) == TACIT_OK)
            tacit_config_free(rows, &s);
        free(copy);
    }
}

static void reads_from_disk(void **state)
{
    char path[] = "/tmp/tacit-config-XXXXXX";
    sample s = {0};
    tacit_error err;
    (void)state;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "server: abc\nfoo: 1\n", 19), 19);
    close(fd);
    assert_int_equal(tacit_config_read(path, rows, &s, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, ":2: foo: unknown key"));
    unlink(path);
    assert_int_equal(tacit_config_read(path, rows, &s, &err), TACIT_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_everything),   cmocka_unit_test(keeps_defaults),
        cmocka_unit_test(refuses_bad_files),  cmocka_unit_test(bounds_the_size),
        cmocka_unit_test(survives_every_cut), cmocka_unit_test(reads_from_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
