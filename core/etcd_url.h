/* The URL of an etcd: "etcd://host:port,host:port/prefix", or etcds:// for TLS. Endpoints may have
 * ";" between them, as in Mooncake. Any thread; no allocation. */
#ifndef SL_CORE_ETCD_URL_H
#define SL_CORE_ETCD_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/reason.h"

#define SL_ETCD_URL_SERVERS_MAX  9
#define SL_ETCD_URL_PREFIX_BYTES 128

struct sl_etcd_url {
    bool tls;
    uint32_t server_count;
    char servers[SL_ETCD_URL_SERVERS_MAX][SL_LIMIT_ENDPOINT_BYTES]; /* "host:port" as written */
    char prefix[SL_ETCD_URL_PREFIX_BYTES]; /* of the keys: "/jobs/a"; "": none */
};

/* The scheme may be missing, as in Mooncake. Drops slashes at the end. Errors: INVALID; *why is a
 * clause that the caller completes with the text and what it accepts. */
int sl_etcd_url_parse(const char *text, struct sl_etcd_url *out, struct sl_reason *why);

#endif
