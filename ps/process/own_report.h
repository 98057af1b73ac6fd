/* Builds the report of this process (net/session/report.h) from the views of its servers and from
 * cells, once a second. The observer's thread. */
#ifndef SL_PS_PROCESS_OWN_REPORT_H
#define SL_PS_PROCESS_OWN_REPORT_H

#include "net/session/report.h"
#include "ps/process/state.h"

struct sl_process_own_report;

/* Errors: NO_MEMORY. Main thread. */
int sl_process_own_report_create(const struct sl_process *process,
                                 struct sl_process_own_report **out);

/* Nulls *report, which may be NULL. */
void sl_process_own_report_destroy(struct sl_process_own_report **report);

/* Returns an encoded report, whose bytes the caller frees; bytes NULL: no memory. http: HOST:PORT,
 * or "". unix_ms: now_ns as time since 1970. */
struct sl_message_report sl_process_own_report_build(struct sl_process_own_report *own,
                                                     const char *http, uint64_t uptime_ms,
                                                     uint64_t now_ns, uint64_t unix_ms);

#endif
