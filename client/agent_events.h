/* What the agent does, as JSON lines on stdout for scripts: {"event":"plan",...}. Everything here
 * is known to the server too, or is about it: nothing depends on data. */
#ifndef TACIT_CLIENT_AGENT_EVENTS_H
#define TACIT_CLIENT_AGENT_EVENTS_H

#include "client/activation.h"
#include "client/plan_check.h"
#include "client/round_state_store.h"

void agent_event_plan(const checked_plan *plan);
void agent_event_refused(const char *why);
/* After a stage: "reserved", "acknowledged", "sealed", "done", "abandoned", with the reason. */
void agent_event_round(const round_state *round);
void agent_event_adapter(const active_adapter *active);

#endif
