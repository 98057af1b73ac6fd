/* The metrics of a shard's replication, on a primary that needs a backup: whether a backup is in
 * sync, and how much of the log it has not acknowledged. A backup has no series. Written by the
 * owner reactor. */
#ifndef SL_PS_REPLICATION_METRICS_H
#define SL_PS_REPLICATION_METRICS_H

#include "core/metrics.h"

struct sl_server;

struct sl_replication_cells {
    struct sl_cell is_primary, shard, is_in_sync;
    struct sl_cell lag_entries, lag_bytes; /* of the log */
    struct sl_cell degraded_ns;            /* without a backup in sync; counted while turns run */
};

/* Returns a source of the cells: series with the label `shard`, of a primary. */
struct sl_metrics_source sl_replication_metrics_source(struct sl_replication_cells *cells);

/* The role, or what the log holds, has changed; or time has passed while degraded. */
void sl_replication_metrics_update(const struct sl_server *server);

#endif
