#include "engine/stop_text.h"

#include <string.h>

size_t stop_text_find(const char *const *stop, size_t count, const char *text, size_t size,
                      size_t from)
{
    size_t first = STOP_TEXT_NONE;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(stop[i]), begin = from >= length ? from - length + 1 : 0;
        const char *found =
            size > begin ? memmem(text + begin, size - begin, stop[i], length) : NULL;
        if (found && (size_t)(found - text) < first)
            first = (size_t)(found - text);
    }
    return first;
}

size_t stop_text_pending(const char *const *stop, size_t count, const char *text, size_t size)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(stop[i]) - 1;
        for (length = length < size ? length : size; length > most; length--)
            if (memcmp(text + size - length, stop[i], length) == 0)
                most = length;
    }
    return most;
}
