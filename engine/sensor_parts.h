/* What a sensor encoder consists of: for the units that load, prepare and compute. */
#ifndef TACIT_ENGINE_SENSOR_PARTS_H
#define TACIT_ENGINE_SENSOR_PARTS_H

#include "engine/linear.h"
#include "engine/sensor.h"

/* In layout order; a bias follows its weight. */
typedef enum sensor_part {
    SENSOR_PATCH,
    SENSOR_PATCH_BIAS,
    SENSOR_POSITION,
    SENSOR_FC,
    SENSOR_FC_BIAS,
    SENSOR_PARTS
} sensor_part;

struct tacit_sensor {
    sensor_shape shape;
    sensor_channel channel[SENSOR_MAX_CHANNELS];
    encoder_tensor tensor[SENSOR_PARTS];
    tacit_linear linear[SENSOR_PARTS]; /* over SENSOR_PATCH and SENSOR_FC */
    float *plain[SENSOR_PARTS];        /* fp32 copies of the others */
};

#endif
