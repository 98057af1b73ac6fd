#include "ps/replication/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "ps/replication/state.h"

#define ROW(name, kind, unit, member, help)                                                        \
    {                                                                                              \
        name, NULL, SL_METRICS_##kind, SL_METRICS_##unit,                                          \
            offsetof(struct sl_replication_cells, member), help                                    \
    }

static const struct sl_metrics_row rows[] = {
    ROW("replica_in_sync", GAUGE, PLAIN, is_in_sync,
        "1: the backup of the shard has every acknowledged write."),
    ROW("replica_lag_entries", GAUGE, PLAIN, lag_entries,
        "Entries of the shard's log that the backup has not acknowledged."),
    ROW("replica_lag_bytes", GAUGE, PLAIN, lag_bytes, "Memory of these entries."),
    ROW("replica_degraded_seconds_total", COUNTER, NS, degraded_ns,
        "Time that the shard was served without a backup in sync."),
};

static void replication_metrics_collect(void *ctx, struct sl_metrics_visitor *visitor)
{
    const struct sl_replication_cells *cells = ctx;
    char labels[SL_METRICS_LABELS_BYTES];
    (void)snprintf(labels, sizeof labels, "shard=\"%" PRIu64 "\"", sl_cell_get(&cells->shard));
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows && sl_cell_get(&cells->is_primary); i++) {
        const struct sl_cell *cell = (const void *)((const char *)cells + rows[i].offset);
        sl_metrics_visit(visitor, &rows[i], labels, sl_cell_get(cell));
    }
}

struct sl_metrics_source sl_replication_metrics_source(struct sl_replication_cells *cells)
{
    return (struct sl_metrics_source){.collect = replication_metrics_collect, .ctx = cells};
}

/* The time since the last call, while degraded. */
static void count_degraded(const struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    const uint64_t now_ns = sl_server_now_ns(server);
    if (replica->degraded_ns != 0 && now_ns > replica->degraded_ns) {
        sl_cell_add(&replica->cells->degraded_ns, now_ns - replica->degraded_ns);
    }
    replica->degraded_ns = server->role.backup.degraded_since_ns == 0 ? 0 : now_ns;
}

void sl_replication_metrics_update(const struct sl_server *server)
{
    const struct sl_replication *replica = server->replica;
    struct sl_replication_cells *cells = replica->cells;
    count_degraded(server);
    sl_cell_set(&cells->shard, server->options.shard.index);
    sl_cell_set(&cells->is_in_sync, replica->is_in_sync);
    sl_cell_set(&cells->lag_entries, replica->log.entry_count);
    sl_cell_set(&cells->lag_bytes, replica->log.bytes);
    sl_cell_set(&cells->is_primary,
                replica->stage >= SL_REPLICATION_WAITS_FOR_BACKUP && replica->config.needs_backup);
}
