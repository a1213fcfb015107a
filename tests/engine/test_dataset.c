#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/log.h"
#include "engine/dataset.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define USER "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]}"
#define ANSWER "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}"
#define RECORD(id) "{\"id\":\"" id "\",\"messages\":[" USER "," ANSWER "]}"

static void test_record_of_the_design(void **state)
{
    (void)state;
    const char line[] =
        "{\"id\":\"r1\",\"subject\":\"p-017\",\"messages\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":\"img/1.jpg\"},"
        "{\"type\":\"text\",\"text\":\"What is the heart rate?\"}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"72\"}]}]}";
    tacit_record r;
    assert_int_equal(tacit_record_parse(&r, line, strlen(line), "/data/set", NULL), TACIT_OK);
    assert_string_equal(r.id, "r1");
    assert_string_equal(r.subject, "p-017");
    assert_int_equal(r.n_messages, 2);
    assert_int_equal(r.message[0].role, TACIT_ROLE_USER);
    assert_int_equal(r.message[0].n_content, 2);
    assert_int_equal(r.message[0].content[0].kind, TACIT_CONTENT_IMAGE);
    assert_string_equal(r.message[0].content[0].text, "/data/set/img/1.jpg");
    assert_string_equal(r.message[0].content[1].text, "What is the heart rate?");
    assert_int_equal(r.message[1].role, TACIT_ROLE_ASSISTANT);
    assert_string_equal(r.message[1].content[0].text, "72");
    tacit_record_free(&r);
    assert_null(r.message);
}

static void test_every_content_type(void **state)
{
    (void)state;
    const char line[] =
        "{\"id\":\"r1\",\"messages\":[{\"role\":\"user\",\"content\":["
        "{\"type\":\"sensor\",\"sensor\":\"can/1.csv\"},{\"type\":\"audio\",\"audio\":\"a.wav\"},"
        "{\"type\":\"image\",\"image\":\"i.png\"},{\"type\":\"text\",\"text\":\"?\"}]}," ANSWER
        "]}";
    static const struct {
        tacit_content_kind kind;
        const char *text;
    } expected[] = {{TACIT_CONTENT_SENSOR, "/d/can/1.csv"},
                    {TACIT_CONTENT_AUDIO, "/d/a.wav"},
                    {TACIT_CONTENT_IMAGE, "/d/i.png"},
                    {TACIT_CONTENT_TEXT, "?"}};
    tacit_record r;
    assert_int_equal(tacit_record_parse(&r, line, strlen(line), "/d", NULL), TACIT_OK);
    assert_int_equal(r.message[0].n_content, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r.message[0].content[i].kind, expected[i].kind);
        assert_string_equal(r.message[0].content[i].text, expected[i].text);
    }
    tacit_record_free(&r);
}

static void test_plain_content_and_system(void **state)
{
    (void)state;
    const char line[] =
        "{\"id\":\"x\",\"messages\":[{\"role\":\"system\",\"content\":\"be \\u00e9\"},"
        "{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"}]}";
    tacit_record r;
    assert_int_equal(tacit_record_parse(&r, line, strlen(line), ".", NULL), TACIT_OK);
    assert_null(r.subject);
    assert_int_equal(r.message[0].role, TACIT_ROLE_SYSTEM);
    assert_string_equal(r.message[0].content[0].text, "be \xc3\xa9");
    tacit_record_free(&r);
}

