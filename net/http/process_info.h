/* Self describes the process that serves a request, as JSON: /api/process. The observer's thread.
 */
#ifndef SL_NET_HTTP_PROCESS_INFO_H
#define SL_NET_HTTP_PROCESS_INFO_H

#include <stdint.h>

#include "core/option_value.h"
#include "net/http/reply.h"

struct sl_process_info {
    const char *name, *role; /* "ps/1", "ps" */
    uint32_t task_index;
    const char *http;        /* address */
    uint64_t begun_ns;       /* monotonic */
    uint64_t memory_limit;   /* bytes; 0: none */
    struct json_t *reactors; /* list of objects; the reply takes the reference */
    const struct sl_option_values *options;
};

/* A sl_reply_read_fn: /api/events. */
void sl_process_info_read_events(void *ctx, const struct sl_query *query, struct sl_reply *reply);

void sl_process_info_reply(const struct sl_process_info *self, struct sl_reply *reply);

#endif
