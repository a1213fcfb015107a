/* reference_audio.h beside reference_vision.h: what both define gets a name of its own. */
#ifndef TACIT_TESTS_REFERENCE_AUDIO_APART_H
#define TACIT_TESTS_REFERENCE_AUDIO_APART_H

#define reference_uniform audio_uniform
#define reference_gelu audio_gelu
#define reference_linear audio_linear
#define reference_norm audio_norm
#define reference_block audio_block
#define reference_spec audio_spec
#define reference_keys audio_keys
#define reference_put audio_put
#define reference_tensors audio_tensors

#include "reference_audio.h"

#undef reference_uniform
#undef reference_gelu
#undef reference_linear
#undef reference_norm
#undef reference_block
#undef reference_spec
#undef reference_keys
#undef reference_put
#undef reference_tensors

#endif
