/* Specifications of tables in messages: what is accepted, what differs, and what an older process
 * does not know. Any thread; nothing allocates. */
#ifndef SL_NET_SESSION_MESSAGE_SPEC_H
#define SL_NET_SESSION_MESSAGE_SPEC_H

#include "net/session/message.h"

/* Validates a table's specification. On error `reason` gives the field, its value and the accepted
 * range. Errors: INVALID. */
int sl_message_check_spec(const struct sl_table_spec *spec, struct sl_reason *reason);

/* What processes of this release know of tables (TABLE_OPENED, WELCOME): 1: policy; 2: update; 3:
 * admission, ttl_seconds and slots of a policy; find, scan and drop; tables by name; 4: admission
 * BLOOM; 5: evict; 6: precisions of tables, encodings of sections; 7: KV pulls with lengths, or of
 * zeros; relay and groups of barriers. */
#define SL_MESSAGE_SPEC_KNOWS           7
#define SL_MESSAGE_SPEC_KNOWS_ROWS      3 /* find, scan, drop */
#define SL_MESSAGE_SPEC_KNOWS_EVICT     5
#define SL_MESSAGE_SPEC_KNOWS_PRECISION 6
#define SL_MESSAGE_SPEC_KNOWS_RELAY     7 /* relay, groups of barriers */
#define SL_MESSAGE_SPEC_KNOWS_LENGTHS   7 /* KV pulls with lengths, or of zeros */

/* Returns the answer TABLE_OPENED to an open of this table. */
static inline struct sl_message sl_message_table_opened(uint64_t id, uint32_t table_id,
                                                        const struct sl_table_spec *spec)
{
    return (struct sl_message){.kind = SL_MESSAGE_TABLE_OPENED,
                               .id = id,
                               .table_id = table_id,
                               .reject_nonfinite = spec->reject_nonfinite,
                               .knows = SL_MESSAGE_SPEC_KNOWS};
}

/* Checks that the sender of the answer TABLE_OPENED, which may be older, knows all of the
 * specification that it was sent. Errors: VERSION; `reason` names what it does not know. */
int sl_message_check_known(const struct sl_table_spec *spec, const struct sl_message *opened,
                           struct sl_reason *reason);

/* Returns true if both are equal but for their policies, which differ. */
bool sl_message_specs_differ_in_policy(const struct sl_table_spec *existing,
                                       const struct sl_table_spec *asked);

/* Returns 0 if both are equal. Errors: EXISTS; `reason` gives all different fields with both
 * values, the existing one first, or as many as a message has room for. */
int sl_message_compare_specs(const struct sl_table_spec *existing,
                             const struct sl_table_spec *asked, struct sl_reason *reason);

#endif
