/* An audit as JSON, for scripts: the keys are stable. */
#ifndef TACIT_PRIVACY_AUDIT_JSON_H
#define TACIT_PRIVACY_AUDIT_JSON_H

#include "privacy/audit.h"

#include <jansson.h>

/* What `verify --json` prints: audit, origin, entries, checkpoint_size, root, rounds, receipts,
 * epsilon_max, checks, devices, schedules, publications, violations, notes. Numbers that are not
 * finite are null. The caller's; NULL: no memory. */
json_t *audit_json(const tacit_audit *audit, json_t *schedules);

/* What `report --json` adds, each a list: round_list (a round each), events, curves (for every
 * device its points [entry, epsilon]). Returns false when there is no memory. */
bool audit_json_extend(json_t *root, const tacit_audit *audit);

#endif
