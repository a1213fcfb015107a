#include "scenes/scene.h"

/* jpeglib.h wants size_t and FILE declared before it. */
#include <stdio.h>

#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>

typedef struct jpeg_trap {
    struct jpeg_error_mgr manager;
    jmp_buf back;
    char message[JMSG_LENGTH_MAX];
} jpeg_trap;

static void jpeg_trap_exit(j_common_ptr info)
{
    jpeg_trap *trap = (jpeg_trap *)info->err;
    trap->manager.format_message(info, trap->message);
    longjmp(trap->back, 1);
}

static void encode_rows(struct jpeg_compress_struct *jpeg, const uint8_t *rgb, int quality)
{
    jpeg->image_width = jpeg->image_height = SCENE_SIZE;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
        uint8_t line[SCENE_SIZE * 3];
        for (size_t i = 0; i < sizeof line; i++)
            line[i] = rgb[jpeg->next_scanline * sizeof line + i];
        JSAMPROW row = line;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
}

tacit_status scene_jpeg(const scene *s, tacit_buffer *out, tacit_error *err)
{
    uint8_t rgb[SCENE_RGB_BYTES];
    struct jpeg_compress_struct jpeg;
    jpeg_trap trap;
    unsigned char *data = NULL;
    unsigned long size = 0;
    tacit_status status = scene_draw(s, rgb, err);
    if (status != TACIT_OK)
        return status;
    jpeg.err = jpeg_std_error(&trap.manager);
    trap.manager.error_exit = jpeg_trap_exit;
    if (setjmp(trap.back) == 0) {
        jpeg_create_compress(&jpeg);
        jpeg_mem_dest(&jpeg, &data, &size);
        encode_rows(&jpeg, rgb, s->style.jpeg_quality);
        status = tacit_buffer_append(out, data, size);
        if (status != TACIT_OK)
            tacit_fail(err, status, "a scene's JPEG of %lu bytes does not fit into memory", size);
    } else {
        status = tacit_fail(err, TACIT_FAILED, "encoding a scene: libjpeg says: %s", trap.message);
    }
    jpeg_destroy_compress(&jpeg);
    free(data);
    return status;
}
