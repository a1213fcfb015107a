/* Pretraining: the untrained pair, its examples, and checkpoints that continue a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "scenes/pretrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef TACIT_SANITIZED
enum { EXAMPLES = 160, TWICE = 10, ROUNDS = 1 };
#else
enum { EXAMPLES = 400, TWICE = 40, ROUNDS = 2 };
#endif

static char folder[] = "/tmp/tacit-pretrain-XXXXXX";
static char path[PRETRAIN_FILES][64], state_path[64];
static pretrain_files files;
static tacit_model *model;

static int make(void **state)
{
    tacit_error err;
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < PRETRAIN_FILES; i++) {
        snprintf(path[i], sizeof path[i], "%s/start-%d.gguf", folder, i);
        files.path[i] = path[i];
    }
    snprintf(state_path, sizeof state_path, "%s/checkpoint.bin", folder);
    if (pretrain_write_start(&files, 1, &err) == TACIT_OK &&
        pretrain_load(&model, &files, &err) == TACIT_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return -1;
}

static int destroy(void **state)
{
    (void)state;
    tacit_model_free(model);
    for (int i = 0; i < PRETRAIN_FILES; i++)
        unlink(path[i]);
    unlink(state_path);
    return rmdir(folder);
}

/* The hyper-parameters that the format of the pair was agreed on. */
static void start_has_nanos_shape(void **state)
{
    (void)state;
    assert_int_equal(tacit_model_embedding(model), 128);
    assert_int_equal(tacit_model_vocab(model), 768);
    assert_int_equal(tacit_model_context_length(model), 2048);
}

static void same_seed_same_files(void **state)
{
    char again[PRETRAIN_FILES][64];
    pretrain_files others;
    tacit_error err;
    (void)state;
    for (int i = 0; i < PRETRAIN_FILES; i++) {
        snprintf(again[i], sizeof again[i], "%s/again-%d.gguf", folder, i);
        others.path[i] = again[i];
    }
    assert_int_equal(pretrain_write_start(&others, 1, &err), TACIT_OK);
    for (int i = 0; i < PRETRAIN_FILES; i++) {
        uint8_t *a, *b;
        size_t na, nb;
        assert_int_equal(tacit_file_read(path[i], 1 << 24, &a, &na, &err), TACIT_OK);
        assert_int_equal(tacit_file_read(again[i], 1 << 24, &b, &nb, &err), TACIT_OK);
        assert_int_equal(na, nb);
        assert_memory_equal(a, b, na);
        free(a);
        free(b);
        unlink(again[i]);
    }
}

static char *trained_text(const tacit_input *in)
{
    tacit_buffer b = {0};
    tacit_error err;
    for (size_t i = 0; i < in->count; i++)
        if (in->row[i].trained)
            assert_int_equal(
                tacit_detokenize(tacit_model_tokenizer(model), in->row[i].token, true, &b, &err),
                TACIT_OK);
    assert_int_equal(tacit_buffer_append(&b, "", 1), TACIT_OK);
    return (char *)b.data;
}

static void examples_are_reproducible(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < TWICE; i++) {
        tacit_input a, b;
        tacit_error err;
        assert_int_equal(pretrain_example(&a, model, 3, i, 0.5, &err), TACIT_OK);
        assert_int_equal(pretrain_example(&b, model, 3, i, 0.5, &err), TACIT_OK);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.row, b.row, a.count * sizeof *a.row);
        assert_int_equal(a.n_media, b.n_media);
        assert_in_range(a.n_media, 1, 3);
        for (size_t k = 0; k < a.n_media; k++)
            assert_memory_equal(a.media[k].digest, b.media[k].digest, sizeof a.media[k].digest);
        assert_in_range(a.count, 20, PRETRAIN_MAX_ROWS);
        tacit_input_free(&a);
        tacit_input_free(&b);
    }
}

/* Bit m for every modality among the rows. */
static unsigned modalities_of(const tacit_input *in, size_t count[8])
{
    unsigned found = 0;
    memset(count, 0, 8 * sizeof *count);
    for (size_t r = 0; r < in->count; r++) {
        found |= 1u << in->row[r].modality;
        count[in->row[r].modality]++;
    }
    return found & ~(1u << TACIT_MODALITY_TOKEN);
}

/* nano never says a new label, every answer ends its turn, every mixture of senses occurs, and
 * pictures in all their forms. */
