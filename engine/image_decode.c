#include "engine/image.h"

#include "common/bytes.h"
#include "common/memory_limit.h"
#include "common/secret.h"

#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#define JPEG_MEMORY ((long)512 << 20) /* of libjpeg's own arrays */
#define JPEG_SCANS 100                /* a progressive file may hold many, each over all pixels */
#define PNG_CHUNK_MEMORY ((png_alloc_size_t)8 << 20)
#define PNG_CHUNKS 256

void tacit_image_free(tacit_image *image)
{
    tacit_wipe_free(image->rgb);
    *image = (tacit_image){0};
}

tacit_status image_blank(tacit_image *out, uint32_t width, uint32_t height, const char *name,
                         tacit_error *err)
{
    char what[320];
    void *rgb;
    snprintf(what, sizeof what, "%.256s: a picture of %u x %u pixels", name, width, height);
    *out = (tacit_image){0};
    tacit_status status =
        tacit_memory_alloc(&rgb, height, (size_t)width * 3, what, "give a smaller one", err);
    if (status == TACIT_OK)
        *out = (tacit_image){width, height, rgb};
    return status;
}

static tacit_status check_sides(uint32_t width, uint32_t height, const char *name, tacit_error *err)
{
    if (width == 0 || height == 0 || width > TACIT_IMAGE_MAX_SIDE || height > TACIT_IMAGE_MAX_SIDE)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: picture of %u x %u pixels: each side must be 1 to %u; give a "
                          "smaller one",
                          name, width, height, TACIT_IMAGE_MAX_SIDE);
    return TACIT_OK;
}

/* Judges the size, then allocates. */
static tacit_status allocate(tacit_image *out, uint32_t width, uint32_t height, const char *name,
                             tacit_error *err)
{
    tacit_status status = check_sides(width, height, name, err);
    if (status != TACIT_OK)
        return status;
    if ((size_t)width * height > TACIT_IMAGE_MAX_PIXELS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: picture of %u x %u pixels: at most %zu", name,
                          width, height, TACIT_IMAGE_MAX_PIXELS);
    return image_blank(out, width, height, name, err);
}

/* What both decoders keep across their longjmp. */
typedef struct decoding {
    jmp_buf escape;
    tacit_status status; /* what an escape means; set together with err */
    const char *name;
    tacit_error *err;
    tacit_image image;
    tacit_cursor in;
    uint8_t *line; /* one row of CMYK */
} decoding;

typedef struct jpeg_decoding {
    struct jpeg_error_mgr manager; /* first: libjpeg hands this address back */
    struct jpeg_progress_mgr progress;
    decoding *d;
} jpeg_decoding;

static void jpeg_escape(j_common_ptr info)
{
    char text[JMSG_LENGTH_MAX];
    decoding *d = ((jpeg_decoding *)(void *)info->err)->d;
    info->err->format_message(info, text);
    d->status = tacit_fail(d->err, TACIT_BAD_INPUT, "%s: damaged JPEG: %s", d->name, text);
    longjmp(d->escape, 1);
}

/* libjpeg makes up grey pixels for what is missing or damaged and only warns: that is an error
 * here. Bytes between markers and odd header versions harm nothing. */
static void jpeg_message(j_common_ptr info, int level)
{
    int code = info->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR &&
        code != JWRN_ADOBE_XFORM)
        jpeg_escape(info);
}

static void jpeg_silence(j_common_ptr info)
{
    (void)info;
}

static void jpeg_count_scans(j_common_ptr info)
{
    jpeg_decoding *j = (jpeg_decoding *)(void *)info->err;
    if (((j_decompress_ptr)info)->input_scan_number <= JPEG_SCANS)
        return;
    j->d->status = tacit_fail(j->d->err, TACIT_BAD_INPUT,
                              "%s: JPEG with more than %d scans: save it again as baseline",
                              j->d->name, JPEG_SCANS);
    longjmp(j->d->escape, 1);
}

