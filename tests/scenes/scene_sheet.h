/* A contact sheet to look at: scenes of one split with what they show written below. */
#ifndef TACIT_SCENES_SHEET_H
#define TACIT_SCENES_SHEET_H

#include "scenes/scene.h"

/* Writes a PNG of `columns` by `rows` scenes, each magnified `zoom` times, even ones clusters. */
tacit_status scene_sheet_write(scene_split split, uint64_t seed, int columns, int rows, int zoom,
                               const char *path, tacit_error *err) TACIT_MUST_CHECK;

#endif
