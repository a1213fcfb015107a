#include "engine/text_arch.h"

#include <stdio.h>
#include <string.h>

static const text_arch *const known[] = {&arch_gemma3, &arch_lfm2,    &arch_llama,
                                         &arch_qwen2,  &arch_qwen2vl, &arch_qwen3};
#define KNOWN (sizeof known / sizeof known[0])

const text_arch *text_arch_find(const char *name, size_t size)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (strlen(known[i]->name) == size && memcmp(known[i]->name, name, size) == 0)
            return known[i];
    return NULL;
}

void text_arch_names(char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < KNOWN && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", known[i]->name);
}
