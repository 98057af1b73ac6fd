#include "ps/shard/view.h"

#include "ps/shard/state.h"

static uint32_t shard_view_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void fill_tables(struct sl_shard *shard, struct sl_shard_view *view, bool halve)
{
    const uint32_t end =
        shard_view_smaller(view->next_table + SL_SHARD_VIEW_TABLES, shard->table_count);
    for (; view->next_table < end; view->next_table++) {
        struct sl_shard_table *table = sl_shard_table_in_use(shard, view->next_table);
        if (table == NULL) {
            continue;
        }
        struct sl_shard_table_view *shown = &view->tables[view->table_count++];
        shown->id = view->next_table;
        sl_shard_table_stats(table, &shown->stats);
        if (table->spec.consistency.staleness > view->staleness_bound) {
            view->staleness_bound = table->spec.consistency.staleness; /* 0 unless SSP */
        }
        sl_hot_keys_show(&table->hot, &shown->hot);
        if (halve) {
            sl_hot_keys_halve(&table->hot);
        }
    }
}

static uint32_t worker_end(const struct sl_clocks *clocks)
{
    return clocks->expected > clocks->seen_end ? clocks->expected : clocks->seen_end;
}

static void fill_workers(const struct sl_clocks *clocks, struct sl_shard_view *view)
{
    const uint32_t end =
        shard_view_smaller(view->next_worker + SL_SHARD_VIEW_WORKERS, worker_end(clocks));
    for (; view->next_worker < end; view->next_worker++) {
        const uint32_t worker = view->next_worker;
        const uint32_t clock = sl_clocks_of(clocks, worker);
        const bool is_active = sl_clocks_is_active(clocks, worker);
        view->workers[worker].is_active = is_active;
        view->workers[worker].clock = clock;
        if (is_active && clock > view->clock_max) {
            view->clock_max = clock;
        }
    }
    view->worker_count = end;
}

bool sl_shard_view_fill(struct sl_shard *shard, struct sl_shard_view *view, bool is_first,
                        bool halve)
{
    const struct sl_clocks *clocks = &shard->clocks;
    if (is_first) {
        view->table_count = view->next_table = view->next_worker = view->clock_max = 0;
        view->staleness_bound = 0;
        view->clock_min = sl_clocks_min_of_all(clocks);
    }
    fill_tables(shard, view, halve);
    fill_workers(clocks, view);
    return view->next_table >= shard->table_count && view->next_worker >= worker_end(clocks);
}
