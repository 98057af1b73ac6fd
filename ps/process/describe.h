/* Describes slow requests and hot keys of a process as JSON for operators (docs/observe.md). The
 * observer's thread; allocates. */
#ifndef SL_PS_PROCESS_DESCRIBE_H
#define SL_PS_PROCESS_DESCRIBE_H

#include "net/control/report.h"
#include "ps/server/view.h"

#define SL_PROCESS_SLOW_MAX 128 /* slow requests, the newest ones */
#define SL_PROCESS_HOT_MAX  10  /* hot keys of a table */

struct json_t; /* of jansson */

/* Returns a slow request as reports have it, but for the table. now_ns and unix_ms, here and below:
 * the same time, by the reactors' clock and since 1970. */
struct sl_report_slow sl_process_describe_as_report(const struct sl_server_slow_request *request,
                                                    uint32_t shard, uint64_t now_ns,
                                                    uint64_t unix_ms);

/* Return JSON, which the caller owns; NULL: no memory. views[view_count]: of the shards that the
 * process serves. */

/* server: "ps/0". */
struct json_t *sl_process_describe_slow(const struct sl_server_view *const *views,
                                        uint32_t view_count, const char *server,
                                        uint64_t threshold_ns, uint64_t now_ns, uint64_t unix_ms);

/* `share` of a key: what certainly was counted for it, of all samples of the table; `error`: what
 * may be more. */
struct json_t *sl_process_describe_hot(const struct sl_server_view *const *views,
                                       uint32_t view_count);

#endif
