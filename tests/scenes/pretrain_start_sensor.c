/* nano's sensor encoder before training: patches of 0.8 s on a grid of 25 samples a second. */
#include "scenes/pretrain.h"

#include "engine/sensor_new.h"
#include "scenes/scene_signal.h"

#include <stdio.h>

enum { RATE = 25, PATCH = 20, SENSOR_WIDTH = 128 };
#define MAX_GAP 0.2 /* seconds: twice the slowest probe's step and more */

tacit_status pretrain_write_sensor(const char *path, uint32_t width, uint64_t seed,
                                   tacit_error *err)
{
    sensor_channel channel[SCENE_CHANNELS] = {0};
    for (int i = 0; i < SCENE_CHANNELS; i++) {
        const scene_channel *from = &scene_channels[i];
        snprintf(channel[i].name, sizeof channel[i].name, "%s", from->name);
        snprintf(channel[i].unit, sizeof channel[i].unit, "%s", from->unit);
        channel[i].mean = from->mean;
        channel[i].std = from->deviation;
        channel[i].max_gap = MAX_GAP;
    }
    const sensor_spec spec = {.channel = channel,
                              .channels = SCENE_CHANNELS,
                              .rate = RATE,
                              .patch_length = PATCH,
                              .max_patches = SCENE_SIGNAL_SECONDS * RATE / PATCH,
                              .width = SENSOR_WIDTH,
                              .out_width = width,
                              .begin = "<sensor>",
                              .end = "</sensor>",
                              .type = TACIT_TYPE_F32,
                              .seed = seed};
    return sensor_write_new(path, &spec, err);
}