static void new_labels_are_never_trained(void **state)
{
    (void)state;
    size_t forms = 0, count[8], seen[1 << 8] = {0};
    for (uint64_t i = 0; i < EXAMPLES; i++) {
        tacit_input in;
        tacit_error err;
        assert_int_equal(pretrain_example(&in, model, 1, i, i % 2 ? 0.0 : 1.0, &err), TACIT_OK);
        char *text = trained_text(&in);
        for (int k = 0; k < SCENE_STATES; k++) {
            assert_null(strstr(text, scene_new_label(SCENE_LAMP, k)));
            assert_null(strstr(text, scene_new_label(SCENE_TRACE, k)));
        }
        assert_non_null(strstr(text, "<end_of_utterance>"));
        seen[modalities_of(&in, count)]++;
        size_t rows = count[TACIT_MODALITY_IMAGE];
        assert_true(rows == 0 || rows == 16 || rows == 32);
        forms |= rows / 16;
        assert_in_range(count[TACIT_MODALITY_AUDIO], 0, 25);
        assert_in_range(count[TACIT_MODALITY_SENSOR], 0, 10);
        free(text);
        tacit_input_free(&in);
    }
    assert_int_equal(forms, 3);
    const unsigned image = 1u << TACIT_MODALITY_IMAGE, audio = 1u << TACIT_MODALITY_AUDIO,
                   sensor = 1u << TACIT_MODALITY_SENSOR;
    assert_in_range(seen[image], EXAMPLES * 35 / 100, EXAMPLES * 55 / 100);
    assert_true(seen[audio] && seen[sensor] && seen[image | audio] && seen[image | sensor] &&
                seen[audio | sensor] && seen[image | audio | sensor]);
}

/* A control replaces what it says and nothing else. */
static void swapping_takes_one_sense_from_elsewhere(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < ROUNDS * scene_ask_count(); i++) {
        unsigned needs = scene_ask_at(i % scene_ask_count())->needs;
        for (unsigned swap = 1; swap < 8; swap *= 2) {
            char want[SCENE_TEXT_MAX], same[SCENE_TEXT_MAX];
            size_t ask, moved = 0;
            tacit_input a, b;
            tacit_error err;
            assert_int_equal(
                pretrain_sense_question(&a, want, &ask, model, SCENE_PRETRAIN, i, 0, &err),
                TACIT_OK);
            assert_int_equal(
                pretrain_sense_question(&b, same, &ask, model, SCENE_PRETRAIN, i, swap, &err),
                TACIT_OK);
            assert_int_equal(ask, i % scene_ask_count());
            assert_string_equal(want, same);
            assert_int_equal(a.n_media, b.n_media);
            for (size_t k = 0; k < a.n_media; k++)
                moved +=
                    memcmp(a.media[k].digest, b.media[k].digest, sizeof a.media[k].digest) != 0;
            assert_int_equal(moved, (needs & swap) != 0);
            tacit_input_free(&a);
            tacit_input_free(&b);
        }
    }
}

static pretrain_state small_state(float *values, float *average, float *first, float *second)
{
    pretrain_state s = {.seed = 5, .step = 7, .steps = 100, .seconds = 1.5, .count = 4};
    s.values = values;
    s.average = average;
    s.optimizer = (tacit_optimizer){.count = 4, .step = 7, .first = first, .second = second};
    return s;
}

static void checkpoints_come_back(void **state)
{
    float one[4][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {-1, -2, -3, -4}, {9, 10, 11, 12}};
    float two[4][4] = {{0}};
    pretrain_state a = small_state(one[0], one[1], one[2], one[3]);
    pretrain_state b = small_state(two[0], two[1], two[2], two[3]);
    tacit_error err;
    (void)state;
    b.step = b.optimizer.step = 0;
    assert_int_equal(pretrain_state_save(&a, state_path, &err), TACIT_OK);
    assert_int_equal(pretrain_state_load(&b, state_path, &err), TACIT_OK);
    assert_memory_equal(one, two, sizeof one);
    assert_int_equal(b.step, 7);
    assert_int_equal(b.optimizer.step, 7);
    assert_true(b.seconds == 1.5);
}

/* Every flipped byte and every cut is noticed. */
static void damaged_checkpoints_are_refused(void **state)
{
    float one[4][4] = {{1, 2, 3, 4}}, two[4][4];
    pretrain_state a = small_state(one[0], one[1], one[2], one[3]);
    pretrain_state b = small_state(two[0], two[1], two[2], two[3]);
    uint8_t *data;
    size_t size;
    tacit_error err;
    (void)state;
    assert_int_equal(pretrain_state_save(&a, state_path, &err), TACIT_OK);
    assert_int_equal(tacit_file_read(state_path, 1 << 20, &data, &size, &err), TACIT_OK);
    for (size_t i = 0; i < size; i++) {
        data[i] ^= 0x40;
        assert_int_equal(tacit_file_write(state_path, data, size, 0600, &err), TACIT_OK);
        assert_int_equal(pretrain_state_load(&b, state_path, &err), TACIT_BAD_INPUT);
        data[i] ^= 0x40;
        assert_int_equal(tacit_file_write(state_path, data, i, 0600, &err), TACIT_OK);
        assert_int_equal(pretrain_state_load(&b, state_path, &err), TACIT_BAD_INPUT);
    }
    free(data);
    b.seed = 6;
    assert_int_equal(pretrain_state_save(&a, state_path, &err), TACIT_OK);
    assert_int_equal(pretrain_state_load(&b, state_path, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "seed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_has_nanos_shape),
        cmocka_unit_test(same_seed_same_files),
        cmocka_unit_test(examples_are_reproducible),
        cmocka_unit_test(new_labels_are_never_trained),
        cmocka_unit_test(swapping_takes_one_sense_from_elsewhere),
        cmocka_unit_test(checkpoints_come_back),
        cmocka_unit_test(damaged_checkpoints_are_refused),
    };
    return cmocka_run_group_tests(tests, make, destroy);
}
