/* json_lines KEY...: every line of standard input must be one JSON object (RFC 8259, no key twice)
 * that has these keys. Exit 1 names the first line that is not; an empty input is one as well. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(const char *line, size_t n, char **keys)
{
    json_error_t why;
    json_t *value = json_loads(line, JSON_REJECT_DUPLICATES, &why);
    int bad = !json_is_object(value);
    if (bad)
        fprintf(stderr, "line %zu is no JSON object: %s", n, line);
    for (; !bad && *keys; keys++)
        if (!json_object_get(value, *keys)) {
            fprintf(stderr, "line %zu has no \"%s\": %s", n, *keys, line);
            bad = 1;
        }
    json_decref(value);
    return bad;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0, n = 0;
    int bad = 0;
    (void)argc;
    while (!bad && getline(&line, &room, stdin) >= 0)
        bad = check(line, ++n, argv + 1);
    free(line);
    if (n == 0)
        fprintf(stderr, "no line\n");
    return bad || n == 0;
}
