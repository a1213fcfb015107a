/* Fleets and sets on disk. Every picture has its own generator, made from (seed, purpose, index),
 * so any record can be drawn alone. */
#include "scenes/scene_fleet.h"

#include "common/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_BYTES 1024
#define PER_SUBJECT 12  /* records of one driver or patient */
#define DEVICE_STATES 6 /* labels of one device */

/* One device, or the server with its gate set. */
typedef struct fleet_member {
    scene_kind kind;
    scene_style style;
    int state[SCENE_STATES]; /* lamps or traces it meets */
    int states;
    char name[32];
    uint64_t seed;
} fleet_member;

/* Where records are written and how many answers of each question were seen. */
typedef struct set_writer {
    const char *dir;
    const char *pictures; /* folder of pictures below dir, with '/' */
    tacit_buffer lines;
} set_writer;

static const scene_field number_fields[SCENE_KINDS][3] = {
    {SCENE_SPEED, SCENE_FUEL, SCENE_SPEED},
    {SCENE_HEART, SCENE_OXYGEN, SCENE_PRESSURE},
};

scene_fleet_spec scene_fleet_defaults(void)
{
    return (scene_fleet_spec){
        .split = SCENE_FLEET,
        .seed = 1,
        .devices = 8,
        .min_records = 600,
        .max_records = 900,
        .heldout = 48,
        .gate = 192,
    };
}

/* Pictures of one device share its style; light and small shifts differ from picture to picture. */
static void vary_style(scene_style *style, scene_prng *prng)
{
    style->glare *= scene_prng_between(prng, 0.5, 1.0);
    style->noise *= scene_prng_between(prng, 0.5, 1.0);
}

static void draw_states(fleet_member *m, scene_prng *prng)
{
    for (int i = 0; i < SCENE_STATES; i++)
        m->state[i] = i;
    for (int i = SCENE_STATES - 1; i > 0; i--) {
        int j = scene_prng_range(prng, 0, i), keep = m->state[i];
        m->state[i] = m->state[j];
        m->state[j] = keep;
    }
    m->states = DEVICE_STATES;
}

static fleet_member make_member(const scene_fleet_spec *spec, size_t index)
{
    fleet_member m = {.kind = index < spec->devices / 2 ? SCENE_CLUSTER : SCENE_MONITOR};
    scene_prng prng = scene_prng_make(spec->seed, "device", index * 4 + spec->split);
    m.seed = scene_prng_u64(&prng);
    scene_draw_style(&m.style, spec->split, &prng);
    draw_states(&m, &prng);
    snprintf(m.name, sizeof m.name, "device-%zu", index + 1);
    return m;
}

/* Record `index` of a member: odd ones read a number, even ones name a state in the new words. */
static void make_record(const fleet_member *m, const char *purpose, size_t index, scene_record *r)
{
    scene_prng prng = scene_prng_make(m->seed, purpose, index);
    scene_field states = m->kind == SCENE_CLUSTER ? SCENE_LAMP : SCENE_TRACE;
    scene_draw_values(&r->picture, m->kind, &prng);
    r->picture.style = m->style;
    vary_style(&r->picture.style, &prng);
    r->picture.value[states] = m->state[scene_prng_range(&prng, 0, m->states - 1)];
    if (index % 2 == 0) {
        size_t n = scene_new_question_count(states);
        r->kind = "label";
        r->question = scene_new_question(states, (size_t)scene_prng_range(&prng, 0, (int)n - 1));
        scene_new_answer(&r->picture, states, r->answer);
        return;
    }
    scene_field field = number_fields[m->kind][scene_prng_range(&prng, 0, 2)];
    size_t n = scene_question_count(field);
    r->kind = "number";
    r->question = scene_question(field, (size_t)scene_prng_range(&prng, 0, (int)n - 1));
    scene_answer(&r->picture, field, r->answer);
}

void scene_fleet_record(const scene_fleet_spec *spec, size_t device, const char *set, size_t index,
                        scene_record *out)
{
    fleet_member m = make_member(spec, device);
    make_record(&m, set, index, out);
}

static tacit_status write_picture(const char *dir, const char *name, const scene *s,
                                  tacit_error *err)
{
    tacit_buffer jpeg = {.cap = 1 << 20};
    char path[PATH_MAX_BYTES];
    FILE *file = NULL;
    tacit_status status;
    TACIT_TRY(scene_jpeg(s, &jpeg, err), out);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, name, err), out);
    file = fopen(path, "wb");
    if (!file || fwrite(jpeg.data, 1, jpeg.size, file) != jpeg.size) {
        status = tacit_fail(err, TACIT_IO, "%s: cannot be written; is the disk full?", path);
        goto out;
    }
