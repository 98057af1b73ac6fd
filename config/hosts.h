/* A list of control endpoints from --ps-hosts or TF_CONFIG: at most SL_LIMIT_PS, all different,
 * tcp, with a port other than 0. Before start. */
#ifndef SL_CONFIG_HOSTS_H
#define SL_CONFIG_HOSTS_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/reason.h"

struct sl_hosts {
    struct sl_endpoint *items; /* allocated; sl_hosts_fini */
    uint32_t count;
};

/* Parses one control endpoint like sl_endpoint_parse, but requires tcp and a port. Errors:
 * INVALID. */
int sl_hosts_parse_control(const char *text, struct sl_endpoint *out, struct sl_reason *reason);

/* Appends one endpoint. source: starts the error text ("--ps-hosts"). On error the list is
 * unchanged. Errors: INVALID, TOO_LARGE, NO_MEMORY. */
int sl_hosts_append(struct sl_hosts *hosts, const char *text, const char *source,
                    struct sl_reason *reason);

/* Appends all items of "host:port,host:port". Errors: of append; the list may then be partial. */
int sl_hosts_append_list(struct sl_hosts *hosts, const char *list, const char *source,
                         struct sl_reason *reason);

void sl_hosts_fini(struct sl_hosts *hosts);

/* Validates one worker host, "host" or "host:port". Stores nothing, since only the count is used.
 * Errors: INVALID. */
int sl_hosts_check_worker(const char *text, const char *source, struct sl_reason *reason);

/* Validates and counts the items of "host,host:port". Errors: INVALID, TOO_LARGE. */
int sl_hosts_count_workers(const char *list, const char *source, uint32_t *out,
                           struct sl_reason *reason);

/* Compares host (case-insensitive) and port. */
bool sl_hosts_same(const struct sl_endpoint *a, const struct sl_endpoint *b);

#endif
