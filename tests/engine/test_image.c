#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/image.h"

#include <math.h>
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

#include <jpeglib.h>

#include "../golden/pictures_pillow.h"
#include "../golden/resized_pillow.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void test_decoding_agrees_with_pillow(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(pictures); i++) {
        tacit_image image;
        tacit_error err = {0};
        if (tacit_image_decode(&image, pictures[i].data, pictures[i].size, "x.bin", &err) !=
            TACIT_OK)
            fail_msg("%s: %s", pictures[i].name, err.message);
        assert_int_equal(image.width, pictures[i].width);
        assert_int_equal(image.height, pictures[i].height);
        for (size_t p = 0; p < (size_t)image.width * image.height * 3; p++)
            if (image.rgb[p] != pictures[i].rgb[p])
                fail_msg("%s: value %zu is %d, Pillow has %d", pictures[i].name, p, image.rgb[p],
                         pictures[i].rgb[p]);
        tacit_image_free(&image);
    }
}

/* The pattern of make_pictures.py. */
static tacit_image pattern(uint32_t width, uint32_t height)
{
    tacit_image image = {width, height, malloc((size_t)width * height * 3)};
    assert_non_null(image.rgb);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++)
                image.rgb[((size_t)y * width + x) * 3 + c] =
                    (uint8_t)(x * 37 + y * 101 + c * 59 + x * y * 7);
    return image;
}

static void test_resizing_agrees_with_pillow(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(resized); i++) {
        tacit_image in = pattern(resized[i].width, resized[i].height), out;
        assert_int_equal(tacit_image_resize(&out, &in, resized[i].to_width, resized[i].to_height,
                                            resized[i].filter, NULL),
                         TACIT_OK);
        for (size_t p = 0; p < (size_t)out.width * out.height * 3; p++)
            if (out.rgb[p] != resized[i].rgb[p])
                fail_msg("case %zu: value %zu is %d, Pillow has %d", i, p, out.rgb[p],
                         resized[i].rgb[p]);
        tacit_image_free(&in);
        tacit_image_free(&out);
    }
}

static unsigned long long fnv(const uint8_t *data, size_t size)
{
    unsigned long long h = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++)
        h = (h ^ data[i]) * 0x100000001b3;
    return h;
}

/* Larger ones to the last bit. */
static void test_resizing_equals_pillow(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(digested); i++) {
        tacit_image in = pattern(digested[i].width, digested[i].height), out;
        assert_int_equal(tacit_image_resize(&out, &in, digested[i].to_width, digested[i].to_height,
                                            digested[i].filter, NULL),
                         TACIT_OK);
        if (fnv(out.rgb, (size_t)out.width * out.height * 3) != digested[i].digest)
            fail_msg("filter %d, %u x %u to %u x %u: other pixels than Pillow's",
                     (int)digested[i].filter, in.width, in.height, out.width, out.height);
        tacit_image_free(&in);
        tacit_image_free(&out);
    }
}

static void test_resizing_refuses_sizes(void **state)
{
    (void)state;
    tacit_image in = pattern(3, 3), out;
    const uint32_t bad[][2] = {
        {0, 3}, {3, 0}, {16385, 1}, {16384, 16384}, {UINT32_MAX, UINT32_MAX}};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(
            tacit_image_resize(&out, &in, bad[i][0], bad[i][1], TACIT_IMAGE_BICUBIC, NULL),
            TACIT_BAD_INPUT);
    assert_int_equal(tacit_image_crop(&out, &in, 2, 0, 2, 1, NULL), TACIT_USAGE);
    assert_int_equal(tacit_image_crop(&out, &in, UINT32_MAX, 0, 2, 1, NULL), TACIT_USAGE);
    assert_int_equal(tacit_image_crop(&out, &in, 1, 1, 2, 2, NULL), TACIT_OK);
    assert_memory_equal(out.rgb, in.rgb + 12, 6);
    assert_memory_equal(out.rgb + 6, in.rgb + 21, 6);
    tacit_image_free(&out);
    tacit_image_free(&in);
}

static void test_planes(void **state)
{
    (void)state;
    tacit_image in = pattern(4, 2);
    const float mean[3] = {0.5f, 0.4f, 0.3f}, std[3] = {0.5f, 0.25f, 2.0f};
    float planes[3 * 8];
    tacit_image_planes(planes, &in, mean, std);
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < 8; i++)
            assert_true(fabs(planes[c * 8 + i] - (in.rgb[i * 3 + c] / 255.0 - mean[c]) / std[c]) <
                        1e-6);
    tacit_image_free(&in);
}

