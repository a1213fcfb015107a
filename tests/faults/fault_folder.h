/* A folder as text, to compare two of them: every file's name, mode and SHA-256, and of a database
 * (NAME.db) every row of every table instead. */
#ifndef TACIT_TESTS_FAULT_FOLDER_H
#define TACIT_TESTS_FAULT_FOLDER_H

#include "common/status.h"

/* *text is malloc'ed, the caller's. Reads databases, so that their -wal and -shm files are gone
 * afterwards. */
tacit_status fault_folder_text(char **text, const char *dir, tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_FAILED with the first line in which two texts differ. */
tacit_status fault_folder_differ(const char *expected, const char *found, tacit_error *err);

/* Removes it with all that it holds. */
void fault_folder_remove(const char *dir);

#endif