/* Inverted CMYK, as every JPEG writer stores it, to RGB: c k / 255 rounded as Pillow does. */
static void cmyk_to_rgb(uint8_t *rgb, const uint8_t *cmyk, uint32_t width)
{
    for (uint32_t x = 0; x < width; x++, rgb += 3, cmyk += 4)
        for (int c = 0; c < 3; c++) {
            unsigned product = (255u - cmyk[c]) * cmyk[3] + 128u;
            unsigned ink = ((product >> 8) + product) >> 8;
            rgb[c] = (uint8_t)(cmyk[3] > ink ? cmyk[3] - ink : 0);
        }
}

static void jpeg_read_rows(struct jpeg_decompress_struct *info, decoding *d)
{
    bool cmyk = info->out_color_space == JCS_CMYK;
    while (info->output_scanline < info->output_height) {
        uint8_t *row = d->image.rgb + (size_t)info->output_scanline * d->image.width * 3;
        JSAMPROW to = cmyk ? d->line : row;
        jpeg_read_scanlines(info, &to, 1);
        if (cmyk)
            cmyk_to_rgb(row, d->line, d->image.width);
    }
}

/* Where the scans are several, libjpeg holds the coefficients of all pixels too, 2 bytes each. */
static tacit_status jpeg_judge(struct jpeg_decompress_struct *info, const decoding *d)
{
    char what[320];
    uint64_t values = (uint64_t)info->image_width * info->image_height;
    if (!jpeg_has_multiple_scans(info))
        return TACIT_OK;
    snprintf(what, sizeof what, "%.256s: a JPEG of several scans, %u x %u pixels,", d->name,
             info->image_width, info->image_height);
    uint64_t each = 3 + (uint64_t)info->num_components * sizeof(JCOEF);
    return tacit_memory_judge(values * each, what, "save it again as baseline, or smaller", d->err);
}

static tacit_status jpeg_run(struct jpeg_decompress_struct *info, decoding *d)
{
    jpeg_mem_src(info, d->in.data, (unsigned long)d->in.size);
    jpeg_read_header(info, TRUE);
    tacit_status status =
        allocate(&d->image, info->image_width, info->image_height, d->name, d->err);
    if (status == TACIT_OK)
        status = jpeg_judge(info, d);
    if (status != TACIT_OK)
        return status;
    if (info->num_components == 4) {
        info->out_color_space = JCS_CMYK;
        d->line = malloc((size_t)info->image_width * 4);
        if (!d->line)
            return tacit_fail(d->err, TACIT_NO_MEMORY, "%s: out of memory", d->name);
    } else {
        info->out_color_space = JCS_RGB;
    }
    info->mem->max_memory_to_use = JPEG_MEMORY;
    jpeg_start_decompress(info);
    jpeg_read_rows(info, d);
    jpeg_finish_decompress(info);
    return TACIT_OK;
}

static tacit_status decode_jpeg(decoding *d)
{
    struct jpeg_decompress_struct info = {0};
    jpeg_decoding j = {.d = d};
    info.err = jpeg_std_error(&j.manager);
    j.manager.error_exit = jpeg_escape;
    j.manager.emit_message = jpeg_message;
    j.manager.output_message = jpeg_silence;
    j.progress.progress_monitor = jpeg_count_scans;
    if (setjmp(d->escape) == 0) {
        jpeg_create_decompress(&info);
        info.progress = &j.progress;
        d->status = jpeg_run(&info, d);
    }
    jpeg_destroy_decompress(&info);
    return d->status;
}

static void png_escape(png_structp png, png_const_charp text)
{
    decoding *d = png_get_error_ptr(png);
    d->status = tacit_fail(d->err, TACIT_BAD_INPUT, "%s: damaged PNG: %s", d->name, text);
    longjmp(d->escape, 1);
}

