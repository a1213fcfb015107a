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

static char folder[] = "/tmp/tacit-pretrain-XXXXXX";
static char text_path[64], mmproj_path[64], state_path[64];
static tacit_model *model;

static int make(void **state)
{
    const char *mmproj = mmproj_path;
    tacit_error err;
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(text_path, sizeof text_path, "%s/start.gguf", folder);
    snprintf(mmproj_path, sizeof mmproj_path, "%s/mmproj-start.gguf", folder);
    snprintf(state_path, sizeof state_path, "%s/checkpoint.bin", folder);
    if (pretrain_write_start(text_path, mmproj_path, 1, &err) == TACIT_OK &&
        tacit_model_load(&model, text_path, &mmproj, 1, NULL, &err) == TACIT_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return -1;
}

static int destroy(void **state)
{
    (void)state;
    tacit_model_free(model);
    unlink(text_path);
    unlink(mmproj_path);
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
    char again[64], other[64];
    uint8_t *a, *b;
    size_t na, nb;
    tacit_error err;
    (void)state;
    snprintf(again, sizeof again, "%s/again.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    assert_int_equal(pretrain_write_start(again, other, 1, &err), TACIT_OK);
    assert_int_equal(tacit_file_read(text_path, 1 << 24, &a, &na, &err), TACIT_OK);
    assert_int_equal(tacit_file_read(again, 1 << 24, &b, &nb, &err), TACIT_OK);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    free(a);
    free(b);
    unlink(again);
    unlink(other);
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
    for (uint64_t i = 0; i < 20; i++) {
        tacit_input a, b;
        tacit_error err;
        assert_int_equal(pretrain_example(&a, model, 3, i, 0.5, &err), TACIT_OK);
        assert_int_equal(pretrain_example(&b, model, 3, i, 0.5, &err), TACIT_OK);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.row, b.row, a.count * sizeof *a.row);
        assert_int_equal(a.n_media, 1);
        assert_memory_equal(a.media[0].digest, b.media[0].digest, sizeof a.media[0].digest);
        assert_in_range(a.count, 30, PRETRAIN_MAX_ROWS);
        tacit_input_free(&a);
        tacit_input_free(&b);
    }
}

/* nano never says a new label, and every answer ends its turn. */
static void new_labels_are_never_trained(void **state)
{
    (void)state;
    size_t forms = 0;
    for (uint64_t i = 0; i < 400; i++) {
        tacit_input in;
        tacit_error err;
        size_t image_rows = 0;
        assert_int_equal(pretrain_example(&in, model, 1, i, i % 2 ? 0.0 : 1.0, &err), TACIT_OK);
        char *text = trained_text(&in);
        for (int k = 0; k < SCENE_STATES; k++) {
            assert_null(strstr(text, scene_new_label(SCENE_LAMP, k)));
            assert_null(strstr(text, scene_new_label(SCENE_TRACE, k)));
        }
        assert_non_null(strstr(text, "<end_of_utterance>"));
        for (size_t r = 0; r < in.count; r++)
            image_rows += in.row[r].modality == TACIT_MODALITY_IMAGE;
        assert_true(image_rows == 16 || image_rows == 32);
        forms |= image_rows / 16;
        free(text);
        tacit_input_free(&in);
    }
    assert_int_equal(forms, 3);
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
        cmocka_unit_test(checkpoints_come_back),
        cmocka_unit_test(damaged_checkpoints_are_refused),
    };
    return cmocka_run_group_tests(tests, make, destroy);
}
