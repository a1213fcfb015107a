/* Runs a fuzz target over its corpus, without a fuzzing engine. Usage: fuzz_NAME CORPUS */
#include "fuzz_target.h"

#include "common/file.h"

#include <dirent.h>
#include <string.h>

enum { MOST_BYTES = 1 << 24 };

typedef enum verdict { MUST_BE_ACCEPTED, MUST_BE_REFUSED, EITHER } verdict;

static const struct folder {
    const char *name;
    verdict verdict;
} folders[] = {{"good", MUST_BE_ACCEPTED}, {"bad", MUST_BE_REFUSED}, {"found", EITHER}};

static int complain(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return 1;
}

static int replay_file(const char *path, verdict expected)
{
    uint8_t *data;
    size_t size;
    tacit_error err;
    if (tacit_file_read(path, MOST_BYTES, &data, &size, &err) != TACIT_OK)
        return complain(path, err.message);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    if (expected == MUST_BE_ACCEPTED && !fuzz_accepted)
        return complain(path, "expected to be accepted, was refused");
    if (expected == MUST_BE_REFUSED && fuzz_accepted)
        return complain(path, "expected to be refused, was accepted");
    return 0;
}

static int replay_folder(const char *corpus, const struct folder *folder, size_t *count)
{
    char dir[2048], path[4096];
    int wrong = 0;
    snprintf(dir, sizeof dir, "%s/%s", corpus, folder->name);
    DIR *d = opendir(dir);
    if (!d)
        return folder->verdict == MUST_BE_ACCEPTED ? complain(dir, "expected a folder of inputs")
                                                   : 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        wrong += replay_file(path, folder->verdict);
        ++*count;
    }
    closedir(d);
    return wrong;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    int wrong = 0;
    if (argc != 2)
        return complain(argv[0], "expected the folder of a corpus");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        wrong += replay_folder(argv[1], &folders[i], &count);
    printf("%zu inputs, %d wrong\n", count, wrong);
    return wrong || !count;
}