static void png_silence(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void png_feed(png_structp png, png_bytep to, size_t size)
{
    decoding *d = png_get_io_ptr(png);
    tacit_span span = tacit_cursor_take(&d->in, size);
    if (!span.data)
        png_error(png, "file ends early");
    memcpy(to, span.data, size);
}

/* Everything becomes 8-bit RGB: palettes and small depths are expanded, alpha is dropped, of 16
 * bits the high byte stays. */
static void png_ask_for_rgb(png_structp png)
{
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
}

static tacit_status png_run(png_structp png, png_infop info, decoding *d)
{
    png_set_read_fn(png, d, png_feed);
    png_set_user_limits(png, TACIT_IMAGE_MAX_SIDE, TACIT_IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(png, PNG_CHUNK_MEMORY);
    png_set_chunk_cache_max(png, PNG_CHUNKS);
    /* Texts, profiles and the like are passed over unread, but for transparency: 250 texts of 8 KB
     * unpack to 2 GB, which libpng keeps. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, info);
    tacit_status status = allocate(&d->image, png_get_image_width(png, info),
                                   png_get_image_height(png, info), d->name, d->err);
    if (status != TACIT_OK)
        return status;
    png_ask_for_rgb(png);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)d->image.width * 3)
        return tacit_fail(d->err, TACIT_BAD_INPUT, "%s: PNG of an unknown pixel form", d->name);
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < d->image.height; y++)
            png_read_row(png, d->image.rgb + (size_t)y * d->image.width * 3, NULL);
    png_read_end(png, NULL);
    return TACIT_OK;
}

/* Before libpng does, which calls a picture beyond its limits damaged. */
static tacit_status png_check_sides(const decoding *d)
{
    tacit_cursor head = d->in;
    (void)tacit_cursor_take(&head, 12); /* the signature, and the length of the first chunk */
    tacit_span name = tacit_cursor_take(&head, 4), side[2];
    for (size_t i = 0; i < 2; i++)
        side[i] = tacit_cursor_take(&head, 4);
    if (head.failed || memcmp(name.data, "IHDR", 4) != 0)
        return TACIT_OK; /* libpng says what is wrong */
    return check_sides(png_get_uint_32(side[0].data), png_get_uint_32(side[1].data), d->name,
                       d->err);
}

static tacit_status decode_png(decoding *d)
{
    tacit_status status = png_check_sides(d);
    if (status != TACIT_OK)
        return status;
    png_infop info = NULL;
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_escape, png_silence);
    if (png)
        info = png_create_info_struct(png);
    if (!info) {
        png_destroy_read_struct(&png, NULL, NULL);
        return tacit_fail(d->err, TACIT_NO_MEMORY, "%s: out of memory", d->name);
    }
    if (setjmp(d->escape) == 0)
        d->status = png_run(png, info, d);
    png_destroy_read_struct(&png, &info, NULL);
    return d->status;
}

static const struct {
    const char *magic;
    size_t size;
    tacit_status (*decode)(decoding *d);
} decoders[] = {
    {"\xff\xd8\xff", 3, decode_jpeg},
    {"\x89PNG\r\n\x1a\n", 8, decode_png},
};

tacit_status tacit_image_decode(tacit_image *out, const void *data, size_t size, const char *name,
                                tacit_error *err)
{
    decoding d = {.name = name, .err = err, .in = tacit_cursor_over(data, size)};
    *out = (tacit_image){0};
    if (size > TACIT_IMAGE_MAX_FILE)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: picture file of %zu bytes: at most %zu", name,
                          size, TACIT_IMAGE_MAX_FILE);
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++) {
        if (size < decoders[i].size || memcmp(data, decoders[i].magic, decoders[i].size) != 0)
            continue;
        tacit_status status = decoders[i].decode(&d);
        tacit_wipe_free(d.line);
        if (status == TACIT_OK)
            *out = d.image;
        else
            tacit_image_free(&d.image);
        return status;
    }
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: expected a JPEG or PNG picture, found bytes of neither", name);
}