/* Lines that must be refused, and a word that the reason must contain. */
static const struct {
    const char *line, *reason;
} bad[] = {
    {"", "not JSON"},
    {"{", "not JSON"},
    {"[]", "must be an object"},
    {"null", "not JSON"},
    {RECORD("a") "x", "not JSON"},
    {"{\"id\":\"a\",\"id\":\"b\",\"messages\":[" USER "," ANSWER "]}", "duplicate"},
    {"{\"messages\":[" USER "," ANSWER "]}", "'id' is missing"},
    {"{\"id\":7,\"messages\":[" USER "," ANSWER "]}", "'id' must be a string"},
    {"{\"id\":\"\",\"messages\":[" USER "," ANSWER "]}", "'id' must have"},
    {"{\"id\":\"a\\u0000b\",\"messages\":[" USER "," ANSWER "]}", "not JSON"},
    {"{\"id\":\"a\xff\",\"messages\":[" USER "," ANSWER "]}", "not JSON"},
    {"{\"id\":\"a\",\"subject\":\"\",\"messages\":[" USER "," ANSWER "]}", "'subject' must have"},
    {"{\"id\":\"a\",\"subject\":[\"x\"],\"messages\":[" USER "," ANSWER "]}", "'subject' must be"},
    {"{\"id\":\"a\",\"extra\":1,\"messages\":[" USER "," ANSWER "]}", "unknown key 'extra'"},
    {"{\"id\":\"a\"}", "'messages'"},
    {"{\"id\":\"a\",\"messages\":{}}", "'messages'"},
    {"{\"id\":\"a\",\"messages\":[]}", "'messages'"},
    {"{\"id\":\"a\",\"messages\":[1]}", "must be an object"},
    {"{\"id\":\"a\",\"messages\":[" USER "]}", "no assistant message"},
    {"{\"id\":\"a\",\"messages\":[" ANSWER "]}", "no user message"},
    {"{\"id\":\"a\",\"messages\":[" USER "," ANSWER ",{\"role\":\"system\",\"content\":\"s\"}]}",
     "must come first"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}," ANSWER "]}",
     "unknown role 'tool'"},
    {"{\"id\":\"a\",\"messages\":[{\"content\":\"x\"}," ANSWER "]}", "'role' is missing"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\"}," ANSWER "]}", "'content' must be"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[]}," ANSWER "]}", "'content'"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[3]}," ANSWER "]}", "object"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"video\","
     "\"video\":\"v\"}]}," ANSWER "]}",
     "unknown content type 'video'"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
     "\"text\":\"v\"}]}," ANSWER "]}",
     "unknown key 'text'"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}," ANSWER
     "]}",
     "'image' is missing"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
     "\"image\":\"../x.jpg\"}]}," ANSWER "]}",
     "stay inside"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
     "\"image\":\"/etc/passwd\"}]}," ANSWER "]}",
     "stay inside"},
    {"{\"id\":\"a\",\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[{\"type\":"
     "\"image\",\"image\":\"x.jpg\"}]}]}",
     "text only"},
    {"{\"id\":\"a\",\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[{\"type\":"
     "\"sensor\",\"sensor\":\"x.csv\"}]}]}",
     "text only, found sensor"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"audio\","
     "\"image\":\"v\"}]}," ANSWER "]}",
     "unknown key 'image'"},
    {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"sensor\","
     "\"sensor\":\"../x.csv\"}]}," ANSWER "]}",
     "stay inside"},
};

static void test_bad_lines_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tacit_record r;
        tacit_error err = {0};
        if (tacit_record_parse(&r, bad[i].line, strlen(bad[i].line), ".", &err) != TACIT_BAD_INPUT)
            fail_msg("line %zu was not refused: %s", i, bad[i].line);
        if (!strstr(err.message, bad[i].reason))
            fail_msg("line %zu: '%s' does not say '%s'", i, err.message, bad[i].reason);
        assert_null(r.id);
        assert_null(r.message);
    }
}

static void test_hostile_lines(void **state)
{
    (void)state;
    tacit_record r;
    size_t size = ((size_t)1 << 20) + 1;
    char *line = malloc(size);
    assert_non_null(line);
    memset(line, ' ', size);
    memcpy(line, RECORD("a"), strlen(RECORD("a")));
    assert_int_equal(tacit_record_parse(&r, line, size - 1, ".", NULL), TACIT_OK);
    tacit_record_free(&r);
    assert_int_equal(tacit_record_parse(&r, line, size, ".", NULL), TACIT_BAD_INPUT);
    memset(line, '[', size);
    assert_int_equal(tacit_record_parse(&r, line, size - 1, ".", NULL), TACIT_BAD_INPUT);
    free(line);
    const char nul[] = RECORD("a") "\0";
    assert_int_equal(tacit_record_parse(&r, nul, sizeof nul, ".", NULL), TACIT_BAD_INPUT);
    /* Every prefix of a good line is a bad one. */
    for (size_t n = 0; n < strlen(RECORD("a")); n++)
        assert_int_equal(tacit_record_parse(&r, RECORD("a"), n, ".", NULL), TACIT_BAD_INPUT);
}

