/* Sets of scenes with sounds and signals on disk. */
#include "scenes/scene_senses.h"

#include "common/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define MEDIUM_BYTES ((size_t)1 << 20)

/* ---- media ---- */

static tacit_status make_picture(const scene_senses *s, tacit_buffer *out, tacit_error *err)
{
    return scene_jpeg(&s->picture, out, err);
}

static tacit_status make_sound(const scene_senses *s, tacit_buffer *out, tacit_error *err)
{
    return scene_sound_wav(&s->sound, out, err);
}

static tacit_status make_signal(const scene_senses *s, tacit_buffer *out, tacit_error *err)
{
    return scene_signal_csv(&s->signal, out, err);
}

typedef struct medium_row {
    unsigned sense;
    const char *type; /* of the content in a dataset's line */
    const char *folder, *extension;
    tacit_status (*make)(const scene_senses *s, tacit_buffer *out, tacit_error *err);
} medium_row;

static const medium_row media[SCENE_SENSES] = {
    {SCENE_SENSE_PICTURE, "image", "img", "jpg", make_picture},
    {SCENE_SENSE_SOUND, "audio", "snd", "wav", make_sound},
    {SCENE_SENSE_SIGNAL, "sensor", "csv", "csv", make_signal},
};

static tacit_status write_file(const char *path, const tacit_buffer *b, tacit_error *err)
{
    FILE *file = fopen(path, "wb");
    bool whole = file && fwrite(b->data, 1, b->size, file) == b->size;
    if (file && fclose(file) != 0)
        whole = false;
    return whole ? TACIT_OK
                 : tacit_fail(err, TACIT_IO, "%s: cannot be written; is the disk full?", path);
}

static tacit_status write_medium(const medium_row *row, const scene_senses *s, const char *dir,
                                 const char *name, tacit_error *err)
{
    tacit_buffer b = {.cap = MEDIUM_BYTES};
    char path[PATH_BYTES];
    tacit_status status;
    TACIT_TRY(row->make(s, &b, err), out);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, name, err), out);
    status = write_file(path, &b, err);
out:
    tacit_buffer_free(&b);
    return status;
}

/* ---- lines ---- */

static json_t *text_content(const char *text)
{
    return json_pack("{s:s, s:s}", "type", "text", "text", text);
}

static tacit_status append_line(tacit_buffer *lines, const char *id, json_t *content,
                                const char *answer, tacit_error *err)
{
    json_t *line = json_pack("{s:s, s:s, s:[{s:s, s:o}, {s:s, s:[o]}]}", "id", id, "subject", id,
                             "messages", "role", "user", "content", content, "role", "assistant",
                             "content", text_content(answer));
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    tacit_status status = text ? tacit_buffer_append(lines, text, strlen(text)) : TACIT_NO_MEMORY;
    if (status == TACIT_OK)
        status = tacit_buffer_append(lines, "\n", 1);
    json_decref(line);
    free(text);
    return status == TACIT_OK ? status : tacit_fail(err, status, "no memory for record %s", id);
}

static tacit_status write_record(scene_split split, uint64_t seed, uint64_t index, const char *dir,
                                 tacit_buffer *lines, tacit_error *err)
{
    scene_senses s;
    const char *wording;
    const scene_ask *ask = scene_senses_record(split, "senses", seed, index, &s, &wording);
    char id[96], name[64], answer[SCENE_TEXT_MAX];
    json_t *content = json_array();
    tacit_status status = TACIT_OK;
    for (int i = 0; i < SCENE_SENSES; i++) {
        if (!(ask->needs & media[i].sense))
            continue;
        snprintf(name, sizeof name, "%s/%06llu.%s", media[i].folder, (unsigned long long)index,
                 media[i].extension);
        status = write_medium(&media[i], &s, dir, name, err);
        if (status != TACIT_OK) {
            json_decref(content);
            return status;
        }
        json_array_append_new(content,
                              json_pack("{s:s, s:s}", "type", media[i].type, media[i].type, name));
    }
    json_array_append_new(content, text_content(wording));
    ask->answer(&s, answer);
    snprintf(id, sizeof id, "%s:senses-%06llu", ask->name, (unsigned long long)index);
    return append_line(lines, id, content, answer, err);
}

tacit_status scene_senses_write(scene_split split, uint64_t seed, size_t count, const char *dir,
                                tacit_error *err)
{
    char path[PATH_BYTES];
    tacit_buffer lines = {0};
    tacit_status status;
    for (int i = 0; i < SCENE_SENSES; i++) {
        TACIT_TRY(tacit_file_join(path, sizeof path, dir, media[i].folder, err), out);
        TACIT_TRY(tacit_file_make_dir(path, 0755, err), out);
    }
    for (size_t i = 0; i < count; i++)
        TACIT_TRY(write_record(split, seed, i, dir, &lines, err), out);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, "data.jsonl", err), out);
    status = tacit_file_write(path, lines.data, lines.size, 0644, err);
out:
    tacit_buffer_free(&lines);
    return status;
}
