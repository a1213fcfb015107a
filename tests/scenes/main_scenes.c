/* tacit-scenes: datasets and contact sheets of synthetic scenes. */
#include "common/log.h"
#include "common/options.h"
#include "scenes/scene_fleet.h"
#include "scenes/scene_senses.h"
#include "scenes/scene_sheet.h"
#include "scenes/scene_vocabulary.h"

#include <stdio.h>
#include <string.h>

static tacit_status parse_split(const char *text, scene_split *out, tacit_error *err)
{
    static const char *const names[] = {"P", "H", "F"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (scene_split)i;
            return TACIT_OK;
        }
    }
    return tacit_fail(err, TACIT_USAGE, "--split: expected P, H or F, found '%s'", text);
}

static tacit_status run_fleet(int argc, char **argv, tacit_error *err)
{
    scene_fleet_spec spec = scene_fleet_defaults();
    const char *split = "F", *dir = NULL;
    uint64_t devices = spec.devices, low = spec.min_records, high = spec.max_records;
    uint64_t heldout = spec.heldout, gate = spec.gate;
    bool help = false;
    const tacit_option table[] = {
        {"split", 0, TACIT_OPTION_TEXT, &split, false, "H|F", "rehearsal or demo styles", 0, 0},
        {"seed", 0, TACIT_OPTION_U64, &spec.seed, false, "S", "of everything drawn", 0, 0},
        {"devices", 0, TACIT_OPTION_U64, &devices, false, "N", "half vehicles, half carts", 2, 64},
        {"min-records", 0, TACIT_OPTION_U64, &low, false, "N", "of the smallest device", 1, 100000},
        {"max-records", 0, TACIT_OPTION_U64, &high, false, "N", "of the largest device", 1, 100000},
        {"heldout", 0, TACIT_OPTION_U64, &heldout, false, "N", "held-out records a device", 1,
         10000},
        {"gate", 0, TACIT_OPTION_U64, &gate, false, "N", "records of the server's set", 1, 10000},
        {"shuffle-pictures", 0, TACIT_OPTION_FLAG, &spec.shuffle_pictures, false, NULL,
         "control: pictures permuted among a device's training records", 0, 0},
        {"out", 'o', TACIT_OPTION_TEXT, &dir, true, "DIR", "folder to write", 0, 0},
        {0},
    };
    const tacit_usage usage = {"tacit-scenes fleet", NULL, 0, 0, "writes the data of a fleet"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if ((status = parse_split(split, &spec.split, err)) != TACIT_OK)
        return status;
    if (low > high)
        return tacit_fail(err, TACIT_USAGE, "--min-records is larger than --max-records");
    spec.devices = devices;
    spec.min_records = low;
    spec.max_records = high;
    spec.heldout = heldout;
    spec.gate = gate;
    return scene_fleet_write(&spec, dir, err);
}

static tacit_status run_set(const char *program, const char *purpose, int argc, char **argv,
                            tacit_error *err)
{
    const char *split_name = "P", *dir = NULL;
    uint64_t seed = 1, count = 500;
    bool help = false;
    scene_split split = SCENE_PRETRAIN;
    const tacit_option table[] = {
        {"split", 0, TACIT_OPTION_TEXT, &split_name, false, "P|H|F", "styles", 0, 0},
        {"seed", 0, TACIT_OPTION_U64, &seed, false, "S", "of everything drawn", 0, 0},
        {"count", 'n', TACIT_OPTION_U64, &count, false, "N", "scenes", 1, 1000000},
        {"out", 'o', TACIT_OPTION_TEXT, &dir, true, "DIR", "folder to write", 0, 0},
        {0},
    };
    const tacit_usage usage = {program, NULL, 0, 0, "writes scenes with one base question each"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if ((status = parse_split(split_name, &split, err)) != TACIT_OK)
        return status;
    return scene_set_write(split, purpose, seed, count, dir, err);
}

static tacit_status run_pretrain_set(int argc, char **argv, tacit_error *err)
{
    return run_set("tacit-scenes pretrain-set", "pretrain", argc, argv, err);
}

static tacit_status run_heldout(int argc, char **argv, tacit_error *err)
{
    return run_set("tacit-scenes heldout", "base-heldout", argc, argv, err);
}

static tacit_status run_sheet(int argc, char **argv, tacit_error *err)
{
    const char *split_name = "P", *path = NULL;
    uint64_t seed = 1, columns = 6, rows = 4, zoom = 2;
    bool help = false;
    scene_split split = SCENE_PRETRAIN;
    const tacit_option table[] = {
        {"split", 0, TACIT_OPTION_TEXT, &split_name, false, "P|H|F", "styles", 0, 0},
        {"seed", 0, TACIT_OPTION_U64, &seed, false, "S", "of everything drawn", 0, 0},
        {"columns", 0, TACIT_OPTION_U64, &columns, false, "N", "scenes a row", 1, 40},
        {"rows", 0, TACIT_OPTION_U64, &rows, false, "N", "rows", 1, 40},
        {"zoom", 0, TACIT_OPTION_U64, &zoom, false, "N", "magnification", 1, 8},
        {"out", 'o', TACIT_OPTION_TEXT, &path, true, "FILE.png", "picture to write", 0, 0},
        {0},
    };
    const tacit_usage usage = {"tacit-scenes sheet", NULL, 0, 0, "draws a contact sheet"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if ((status = parse_split(split_name, &split, err)) != TACIT_OK)
        return status;
    return scene_sheet_write(split, seed, (int)columns, (int)rows, (int)zoom, path, err);
}

static tacit_status run_senses(int argc, char **argv, tacit_error *err)
{
    const char *split_name = "P", *dir = NULL;
    uint64_t seed = 1, count = 180;
    bool help = false;
    scene_split split = SCENE_PRETRAIN;
    const tacit_option table[] = {
        {"split", 0, TACIT_OPTION_TEXT, &split_name, false, "P|H|F", "styles", 0, 0},
        {"seed", 0, TACIT_OPTION_U64, &seed, false, "S", "of everything drawn", 0, 0},
        {"count", 'n', TACIT_OPTION_U64, &count, false, "N", "scenes", 1, 1000000},
        {"out", 'o', TACIT_OPTION_TEXT, &dir, true, "DIR", "folder to write", 0, 0},
        {0},
    };
    const tacit_usage usage = {"tacit-scenes senses", NULL, 0, 0,
                               "writes scenes with sounds and signals, one question each"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if ((status = parse_split(split_name, &split, err)) != TACIT_OK)
        return status;
    return scene_senses_write(split, seed, count, dir, err);
}

static tacit_status run_senses_sheet(int argc, char **argv, tacit_error *err)
{
    const char *split_name = "P", *path = NULL;
    uint64_t seed = 1, rows = 8;
    bool help = false;
    scene_split split = SCENE_PRETRAIN;
    const tacit_option table[] = {
        {"split", 0, TACIT_OPTION_TEXT, &split_name, false, "P|H|F", "styles", 0, 0},
        {"seed", 0, TACIT_OPTION_U64, &seed, false, "S", "of everything drawn", 0, 0},
        {"rows", 0, TACIT_OPTION_U64, &rows, false, "N", "scenes", 1, 100},
        {"out", 'o', TACIT_OPTION_TEXT, &path, true, "FILE.png", "picture to write", 0, 0},
        {0},
    };
    const tacit_usage usage = {"tacit-scenes senses-sheet", NULL, 0, 0,
                               "draws what scenes sound and measure like"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if ((status = parse_split(split_name, &split, err)) != TACIT_OK)
        return status;
    return scene_senses_sheet_write(split, seed, (int)rows, path, err);
}

static tacit_status run_vocabulary(int argc, char **argv, tacit_error *err)
{
    bool help = false;
    scene_vocabulary v = {0};
    const tacit_option table[] = {{0}};
    const tacit_usage usage = {"tacit-scenes vocabulary", NULL, 0, 0, "prints nano's tokens"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if ((status = scene_vocabulary_make(&v, err)) != TACIT_OK)
        return status;
    for (size_t i = 0; i < v.count; i++)
        printf("%zu\t%s\t%s\n", i, v.type[i] == 3 ? "control" : "normal", v.token[i]);
    for (size_t i = 0; i < v.n_merges; i++)
        printf("merge\t%s\n", v.merge[i]);
    scene_vocabulary_free(&v);
    return TACIT_OK;
}

static const tacit_command commands[] = {
    {"fleet", "a fleet's data: devices, held-out records, the server's gate set", run_fleet},
    {"pretrain-set", "scenes of the pretraining kind, for inspection", run_pretrain_set},
    {"heldout", "held-out scenes with one base question each", run_heldout},
    {"sheet", "a contact sheet as PNG", run_sheet},
    {"senses", "scenes with sounds and signals, one question each", run_senses},
    {"senses-sheet", "spectrograms and plots of such scenes as PNG", run_senses_sheet},
    {"vocabulary", "nano's tokens and merges", run_vocabulary},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit-scenes", TACIT_LOG_INFO);
    return tacit_commands_main("tacit-scenes", "draws synthetic scenes and datasets of them",
                               commands, argc, argv);
}
