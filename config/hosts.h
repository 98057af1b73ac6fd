/* A list of control endpoints, as --ps-hosts and TF_CONFIG name them: no two alike, scheme tcp,
 * each with a port that its peers can connect to. At most SL_LIMIT_PS. Before start. */
#ifndef SL_CONFIG_HOSTS_H
#define SL_CONFIG_HOSTS_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/err.h"

struct sl_hosts {
    struct sl_endpoint *items; /* allocated; sl_hosts_fini */
    uint32_t count;
};

/* Parses one control endpoint: as sl_endpoint_parse, but tcp and with a port. Errors: INVALID. */
int sl_hosts_parse_control(const char *text, struct sl_endpoint *out, char *reason,
                           size_t reason_bytes);

/* Appends one. `source` is what an error names first ("--ps-hosts"). Errors: INVALID, TOO_LARGE,
 * NO_MEMORY; the list is then as it was. */
int sl_hosts_append(struct sl_hosts *hosts, const char *text, const char *source, char *reason,
                    size_t reason_bytes);

/* Appends each item of "host:port,host:port". Errors as append; the list may then be partial. */
int sl_hosts_append_list(struct sl_hosts *hosts, const char *list, const char *source, char *reason,
                         size_t reason_bytes);

void sl_hosts_fini(struct sl_hosts *hosts);

/* Checks one worker host, "host" or "host:port", and copies nothing: only their number counts.
 * Errors: INVALID. */
int sl_hosts_check_worker(const char *text, const char *source, char *reason, size_t reason_bytes);

/* Counts and checks the items of "host,host:port". Errors: INVALID, TOO_LARGE. */
int sl_hosts_count_workers(const char *list, const char *source, uint32_t *out, char *reason,
                           size_t reason_bytes);

/* Same host, without regard to case, and same port. */
bool sl_hosts_same(const struct sl_endpoint *a, const struct sl_endpoint *b);

#endif
