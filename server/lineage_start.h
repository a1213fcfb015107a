/* A new lineage from the operator's options: the schedule that is logged before its first reserve,
 * and the part of the plan that all its rounds share. */
#ifndef TACIT_SERVER_LINEAGE_START_H
#define TACIT_SERVER_LINEAGE_START_H

#include "server/control.h"

extern const control_option lineage_start_options[];

/* Validates, logs and stores the lineage in one transaction. TACIT_CONFLICT while another one
 * runs. `call->result` says lineage, rounds, trainable values and the epsilon of each round. */
tacit_status lineage_start(control_call *call, tacit_error *err) TACIT_MUST_CHECK;

#endif
