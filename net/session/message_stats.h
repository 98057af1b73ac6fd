/* Tables, their statistics and reports in control messages, as part of message.h. */
#ifndef SL_NET_SESSION_MESSAGE_STATS_H
#define SL_NET_SESSION_MESSAGE_STATS_H

#include <starling.h> /* SL_TABLE_NAME_BYTES */
#include <stdbool.h>
#include <stdint.h>

struct sl_message_table_open {
    struct sl_table_spec spec; /* not validated: use sl_message_check_spec */
    uint32_t table_id;
    bool keep_id; /* to the coordinator: reopen the table under table_id */
    /* To the coordinator: a query. Only spec.name is read. The answer is a TABLE_OPEN with the
     * table's specification and id. */
    bool asks;
    bool is_restored; /* to the coordinator: the server has the table from a checkpoint */
};

#define SL_MESSAGE_TABLES_MAX 16 /* of a page */

struct sl_message_tables {
    struct sl_table_spec *specs; /* owned by the message; by ascending id; not validated */
    uint32_t count;
    uint32_t next; /* table_id of the TABLES_GET of the next page; 0: there is none */
};

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