out:
    if (file && fclose(file) != 0 && status == TACIT_OK)
        status = tacit_fail(err, TACIT_IO, "%s: cannot be written; is the disk full?", path);
    tacit_buffer_free(&jpeg);
    return status;
}

static tacit_status append_line(tacit_buffer *lines, const char *id, const char *subject,
                                const char *picture, const char *question, const char *answer,
                                tacit_error *err)
{
    json_t *line = json_pack("{s:s, s:s, s:[{s:s, s:[{s:s, s:s}, {s:s, s:s}]},"
                             " {s:s, s:[{s:s, s:s}]}]}",
                             "id", id, "subject", subject, "messages", "role", "user", "content",
                             "type", "image", "image", picture, "type", "text", "text", question,
                             "role", "assistant", "content", "type", "text", "text", answer);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text || tacit_buffer_append(lines, text, strlen(text)) != TACIT_OK ||
        tacit_buffer_append(lines, "\n", 1) != TACIT_OK) {
        free(text);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for record %s", id);
    }
    free(text);
    return TACIT_OK;
}

static void make_order(size_t *order, size_t n, bool shuffle, uint64_t seed)
{
    scene_prng prng = scene_prng_make(seed, "shuffle", 0);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; shuffle && i > 1; i--) {
        size_t j = (size_t)scene_prng_range(&prng, 0, (int)i - 1), keep = order[i - 1];
        order[i - 1] = order[j];
        order[j] = keep;
    }
}

/* Draws `n` records into w->dir/w->pictures and appends their lines, and with `prefix` the same
 * lines with the picture's path seen from the parent folder to `all`. */
static tacit_status write_records(set_writer *w, const fleet_member *m, const char *purpose,
                                  size_t n, bool shuffle, const char *prefix, tacit_buffer *all,
                                  tacit_error *err)
{
    size_t *order = malloc((n + 1) * sizeof *order);
    tacit_status status = TACIT_OK;
    if (!order)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu records", n);
    make_order(order, n, shuffle, m->seed);
    for (size_t i = 0; i < n && status == TACIT_OK; i++) {
        scene_record r;
        char id[96], subject[64], picture[96], seen[160];
        make_record(m, purpose, i, &r);
        snprintf(id, sizeof id, "%s:%s-%s-%05zu", r.kind, m->name, purpose, i);
        snprintf(subject, sizeof subject, "%s-%zu", m->kind == SCENE_CLUSTER ? "driver" : "patient",
                 i / PER_SUBJECT);
        snprintf(picture, sizeof picture, "%s%s-%05zu.jpg", w->pictures, purpose, i);
        TACIT_TRY(write_picture(w->dir, picture, &r.picture, err), out);
        snprintf(picture, sizeof picture, "%s%s-%05zu.jpg", w->pictures, purpose, order[i]);
        TACIT_TRY(append_line(&w->lines, id, subject, picture, r.question, r.answer, err), out);
        if (!prefix)
            continue;
        snprintf(seen, sizeof seen, "%s/%s", prefix, picture);
        status = append_line(all, id, subject, seen, r.question, r.answer, err);
    }
out:
    free(order);
    return status;
}

static tacit_status publish(const char *dir, const char *name, const tacit_buffer *b,
                            tacit_error *err)
{
    char path[PATH_MAX_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, name, err);
    return status != TACIT_OK ? status : tacit_file_write(path, b->data, b->size, 0644, err);
}

static tacit_status make_folders(char *dir, const char *parent, const char *name, tacit_error *err)
{
    char pictures[PATH_MAX_BYTES];
    tacit_status status = tacit_file_join(dir, PATH_MAX_BYTES, parent, name, err);
    if (status == TACIT_OK)
        status = tacit_file_join(pictures, sizeof pictures, dir, "img", err);
    return status != TACIT_OK ? status : tacit_file_make_dir(pictures, 0755, err);
}

/* Sizes go through the range in a fixed order that mixes large and small between the kinds. */
size_t scene_fleet_records(const scene_fleet_spec *spec, size_t index)
{
    if (spec->devices < 2)
        return spec->max_records;
    size_t place = index * 5 % spec->devices;
    return spec->min_records +
           (spec->max_records - spec->min_records) * place / (spec->devices - 1);
}

