/* Any bytes as a picture: decoded within the caps, the same twice, and resized; or refused. */
#include "fuzz_target.h"

#include "engine/image.h"

#include <string.h>

bool fuzz_accepted;

static void decode_again(const tacit_image *first, const uint8_t *data, size_t size)
{
    tacit_image second;
    tacit_error err;
    FUZZ_CHECK(tacit_image_decode(&second, data, size, "fuzz", &err) == TACIT_OK);
    FUZZ_CHECK(first->width == second.width && first->height == second.height);
    FUZZ_CHECK(memcmp(first->rgb, second.rgb, (size_t)first->width * first->height * 3) == 0);
    tacit_image_free(&second);
}

static void resize(const tacit_image *image, size_t size)
{
    tacit_image out;
    tacit_error err;
    FUZZ_CHECK(tacit_image_resize(&out, image, 1 + size % 40, 1 + size / 40 % 40,
                                  (tacit_image_filter)(size % 3), &err) == TACIT_OK);
    tacit_image_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_image image;
    tacit_error err;
    tacit_status status = tacit_image_decode(&image, data, size, "fuzz", &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (status != TACIT_OK)
        return 0;
    FUZZ_CHECK(image.width >= 1 && image.width <= TACIT_IMAGE_MAX_SIDE);
    FUZZ_CHECK(image.height >= 1 && image.height <= TACIT_IMAGE_MAX_SIDE);
    if ((size_t)image.width * image.height <= 1 << 16) {
        decode_again(&image, data, size);
        resize(&image, size);
    }
    tacit_image_free(&image);
    return 0;
}
