/* StarServer's endpoint map: lines "control_host:port=data_uri". Blank lines and lines that begin
 * with # are skipped, white space around an endpoint too. A control endpoint is tcp and named once;
 * so is a data endpoint, unless its port is 0. In the place of one data endpoint there may be two
 * with a comma between, one of rdma or dpdk and one of tcp, in either order. Before start. */
#ifndef SL_CONFIG_ENDPOINT_MAP_H
#define SL_CONFIG_ENDPOINT_MAP_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/err.h"

/* Where it is when nobody says where. */
#define SL_ENDPOINT_MAP_DEFAULT ".endpoint_map"

struct sl_endpoint_map_entry {
    struct sl_endpoint control;
    struct sl_endpoint data;   /* of two: the one of tcp */
    struct sl_endpoint bypass; /* of two: the one of rdma or dpdk */
    bool has_bypass;
};

struct sl_endpoint_map {
    struct sl_endpoint_map_entry *entries;
    uint32_t count;
};

/* Reads the file whole; the entries are in the order of its lines. On error writes "FILE:LINE:
 * what, accepted" into reason. Errors: NOT_FOUND, INVALID, TOO_LARGE (more than SL_LIMIT_PS lines,
 * or 1 MiB), IO, NO_MEMORY. */
int sl_endpoint_map_read(const char *path, struct sl_endpoint_map *out, char *reason,
                         size_t reason_bytes);
void sl_endpoint_map_fini(struct sl_endpoint_map *map);

/* The entry of a control endpoint, or NULL when the map does not name it. */
const struct sl_endpoint_map_entry *sl_endpoint_map_find(const struct sl_endpoint_map *map,
                                                         const struct sl_endpoint *control);

#endif
