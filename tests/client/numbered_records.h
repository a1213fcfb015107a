/* A dataset of records that differ in a number, without subjects. Include after cmocka.h. */
#ifndef TACIT_TESTS_NUMBERED_RECORDS_H
#define TACIT_TESTS_NUMBERED_RECORDS_H

#include <stdio.h>

static inline void write_numbered_records(const char *path, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        fprintf(f,
                "{\"id\":\"r%zu\",\"messages\":[{\"role\":\"user\",\"content\":\"how many?\"},"
                "{\"role\":\"assistant\",\"content\":\"%zu\"}]}\n",
                i, i);
    assert_int_equal(fclose(f), 0);
}

#endif
