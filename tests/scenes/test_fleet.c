/* Fleets: one answer per question and state on all devices, disjoint sets, readable files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/file.h"
#include "engine/dataset.h"
#include "scenes/scene_fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/tacit-fleet-XXXXXX";

static scene_fleet_spec small_fleet(scene_split split)
{
    scene_fleet_spec spec = scene_fleet_defaults();
    spec.split = split;
    spec.seed = 7;
    spec.devices = 4;
    spec.min_records = 10;
    spec.max_records = 40;
    spec.heldout = 8;
    spec.gate = 16;
    return spec;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* The field a question is about, by searching the public lists. */
static scene_field field_of(const char *question, bool *new_words)
{
    for (int f = 0; f < SCENE_FIELD_COUNT; f++) {
        for (size_t i = 0; i < scene_question_count(f); i++) {
            if (strcmp(question, scene_question(f, i)) == 0) {
                *new_words = false;
                return (scene_field)f;
            }
        }
        for (size_t i = 0; i < scene_new_question_count(f); i++) {
            if (strcmp(question, scene_new_question(f, i)) == 0) {
                *new_words = true;
                return (scene_field)f;
            }
        }
    }
    fail_msg("unknown question '%s'", question);
    return SCENE_FIELD_COUNT;
}

/* Devices never contradict each other: the first answer met for (question, value) is kept in a
 * table, and every later one must equal it. */
static void answers_agree_between_devices(void **state)
{
    (void)state;
    static char known[SCENE_FIELD_COUNT][2][SCENE_STATES][SCENE_TEXT_MAX];
    size_t labels = 0, numbers = 0;
    for (int split = SCENE_REHEARSAL; split <= SCENE_FLEET; split++) {
        scene_fleet_spec spec = scene_fleet_defaults();
        spec.split = (scene_split)split;
        for (size_t d = 0; d < spec.devices; d++) {
            for (size_t i = 0; i < scene_fleet_records(&spec, d); i++) {
                scene_record r;
                bool new_words = false;
                scene_fleet_record(&spec, d, "train", i, &r);
                scene_field f = field_of(r.question, &new_words);
                assert_true(r.picture.shown[f]);
                assert_int_equal(new_words, strcmp(r.kind, "label") == 0);
                labels += new_words;
                numbers += !new_words;
                if (!scene_field_has_states(f))
                    continue;
                char *first = known[f][new_words][r.picture.value[f]];
                if (!first[0])
                    memcpy(first, r.answer, sizeof r.answer);
                assert_string_equal(first, r.answer);
            }
        }
    }
    assert_in_range(labels, numbers - 20, numbers + 20);
    for (int i = 0; i < SCENE_STATES; i++)
        assert_true(known[SCENE_LAMP][1][i][0] && known[SCENE_TRACE][1][i][0]);
}

static void sizes_and_kinds_differ(void **state)
{
    (void)state;
    scene_fleet_spec spec = scene_fleet_defaults();
    size_t clusters = 0;
    for (size_t d = 0; d < spec.devices; d++) {
        scene_record r;
        size_t n = scene_fleet_records(&spec, d);
        assert_in_range(n, 600, 900);
        for (size_t e = 0; e < d; e++)
            assert_int_not_equal(n, scene_fleet_records(&spec, e));
        scene_fleet_record(&spec, d, "train", 0, &r);
        clusters += r.picture.kind == SCENE_CLUSTER;
        assert_true(scene_style_in_split(&r.picture.style, spec.split));
    }
    assert_int_equal(clusters * 2, spec.devices);
}

