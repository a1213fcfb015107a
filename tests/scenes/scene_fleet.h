/* Datasets of scenes on disk, in the chat form of engine/dataset.h. Record ids begin with
 * "number:" (a reading in a new style) or "label:" (a state in words that nano never emitted);
 * pretraining sets also have "state:" (a state in words of the base vocabulary). */
#ifndef TACIT_SCENES_FLEET_H
#define TACIT_SCENES_FLEET_H

#include "scenes/scene.h"

typedef struct scene_fleet_spec {
    scene_split split; /* SCENE_REHEARSAL or SCENE_FLEET */
    uint64_t seed;
    size_t devices;                  /* the first half are vehicles, the others carts */
    size_t min_records, max_records; /* training records of a device: sizes spread between */
    size_t heldout;                  /* held-out records of each device */
    size_t gate;                     /* records of the server's own set */
    bool shuffle_pictures; /* control: training pictures permuted among the records of a device */
} scene_fleet_spec;

scene_fleet_spec scene_fleet_defaults(void);

/* Writes DIR/device-K/{data.jsonl,heldout.jsonl,img/}, DIR/gate/gate.jsonl with its pictures,
 * DIR/gate.jsonl, DIR/heldout.jsonl (all devices together) and DIR/fleet.json: sizes, labels and
 * the accuracy of the best constant answer per question. */
tacit_status scene_fleet_write(const scene_fleet_spec *spec, const char *dir,
                               tacit_error *err) TACIT_MUST_CHECK;

/* One record as it is before it becomes a line: for tests and controls. */
typedef struct scene_record {
    scene picture;
    const char *kind; /* "number", "label", or a field's name in base sets */
    const char *question;
    char answer[SCENE_TEXT_MAX];
} scene_record;

/* Record `index` of device `device` in its set "train" or "heldout". */
void scene_fleet_record(const scene_fleet_spec *spec, size_t device, const char *set, size_t index,
                        scene_record *out);
/* Training records of a device. */
size_t scene_fleet_records(const scene_fleet_spec *spec, size_t device);

/* DIR/data.jsonl and DIR/img/: one question of the base vocabulary on each of `count` scenes of a
 * split. Seeds of held-out sets and pretraining never meet: `purpose` separates them. */
tacit_status scene_set_write(scene_split split, const char *purpose, uint64_t seed, size_t count,
                             const char *dir, tacit_error *err) TACIT_MUST_CHECK;

#endif
