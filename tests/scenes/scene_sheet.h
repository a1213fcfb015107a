/* A contact sheet to look at: scenes of one split with what they show written below. */
#ifndef TACIT_SCENES_SHEET_H
#define TACIT_SCENES_SHEET_H

#include "scenes/scene.h"

/* Writes a PNG of `columns` by `rows` scenes, each magnified `zoom` times, even ones clusters. */
tacit_status scene_sheet_write(scene_split split, uint64_t seed, int columns, int rows, int zoom,
                               const char *path, tacit_error *err) TACIT_MUST_CHECK;

/* What there is to hear and to measure: one row a scene, even ones vehicles, with the spectrogram
 * of the sound (0 to 2,750 Hz), the plots of the channels and every answer that applies. */
tacit_status scene_senses_sheet_write(scene_split split, uint64_t seed, int rows, const char *path,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