static tacit_status decode(const void *data, size_t size, tacit_error *err)
{
    tacit_image image;
    tacit_status status = tacit_image_decode(&image, data, size, "x", err);
    if (status == TACIT_OK)
        tacit_image_free(&image);
    else
        assert_null(image.rgb);
    return status;
}

static void test_truncated_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(pictures); i++)
        for (size_t n = 0; n < pictures[i].size; n++) {
            uint8_t *part = malloc(n ? n : 1); /* of its own, so that ASan sees every overrun */
            memcpy(part, pictures[i].data, n);
            if (decode(part, n, NULL) != TACIT_BAD_INPUT)
                fail_msg("%s cut to %zu of %zu bytes was taken", pictures[i].name, n,
                         pictures[i].size);
            free(part);
        }
}

static void test_damage_never_crashes(void **state)
{
    (void)state;
    size_t refused = 0;
    for (size_t i = 0; i < COUNT(pictures); i++) {
        uint8_t *copy = malloc(pictures[i].size);
        for (size_t at = 0; at < pictures[i].size; at++) {
            memcpy(copy, pictures[i].data, pictures[i].size);
            copy[at] ^= (uint8_t)(1 + at * 7 % 255);
            refused += decode(copy, pictures[i].size, NULL) != TACIT_OK;
        }
        free(copy);
    }
    assert_true(refused > 500);
}

static void test_neither_jpeg_nor_png(void **state)
{
    (void)state;
    tacit_error err = {0};
    assert_int_equal(decode("", 0, &err), TACIT_BAD_INPUT);
    assert_int_equal(decode("GIF89a........", 14, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "expected a JPEG or PNG"));
}