static tacit_status write_member(const scene_fleet_spec *spec, size_t index, const char *dir,
                                 tacit_buffer *heldout, tacit_error *err)
{
    char folder[PATH_MAX_BYTES];
    fleet_member m = make_member(spec, index);
    set_writer data = {.dir = folder, .pictures = "img/"}, kept = data;
    tacit_status status;
    TACIT_TRY(make_folders(folder, dir, m.name, err), out);
    TACIT_TRY(write_records(&data, &m, "train", scene_fleet_records(spec, index),
                            spec->shuffle_pictures, NULL, NULL, err),
              out);
    TACIT_TRY(write_records(&kept, &m, "heldout", spec->heldout, false, m.name, heldout, err), out);
    TACIT_TRY(publish(folder, "data.jsonl", &data.lines, err), out);
    TACIT_TRY(publish(folder, "heldout.jsonl", &kept.lines, err), out);
out:
    tacit_buffer_free(&data.lines);
    tacit_buffer_free(&kept.lines);
    return status;
}

/* The server's own pictures: styles of the split, but of no device; all states. */
static tacit_status write_gate(const scene_fleet_spec *spec, const char *dir, tacit_error *err)
{
    enum { GATE_MEMBERS = 8 };
    char folder[PATH_MAX_BYTES];
    tacit_buffer all = {0};
    set_writer w = {.dir = folder, .pictures = "img/"};
    tacit_status status;
    TACIT_TRY(make_folders(folder, dir, "gate", err), out);
    for (size_t i = 0; i < GATE_MEMBERS; i++) {
        scene_fleet_spec own = *spec;
        char purpose[32];
        own.devices = GATE_MEMBERS;
        fleet_member m = make_member(&own, i + 1000);
        m.kind = i % 2 ? SCENE_MONITOR : SCENE_CLUSTER;
        m.states = SCENE_STATES;
        snprintf(m.name, sizeof m.name, "gate-%zu", i + 1);
        snprintf(purpose, sizeof purpose, "gate%zu", i + 1);
        size_t n = spec->gate * (i + 1) / GATE_MEMBERS - spec->gate * i / GATE_MEMBERS;
        TACIT_TRY(write_records(&w, &m, purpose, n, false, "gate", &all, err), out);
    }
    TACIT_TRY(publish(dir, "gate.jsonl", &all, err), out);
out:
    tacit_buffer_free(&all);
    tacit_buffer_free(&w.lines);
    return status;
}

/* Share of records right when every question gets its most frequent training answer. */
typedef struct constant_row {
    const char *question;
    char answer[SCENE_TEXT_MAX];
    size_t seen;
} constant_row;

typedef struct constant_table {
    constant_row *row;
    size_t count;
} constant_table;

static void constant_add(constant_table *t, const scene_record *r)
{
    for (size_t i = 0; i < t->count; i++) {
        constant_row *row = &t->row[i];
        if (row->question == r->question && strcmp(row->answer, r->answer) == 0) {
            row->seen++;
            return;
        }
    }
    constant_row *row = &t->row[t->count++];
    *row = (constant_row){.question = r->question, .seen = 1};
    memcpy(row->answer, r->answer, sizeof row->answer);
}

static bool constant_is_right(const constant_table *t, const scene_record *r)
{
    const constant_row *best = NULL;
    for (size_t i = 0; i < t->count; i++)
        if (t->row[i].question == r->question && (!best || t->row[i].seen > best->seen))
            best = &t->row[i];
    return best && strcmp(best->answer, r->answer) == 0;
}

static tacit_status constant_accuracy(const scene_fleet_spec *spec, double *accuracy,
                                      tacit_error *err)
{
    size_t total = 0, right = 0;
    for (size_t d = 0; d < spec->devices; d++)
        total += scene_fleet_records(spec, d);
    constant_table table = {calloc(total + 1, sizeof *table.row), 0};
    if (!table.row)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu records", total);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t d = 0; d < spec->devices; d++) {
            fleet_member m = make_member(spec, d);
            size_t n = pass ? spec->heldout : scene_fleet_records(spec, d);
            for (size_t i = 0; i < n; i++) {
                scene_record r;
                make_record(&m, pass ? "heldout" : "train", i, &r);
                if (pass)
                    right += constant_is_right(&table, &r);
                else
                    constant_add(&table, &r);
            }
        }
    }
    free(table.row);
    size_t asked = spec->devices * spec->heldout;
    *accuracy = asked ? (double)right / (double)asked : 0;
    return TACIT_OK;
}