static void load(tacit_dataset *data, const char *name)
{
    char path[256];
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (tacit_dataset_load(data, path, true, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, TACIT_DIGEST_BYTES);
}

/* Decodes every picture of a set and appends its digest. */
static void check_pictures(const tacit_dataset *data, uint8_t (*digest)[TACIT_DIGEST_BYTES],
                           size_t *n)
{
    for (size_t i = 0; i < data->count; i++) {
        const tacit_message *user = &data->record[i].message[0];
        uint8_t *bytes;
        size_t size;
        tacit_error err;
        assert_int_equal(user->content[0].kind, TACIT_CONTENT_IMAGE);
        assert_int_equal(tacit_file_read(user->content[0].text, 1 << 20, &bytes, &size, &err),
                         TACIT_OK);
        assert_true(size > 1000 && bytes[0] == 0xff && bytes[1] == 0xd8);
        tacit_digest(digest[(*n)++], bytes, size);
        free(bytes);
    }
}

static void files_are_valid_and_sets_disjoint(void **state)
{
    (void)state;
    static uint8_t digest[1000][TACIT_DIGEST_BYTES];
    scene_fleet_spec spec = small_fleet(SCENE_FLEET);
    tacit_error err;
    size_t n = 0;
    if (scene_fleet_write(&spec, folder, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (size_t d = 1; d <= spec.devices; d++) {
        char name[64];
        tacit_dataset train, heldout;
        snprintf(name, sizeof name, "device-%zu/data.jsonl", d);
        load(&train, name);
        snprintf(name, sizeof name, "device-%zu/heldout.jsonl", d);
        load(&heldout, name);
        assert_int_equal(train.count, scene_fleet_records(&spec, d - 1));
        assert_int_equal(heldout.count, spec.heldout);
        check_pictures(&train, digest, &n);
        check_pictures(&heldout, digest, &n);
        tacit_dataset_free(&train);
        tacit_dataset_free(&heldout);
    }
    tacit_dataset gate, all;
    load(&gate, "gate.jsonl");
    assert_int_equal(gate.count, spec.gate);
    check_pictures(&gate, digest, &n);
    tacit_dataset_free(&gate);
    load(&all, "heldout.jsonl");
    assert_int_equal(all.count, spec.heldout * spec.devices);
    tacit_dataset_free(&all);
    qsort(digest, n, sizeof digest[0], compare_digests);
    for (size_t i = 1; i < n; i++)
        assert_memory_not_equal(digest[i - 1], digest[i], TACIT_DIGEST_BYTES);
}

/* The control permutes pictures and leaves everything else as it was. */
static void shuffling_moves_pictures_only(void **state)
{
    (void)state;
    scene_fleet_spec spec = small_fleet(SCENE_REHEARSAL);
    tacit_error err;
    tacit_dataset plain, shuffled;
    size_t moved = 0;
    assert_int_equal(scene_fleet_write(&spec, folder, &err), TACIT_OK);
    load(&plain, "device-2/data.jsonl");
    spec.shuffle_pictures = true;
    assert_int_equal(scene_fleet_write(&spec, folder, &err), TACIT_OK);
    load(&shuffled, "device-2/data.jsonl");
    assert_int_equal(plain.count, shuffled.count);
    for (size_t i = 0; i < plain.count; i++) {
        const tacit_message *a = plain.record[i].message, *b = shuffled.record[i].message;
        size_t same = 0;
        assert_string_equal(a[0].content[1].text, b[0].content[1].text);
        assert_string_equal(a[1].content[0].text, b[1].content[0].text);
        moved += strcmp(a[0].content[0].text, b[0].content[0].text) != 0;
        for (size_t k = 0; k < plain.count; k++)
            same +=
                strcmp(a[0].content[0].text, shuffled.record[k].message[0].content[0].text) == 0;
        assert_int_equal(same, 1);
    }
    assert_true(moved * 2 > plain.count);
    tacit_dataset_free(&plain);
    tacit_dataset_free(&shuffled);
}

static void base_sets_never_ask_new_words(void **state)
{
    (void)state;
    tacit_error err;
    tacit_dataset data;
    assert_int_equal(scene_set_write(SCENE_PRETRAIN, "test", 3, 60, folder, &err), TACIT_OK);
    load(&data, "data.jsonl");
    assert_int_equal(data.count, 60);
    for (size_t i = 0; i < data.count; i++) {
        bool new_words = true;
        const tacit_record *r = &data.record[i];
        scene_field f = field_of(r->message[0].content[1].text, &new_words);
        assert_false(new_words);
        assert_int_equal(strncmp(r->id, scene_field_name(f), strlen(scene_field_name(f))), 0);
    }
    tacit_dataset_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_agree_between_devices),
        cmocka_unit_test(sizes_and_kinds_differ),
        cmocka_unit_test(files_are_valid_and_sets_disjoint),
        cmocka_unit_test(shuffling_moves_pictures_only),
        cmocka_unit_test(base_sets_never_ask_new_words),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
