/* Statistics and reports in control messages, as part of message.h. */
#ifndef SL_NET_SESSION_MESSAGE_STATS_H
#define SL_NET_SESSION_MESSAGE_STATS_H

#include <starling.h> /* SL_TABLE_NAME_BYTES */
#include <stdint.h>

struct sl_message_table_stats {
    char name[SL_TABLE_NAME_BYTES];
    uint64_t rows, bytes, pulled_rows, pushed_rows, steps;
    uint64_t evicted_ttl, evicted_count, evicted_l2, evicted_room;
    uint64_t rows_created, rows_erased, admitted, refused, waiting;
    uint64_t bytes_rows, bytes_index, bytes_admission;
};

/* Returns the rows that the table's policy has let go. */
static inline uint64_t sl_message_evicted(const struct sl_message_table_stats *stats)
{
    return stats->evicted_ttl + stats->evicted_count + stats->evicted_l2 + stats->evicted_room;
}

struct sl_message_stats {
    struct sl_message_table_stats *tables; /* owned by the message */
    uint32_t table_count;
    uint64_t requests, bytes_in, bytes_out, stalls;
    uint64_t degraded_writes, degraded_ms; /* of a replicated shard, without a backup in sync */
    uint64_t degraded_shards;              /* from the coordinator only */
};

/* An encoded report of a member (report.h). The decoder of messages does not look into it. */
struct sl_message_report {
    uint8_t *bytes; /* owned by the message */
    uint32_t byte_count;
};

#endif