static char *write_file(const char *text)
{
    char *path = strdup("/tmp/tacit-dataset-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void test_file_skips_bad_lines_unless_strict(void **state)
{
    (void)state;
    char *path = write_file(RECORD("a") "\n\n" RECORD("a") "\r\nnonsense\n" RECORD("b"));
    tacit_dataset d;
    tacit_error err = {0};
    assert_int_equal(tacit_dataset_load(&d, path, false, &err), TACIT_OK);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.bad_lines, 2);
    assert_string_equal(d.record[1].id, "b");
    assert_int_equal(d.record[1].line, 5);
    tacit_dataset_free(&d);
    assert_int_equal(tacit_dataset_load(&d, path, true, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, ":3: id 'a' was used in line 1"));
    assert_null(d.record);
    unlink(path);
    free(path);
    assert_int_equal(tacit_dataset_load(&d, "/nowhere/x.jsonl", false, &err), TACIT_NOT_FOUND);
}

/* Editors of some systems put a byte order mark before a text; anywhere else it is none. */
static void test_a_byte_order_mark_is_skipped(void **state)
{
    (void)state;
    static const char *const text[] = {"\xef\xbb\xbf" RECORD("a") "\n" RECORD("b"),
                                       RECORD("a") "\n\xef\xbb\xbf" RECORD("b"), "\xef\xbb"};
    static const size_t count[] = {2, 1, 0}, skipped[] = {0, 1, 1};
    for (size_t i = 0; i < 3; i++) {
        char *path = write_file(text[i]);
        tacit_dataset d;
        tacit_error err = {0};
        assert_int_equal(tacit_dataset_load(&d, path, false, &err), TACIT_OK);
        assert_int_equal(d.count, count[i]);
        assert_int_equal(d.bad_lines, skipped[i]);
        tacit_dataset_free(&d);
        unlink(path);
        free(path);
    }
}

static void test_many_ids(void **state)
{
    (void)state;
    enum { LINES = 3000 };
    char *text = calloc(LINES, 256);
    size_t at = 0;
    for (int i = 0; i < LINES; i++)
        at += (size_t)snprintf(text + at, 256,
                               "{\"id\":\"%d\",\"messages\":[" USER "," ANSWER "]}\n", i % 2000);
    char *path = write_file(text);
    tacit_dataset d;
    assert_int_equal(tacit_dataset_load(&d, path, false, NULL), TACIT_OK);
    assert_int_equal(d.count, 2000);
    assert_int_equal(d.bad_lines, 1000);
    tacit_dataset_free(&d);
    unlink(path);
    free(path);
    free(text);
}

#define FNV_PRIME 1099511628211u
#define LOW 0xffffu /* more bits than choose the slot */

static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";

/* FNV-1a, by which ids were found once: known to everybody. */
static uint64_t fnv(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * FNV_PRIME;
    return hash;
}

/* end[h]: three characters that lead from a hash whose lowest bits are h to one where all are 0;
 * empty where none of those tried do. */
static void find_ends(char (*end)[4])
{
    uint64_t back = 1;
    for (int i = 0; i < 6; i++)
        back *= 2 - FNV_PRIME * back; /* Newton: the prime's inverse */
    for (uint32_t n = 0; n < 64 * 64 * 64; n++) {
        const char text[4] = {digits[n % 64], digits[n / 64 % 64], digits[n / 4096], '\0'};
        uint64_t hash = 0;
        for (int i = 2; i >= 0; i--)
            hash = (hash * back) ^ (uint8_t)text[i];
        memcpy(end[hash & LOW], text, sizeof text);
    }
}

/* Lines whose ids have the same lowest bits of that hash, or whatever they have. */
static char *many_lines(size_t lines, bool alike)
{
    static char end[LOW + 1][4];
    char *text = calloc(lines, 192), id[32];
    size_t at = 0, found = 0;
    find_ends(end);
    for (uint64_t n = 0; found < lines; n++) {
        snprintf(id, sizeof id, "%llx.", (unsigned long long)n);
        const char *last = alike ? end[fnv(id) & LOW] : "abc";
        if (!last[0])
            continue;
        strcat(id, last);
        assert_true(!alike || (fnv(id) & LOW) == 0);
        at += (size_t)snprintf(text + at, 192,
                               "{\"id\":\"%s\",\"messages\":[" USER "," ANSWER "]}\n", id);
        found++;
    }
    return text;
}

/* Processor seconds of reading them. */
static double seconds_of(char *text, size_t lines)
{
    char *path = write_file(text);
    tacit_dataset d;
    clock_t start = clock();
    assert_int_equal(tacit_dataset_load(&d, path, true, NULL), TACIT_OK);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_int_equal(d.count, lines);
    tacit_dataset_free(&d);
    unlink(path);
    free(path);
    free(text);
    return seconds;
}

/* Chosen ids cost what others cost; by a hash without a key it is some thirty times that. */
static void test_ids_that_were_made_to_collide(void **state)
{
    (void)state;
    enum { LINES = 30000 };
    double plain = seconds_of(many_lines(LINES, false), LINES);
    double chosen = seconds_of(many_lines(LINES, true), LINES);
    assert_true(chosen < 5 * plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_of_the_design),
        cmocka_unit_test(test_every_content_type),
        cmocka_unit_test(test_plain_content_and_system),
        cmocka_unit_test(test_bad_lines_are_refused_by_name),
        cmocka_unit_test(test_hostile_lines),
        cmocka_unit_test(test_file_skips_bad_lines_unless_strict),
        cmocka_unit_test(test_a_byte_order_mark_is_skipped),
        cmocka_unit_test(test_many_ids),
        cmocka_unit_test(test_ids_that_were_made_to_collide),
    };
    tacit_log_init("test", TACIT_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
