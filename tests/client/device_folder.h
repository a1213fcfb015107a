/* A device's folder in /tmp with the tiny model, for tests. Include after cmocka.h. */
#ifndef TACIT_TESTS_DEVICE_FOLDER_H
#define TACIT_TESTS_DEVICE_FOLDER_H

#include "../engine/tiny_model.h"
#include "client/client.h"
#include "common/file.h"
#include "engine/trainable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_VALUES_RANK 8

#ifndef OK
#define OK(call) assert_int_equal((call), TACIT_OK)
#endif

static inline tacit_trainable_spec fake_spec(void)
{
    tacit_trainable_spec s = {.kind = TACIT_TRAIN_LORA_FFA,
                              .target = {"attn_output"},
                              .n_targets = 1,
                              .rank = FAKE_VALUES_RANK,
                              .alpha = 4,
                              .seed = {9}};
    return s;
}

typedef struct fake_device {
    char folder[64], dir[80], data[80];
    client *client;
    tacit_error err;
} fake_device;

/* `records` records of as many subjects. */
static inline void fake_device_data(fake_device *d, size_t records)
{
    FILE *file = fopen(d->data, "w");
    assert_non_null(file);
    for (size_t i = 0; i < records; i++)
        fprintf(file,
                "{\"id\":\"r%zu\",\"subject\":\"s%zu\",\"messages\":[{\"role\":\"user\","
                "\"content\":\"how many?\"},{\"role\":\"assistant\",\"content\":\"%zu\"}]}\n",
                i, i, i);
    assert_int_equal(fclose(file), 0);
}

static inline void fake_device_make(fake_device *d, const tiny_model *tiny, size_t records)
{
    client_config_choice choice = {.model_text = tiny->text};
    *d = (fake_device){.folder = "/tmp/tacit-device-XXXXXX"};
    assert_non_null(mkdtemp(d->folder));
    snprintf(d->dir, sizeof d->dir, "%s/device", d->folder);
    snprintf(d->data, sizeof d->data, "%s/data.jsonl", d->folder);
    choice.data = d->data;
    fake_device_data(d, records);
    OK(tacit_file_make_dir(d->dir, 0700, &d->err));
    OK(client_config_create(d->dir, &choice, &d->err));
}

/* Sets a key of the device's client.yaml, at its line's own indentation. */
static inline void fake_device_set(const fake_device *d, const char *key, const char *value)
{
    char command[512];
    snprintf(command, sizeof command, "sed -i 's|^\\( *%s:\\).*|\\1 %s|' %s/client.yaml", key,
             value, d->dir);
    assert_int_equal(system(command), 0);
}

static inline void fake_device_open(fake_device *d, client_need need)
{
    if (client_open(&d->client, d->dir, need, &d->err) != TACIT_OK)
        fail_msg("%s", d->err.message);
}

static inline void fake_device_close(fake_device *d)
{
    client_close(d->client);
    d->client = NULL;
}

/* True when DIR/folder has a file whose name ends so. */
static inline bool fake_device_has(const fake_device *d, const char *folder, const char *ending)
{
    char command[256];
    snprintf(command, sizeof command, "ls %s/%s/*%s >/dev/null 2>&1", d->dir, folder, ending);
    return system(command) == 0;
}

static inline void fake_device_drop(fake_device *d)
{
    char command[128];
    fake_device_close(d);
    snprintf(command, sizeof command, "rm -rf %s", d->folder);
    assert_int_equal(system(command), 0);
}

#endif
