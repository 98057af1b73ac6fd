/* Accepts reports of members for readers beside the reactor, within limits of length and rate.
 * Owner reactor. */
#ifndef SL_PS_COORDINATOR_REPORT_H
#define SL_PS_COORDINATOR_REPORT_H

#include "ps/coordinator/state.h"

/* Passes a report to options.report, or drops and counts it. */
void sl_coordinator_report_take(struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member,
                                const struct sl_message_report *report, uint64_t now_ns);

#endif
