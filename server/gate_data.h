/* The gate's held-out set before a round needs it. */
#ifndef TACIT_SERVER_GATE_DATA_H
#define TACIT_SERVER_GATE_DATA_H

#include "common/status.h"

/* TACIT_BAD_INPUT names the first line that cannot be read, or the picture that is not there: a
 * gate that skipped some would judge adapters by another set than its operator thinks. */
tacit_status gate_data_check(const char *path, tacit_error *err) TACIT_MUST_CHECK;

#endif
