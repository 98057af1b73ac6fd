/* StarServer's endpoint map: lines "control_host:port=data_uri". Blank lines, lines that start with
 * # and white space around endpoints are ignored. Control endpoints are tcp. Each endpoint occurs
 * once, except data endpoints with port 0. A line may have two comma-separated data endpoints in
 * any order, one of tcp and one of rdma or dpdk. Before start. */
#ifndef SL_CONFIG_ENDPOINT_MAP_H
#define SL_CONFIG_ENDPOINT_MAP_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/reason.h"

/* The default path. */
#define SL_ENDPOINT_MAP_DEFAULT ".endpoint_map"

struct sl_endpoint_map_entry {
    struct sl_endpoint control;
    struct sl_endpoint data;   /* the tcp endpoint, if there are two */
    struct sl_endpoint bypass; /* the rdma or dpdk endpoint, if there are two */
    bool has_bypass;
};

struct sl_endpoint_map {
    struct sl_endpoint_map_entry *entries;
    uint32_t count;
};

/* Reads the whole file, in the order of its lines. reason: "FILE:LINE: what, accepted". Errors:
 * NOT_FOUND, INVALID, TOO_LARGE (more than SL_LIMIT_PS lines, or 1 MiB), IO, NO_MEMORY. */
int sl_endpoint_map_read(const char *path, struct sl_endpoint_map *out, struct sl_reason *reason);
void sl_endpoint_map_fini(struct sl_endpoint_map *map);

/* Returns the entry of a control endpoint; NULL: none. */
const struct sl_endpoint_map_entry *sl_endpoint_map_find(const struct sl_endpoint_map *map,
                                                         const struct sl_endpoint *control);

#endif