static uint32_t crc32_of(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static void store_big(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* A PNG whose header claims a size, with a right checksum. */
static void test_png_sizes(void **state)
{
    (void)state;
    const struct {
        uint32_t width, height;
    } sizes[] = {{20000, 1}, {1, 20000}, {0, 1}, {1, 0}, {16384, 16384}, {UINT32_MAX, 1}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        uint8_t *copy = malloc(sizeof png_grey);
        memcpy(copy, png_grey, sizeof png_grey);
        store_big(copy + 16, sizes[i].width);
        store_big(copy + 20, sizes[i].height);
        store_big(copy + 29, crc32_of(copy + 12, 17));
        assert_int_equal(decode(copy, sizeof png_grey, NULL), TACIT_BAD_INPUT);
        free(copy);
    }
}

static void test_true_wide_png_is_refused(void **state)
{
    (void)state;
    uint8_t *pixels = calloc(20000, 3);
    png_image image = {.version = PNG_IMAGE_VERSION, .width = 20000, .height = 1};
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t size = 0;
    assert_true(png_image_write_get_memory_size(image, size, 0, pixels, 0, NULL));
    uint8_t *file = malloc(size);
    assert_true(png_image_write_to_memory(&image, file, &size, 0, pixels, 0, NULL));
    tacit_image none;
    tacit_error err = {0};
    assert_int_equal(tacit_image_decode(&none, file, size, "wide.png", &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "20000 x 1 pixels: each side must be 1 to 16384"));
    free(file);
    free(pixels);
}

static uint8_t *put_chunk(uint8_t *to, const char *type, const uint8_t *data, size_t size)
{
    store_big(to, (uint32_t)size);
    memcpy(to + 4, type, 4);
    memcpy(to + 8, data, size);
    store_big(to + 8 + size, crc32_of(to + 4, size + 4));
    return to + 12 + size;
}

/* 1 MiB of zeros as the text of a zTXt chunk: its name, a method, what deflate makes of them. */
static size_t packed_text(uint8_t *to, size_t room)
{
    const size_t zeros = (size_t)1 << 20;
    static const uint8_t name[] = {'k', 0, 0};
    uint8_t *plain = calloc(zeros, 1);
    uLongf packed = room - sizeof name;
    memcpy(to, name, sizeof name);
    assert_int_equal(compress2(to + sizeof name, &packed, plain, zeros, 9), Z_OK);
    free(plain);
    return sizeof name + packed;
}

/* 100 kB that would be 100 MiB of text. The picture is there, and nothing of the texts is held. */
static void test_texts_of_a_png_are_passed_over(void **state)
{
    (void)state;
    enum { TEXTS = 100, ROOM = 2048, HEAD = 33 }; /* the signature and IHDR */
    uint8_t text[ROOM], *file = malloc(sizeof png_grey + TEXTS * (ROOM + 12)), *to = file + HEAD;
    size_t size = packed_text(text, sizeof text);
    memcpy(file, png_grey, HEAD);
    for (int i = 0; i < TEXTS; i++)
        to = put_chunk(to, "zTXt", text, size);
    memcpy(to, png_grey + HEAD, sizeof png_grey - HEAD);
    struct rusage before, after;
    tacit_image image, plain;
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_int_equal(
        tacit_image_decode(&image, file, (size_t)(to - file) + sizeof png_grey - HEAD, "x", NULL),
        TACIT_OK);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 20 * 1024); /* KiB */
    assert_int_equal(tacit_image_decode(&plain, png_grey, sizeof png_grey, "x", NULL), TACIT_OK);
    assert_memory_equal(image.rgb, plain.rgb, (size_t)plain.width * plain.height * 3);
    tacit_image_free(&plain);
    tacit_image_free(&image);
    free(file);
}

static void test_jpeg_bomb_is_refused_by_its_header(void **state)
{
    (void)state;
    uint8_t copy[sizeof jpeg_plain];
    memcpy(copy, jpeg_plain, sizeof copy);
    size_t sof = 0;
    while (copy[sof] != 0xff || copy[sof + 1] != 0xc0)
        sof++;
    memset(copy + sof + 5, 0xf0, 4); /* height and width */
    assert_int_equal(decode(copy, sizeof copy, NULL), TACIT_BAD_INPUT);
    memset(copy + sof + 5, 0, 4);
    assert_int_equal(decode(copy, sizeof copy, NULL), TACIT_BAD_INPUT);
}

/* One DC scan and one scan for every AC coefficient of every component: 190 scans. */
static void test_jpeg_of_many_scans_is_refused(void **state)
{
    (void)state;
    static jpeg_scan_info scans[190];
    scans[0] = (jpeg_scan_info){.comps_in_scan = 3, .component_index = {0, 1, 2}};
    for (int i = 1; i < 190; i++) {
        int k = (i - 1) % 63 + 1;
        scans[i] = (jpeg_scan_info){
            .comps_in_scan = 1, .component_index = {(i - 1) / 63}, .Ss = k, .Se = k};
    }
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr manager;
    unsigned char *file = NULL;
    unsigned long size = 0;
    uint8_t line[16 * 3] = {0};
    info.err = jpeg_std_error(&manager);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &file, &size);
    info.image_width = info.image_height = 16;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    info.scan_info = scans;
    info.num_scans = 190;
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < 16; y++) {
        JSAMPROW row = line;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    tacit_error err = {0};
    assert_int_equal(decode(file, size, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "scans"));
    free(file);
}

/* Resizes the pattern as each line of standard input asks: filter, width, height, and the new ones;
 * writes the pixels. */
static int print_resized(void)
{
    unsigned filter, width, height, to_width, to_height;
    while (scanf("%u %u %u %u %u", &filter, &width, &height, &to_width, &to_height) == 5) {
        tacit_image in = pattern(width, height), out;
        tacit_error err = {0};
        if (filter > TACIT_IMAGE_LANCZOS ||
            tacit_image_resize(&out, &in, to_width, to_height, (tacit_image_filter)filter, &err) !=
                TACIT_OK) {
            fprintf(stderr, "test_image: %s\n", err.message);
            return 1;
        }
        fwrite(out.rgb, 3, (size_t)to_width * to_height, stdout);
        tacit_image_free(&in);
        tacit_image_free(&out);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_agrees_with_pillow),
        cmocka_unit_test(test_resizing_agrees_with_pillow),
        cmocka_unit_test(test_resizing_equals_pillow),
        cmocka_unit_test(test_resizing_refuses_sizes),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_truncated_anywhere_is_refused),
        cmocka_unit_test(test_damage_never_crashes),
        cmocka_unit_test(test_neither_jpeg_nor_png),
        cmocka_unit_test(test_png_sizes),
        cmocka_unit_test(test_true_wide_png_is_refused),
        cmocka_unit_test(test_texts_of_a_png_are_passed_over),
        cmocka_unit_test(test_jpeg_bomb_is_refused_by_its_header),
        cmocka_unit_test(test_jpeg_of_many_scans_is_refused),
    };
    if (argc > 1 && strcmp(argv[1], "resize") == 0)
        return print_resized();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
