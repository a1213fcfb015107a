/* Unicode's normal form C in time that grows with the text. Private to the engine room. */
#ifndef TACIT_ENGINE_NORMAL_FORM_H
#define TACIT_ENGINE_NORMAL_FORM_H

#include "common/status.h"

#include <stddef.h>

/* Unicode Standard Annex 15: *out receives `size` bytes of valid UTF-8 in form C, *n bytes long;
 * tacit_wipe_free it. TACIT_NO_MEMORY where the work does not fit. */
tacit_status normal_form_c(char **out, size_t *n, const char *text, size_t size,
                           tacit_error *err) TACIT_MUST_CHECK;

#endif
