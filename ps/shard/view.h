/* The view of a shard, for readers on other threads (reactor/view.h): copies, filled part by
 * part. Owner reactor. */
#ifndef SL_PS_SHARD_VIEW_H
#define SL_PS_SHARD_VIEW_H

#include "ps/shard/hot_keys.h"
#include "ps/shard/shard.h"

/* Of each table and of each worker, in one slice of a view. */
#define SL_SHARD_VIEW_TABLES  64
#define SL_SHARD_VIEW_WORKERS 4096

struct sl_shard_table_view {
    uint32_t id;                         /* ascending */
    struct sl_message_table_stats stats; /* rows are keys, except for dense tables: elements */
    struct sl_hot_keys_view hot;
};

struct sl_shard_view {
    struct sl_shard_table_view tables[SL_LIMIT_TABLES];
    uint32_t table_count;
    uint32_t clock_min, clock_max; /* of the active workers; 0: there is none */
    uint32_t staleness_bound;      /* largest of the tables with SSP; 0: there is none */
    struct {
        bool is_active;
        uint32_t clock;          /* SL_REQUEST_CLOCK_FINISHED: it has finished */
    } workers[SL_LIMIT_WORKERS]; /* by task; those expected or seen */
    uint32_t worker_count;

    /* The next slice. */
    uint32_t next_table, next_worker;
};

/* Fills a slice of the view; true with the last one. is_first: begins a view. halve: halves the
 * counts of hot keys, after they were copied. */
bool sl_shard_view_fill(struct sl_shard *shard, struct sl_shard_view *view, bool is_first,
                        bool halve);

#endif