static json_t *describe_member(const scene_fleet_spec *spec, size_t index)
{
    fleet_member m = make_member(spec, index);
    scene_field field = m.kind == SCENE_CLUSTER ? SCENE_LAMP : SCENE_TRACE;
    json_t *labels = json_array();
    for (int i = 0; i < m.states; i++)
        json_array_append_new(labels, json_string(scene_new_label(field, m.state[i])));
    return json_pack("{s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:o}", "name", m.name, "kind",
                     m.kind == SCENE_CLUSTER ? "vehicle" : "cart", "records",
                     (json_int_t)scene_fleet_records(spec, index), "heldout",
                     (json_int_t)spec->heldout, "face", m.style.face, "palette", m.style.palette,
                     "layout", m.style.layout, "labels", labels);
}

static tacit_status write_description(const scene_fleet_spec *spec, const char *dir,
                                      tacit_error *err)
{
    double constant = 0;
    tacit_status status = constant_accuracy(spec, &constant, err);
    if (status != TACIT_OK)
        return status;
    json_t *devices = json_array();
    for (size_t i = 0; i < spec->devices; i++)
        json_array_append_new(devices, describe_member(spec, i));
    json_t *all = json_pack("{s:I, s:s, s:b, s:f, s:I, s:o}", "seed", (json_int_t)spec->seed,
                            "split", spec->split == SCENE_FLEET ? "F" : "H", "shuffled_pictures",
                            spec->shuffle_pictures, "constant_answer_accuracy", constant, "gate",
                            (json_int_t)spec->gate, "devices", devices);
    char *text = all ? json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(4)) : NULL;
    json_decref(all);
    if (!text)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to describe the fleet", dir);
    status = publish(dir, "fleet.json",
                     &(tacit_buffer){.data = (uint8_t *)text, .size = strlen(text)}, err);
    free(text);
    return status;
}

tacit_status scene_fleet_write(const scene_fleet_spec *spec, const char *dir, tacit_error *err)
{
    tacit_buffer heldout = {0};
    tacit_status status;
    TACIT_TRY(tacit_file_make_dir(dir, 0755, err), out);
    for (size_t i = 0; i < spec->devices; i++)
        TACIT_TRY(write_member(spec, i, dir, &heldout, err), out);
    TACIT_TRY(publish(dir, "heldout.jsonl", &heldout, err), out);
    TACIT_TRY(write_gate(spec, dir, err), out);
    TACIT_TRY(write_description(spec, dir, err), out);
out:
    tacit_buffer_free(&heldout);
    return status;
}

/* Scene `index` of a set in any split, with one question of the base vocabulary. */
static void make_base_record(scene_split split, const char *purpose, uint64_t seed, size_t index,
                             scene_record *r)
{
    scene_prng prng = scene_prng_make(seed, purpose, index);
    scene_kind kind = index % 2 ? SCENE_MONITOR : SCENE_CLUSTER;
    scene_draw_values(&r->picture, kind, &prng);
    scene_draw_style(&r->picture.style, split, &prng);
    scene_field field =
        scene_first_field(kind) + (scene_field)scene_prng_range(&prng, 0, SCENE_FIELDS - 1);
    size_t n = scene_question_count(field);
    r->kind = scene_field_name(field);
    r->question = scene_question(field, (size_t)scene_prng_range(&prng, 0, (int)n - 1));
    scene_answer(&r->picture, field, r->answer);
}

tacit_status scene_set_write(scene_split split, const char *purpose, uint64_t seed, size_t count,
                             const char *dir, tacit_error *err)
{
    char pictures[PATH_MAX_BYTES];
    tacit_buffer lines = {0};
    tacit_status status;
    TACIT_TRY(tacit_file_join(pictures, sizeof pictures, dir, "img", err), out);
    TACIT_TRY(tacit_file_make_dir(pictures, 0755, err), out);
    for (size_t i = 0; i < count; i++) {
        scene_record r;
        char id[96], picture[64];
        make_base_record(split, purpose, seed, i, &r);
        snprintf(id, sizeof id, "%s:%s-%06zu", r.kind, purpose, i);
        snprintf(picture, sizeof picture, "img/%06zu.jpg", i);
        TACIT_TRY(write_picture(dir, picture, &r.picture, err), out);
        TACIT_TRY(append_line(&lines, id, id, picture, r.question, r.answer, err), out);
    }
    TACIT_TRY(publish(dir, "data.jsonl", &lines, err), out);
out:
    tacit_buffer_free(&lines);
    return status;
}
