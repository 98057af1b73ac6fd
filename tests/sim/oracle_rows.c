/* What shards hold that were restored: of each push all or nothing, and of rows, slots and visits
 * what the pushes that are there add up to. So nothing in them is of another moment than the rest.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/partition.h"
#include "ps/shard/state.h"
#include "tests/sim/windows.h"

struct rows {
    struct sl_sim_oracle *oracle;
    const char *who;
    struct sl_shard *const *shards;
    uint32_t shard_count;
    uint64_t before_ns;                   /* what was acknowledged by then is there */
    const struct sl_sim_windows *windows; /* may be NULL */
    uint32_t table;
    uint64_t visited; /* sparse: rows that pushes have visited */
};

/* One value, as it lies in the store; zeros where there is none. */
struct view {
    bool is_held; /* its shard is one of these */
    float value, slot;
    uint32_t visits; /* sparse only */
};

/* What a shared key should be. */
struct sum {
    int64_t value, slot;
    uint32_t visits;
};

static const struct sl_sim_table *table_of(const struct rows *rows)
{
    return &rows->oracle->tables[rows->table];
}

static bool is_sparse(const struct rows *rows)
{
    return table_of(rows)->spec.kind == SL_TABLE_SPARSE;
}

static bool has_slots(const struct rows *rows)
{
    return table_of(rows)->spec.optimizer.kind == SL_OPTIMIZER_ADAGRAD;
}

static struct sl_shard_table *held_by(const struct rows *rows, uint32_t shard)
{
    return rows->shards[shard]->tables[table_of(rows)->id];
}

static struct view view_row(const struct rows *rows, uint64_t key)
{
    struct view view = {.is_held = false};
    for (uint32_t i = 0; i < rows->shard_count; i++) {
        const struct sl_shard_options *options = &rows->shards[i]->options;
        const struct sl_shard_table *table = held_by(rows, i);
        uint32_t number = SL_ROW_NONE;
        if (sl_partition_owner(key, options->count) != options->index) {
            continue;
        }
        view.is_held = true;
        if (table != NULL) {
            sl_sparse_table_find(table->sparse, &key, 1, &number);
        }
        if (number != SL_ROW_NONE) {
            const struct sl_row *record = sl_sparse_table_record(table->sparse, number);
            view.value = record->values[0];
            view.slot = has_slots(rows) ? record->values[table->spec.dim] : 0;
            view.visits = record->count;
        }
    }
    return view;
}

static struct view view_element(const struct rows *rows, uint64_t element)
{
    struct view view = {.is_held = false};
    const uint32_t table_id = table_of(rows)->id;
    const uint64_t length = table_of(rows)->spec.length;
    for (uint32_t i = 0; i < rows->shard_count; i++) {
        const struct sl_shard_options *options = &rows->shards[i]->options;
        const struct sl_shard_table *table = held_by(rows, i);
        const uint32_t range =
            sl_partition_range_of_shard(table_id, options->index, options->count);
        const uint64_t start = sl_partition_range_start(length, options->count, range);
        if (element < start ||
            element >= sl_partition_range_start(length, options->count, range + 1)) {
            continue;
        }
        view.is_held = true;
        if (table != NULL) {
            const uint32_t at = (uint32_t)(element - start);
            const struct sl_dense_block block =
                sl_dense_table_block(table->dense, at / SL_PARTITION_BLOCK_ELEMENTS);
            const uint32_t in_block = at % SL_PARTITION_BLOCK_ELEMENTS;
            view.value = block.floats[in_block];
            view.slot = has_slots(rows) ? block.floats[block.elements + in_block] : 0;
        }
    }
    return view;
}

static struct view view_at(const struct rows *rows, uint64_t at)
{
    return is_sparse(rows) ? view_row(rows, at) : view_element(rows, at);
}

static bool is_as(const struct rows *rows, const struct view *view, const struct sum *sum)
{
    const int64_t value = table_of(rows)->sign != 0 ? sum->value : -sum->value;
    return view->value == (float)value && view->slot == (float)(has_slots(rows) ? sum->slot : 0) &&
           view->visits == (is_sparse(rows) ? sum->visits : 0);
}

/* A push visits a key once, with the sum of what it has for it. */
static void add_parts(const struct rows *rows, const struct sl_sim_unit *unit, struct sum *sums)
{
    const struct sl_sim_part *parts = &rows->oracle->parts[unit->part_first];
    for (uint32_t i = 0; i < unit->part_count; i++) {
        int64_t gradient = 0;
        bool is_first = true;
        for (uint32_t k = 0; k < unit->part_count; k++) {
            const bool is_same = parts[k].shared == parts[i].shared;
            gradient += is_same ? parts[k].gradient : 0;
            is_first = is_first && !(is_same && k < i);
        }
        if (is_first) {
            struct sum *sum = &sums[parts[i].shared];
            sum->value += gradient;
            sum->slot += gradient * gradient;
            sum->visits++;
        }
    }
}

static bool keeps_aside(const struct sl_shard_table *table,
                        const struct sl_shard_buffered_push *entry, uint64_t at)
{
    uint32_t number = SL_ROW_NONE;
    if (table->sparse == NULL) {
        return at >= entry->start && at - entry->start < entry->count &&
               entry->gradients[at - entry->start] != 0; /* others push to the same range */
    }
    sl_sparse_table_find(table->sparse, &at, 1, &number);
    uint32_t i = 0;
    while (i < entry->count && entry->records[i] != number) {
        i++;
    }
    return i < entry->count && number != SL_ROW_NONE;
}

/* BSP buffers it until its iteration is complete. */
static bool is_aside(const struct rows *rows, const struct sl_sim_unit *unit)
{
    const uint32_t worker = rows->oracle->instances[unit->instance].task;
    for (uint32_t i = 0; i < rows->shard_count; i++) {
        const struct sl_shard_table *table = held_by(rows, i);
        if (rows->shards[i]->options.index != unit->shard || table == NULL ||
            worker >= table->queue_count) {
            continue;
        }
        for (const struct sl_shard_buffered_push *at = table->buffered[worker].first; at != NULL;
             at = at->next) {
            if (at->clock == unit->clock && keeps_aside(table, at, unit->witness[0])) {
                return true;
            }
        }
    }
    return false;
}

/* What is known of its fate. Those that BSP buffers are in no row yet. */
static void check_presence(const struct rows *rows, const struct sl_sim_unit *unit, bool is_there)
{
    const bool stages = table_of(rows)->spec.consistency.mode == SL_CONSISTENCY_BSP;
    const bool must = unit->fate == SL_SIM_FATE_SURE && unit->acked && !stages &&
                      unit->ended_ns < rows->before_ns;
    const bool must_not = unit->fate == SL_SIM_FATE_GONE;
    if (is_there ? must_not : must) {
        sl_sim_fail(&rows->oracle->breach, "one cut",
                    "%s: worker/%u's push of iteration %u to t%u, %s at %" PRIu64 " us, is %s",
                    rows->who, rows->oracle->instances[unit->instance].task, unit->clock,
                    rows->table, unit->acked ? "acknowledged" : "not acknowledged",
                    sl_sim_us(unit->ended_ns), is_there ? "there" : "not there");
    }
}

/* True: the bait has what was assigned to it, with slots as of a new row, and perhaps, of a push
 * that BSP had buffered, what was pushed after that. */
static bool is_as_assigned(struct rows *rows, const struct view *bait)
{
    const struct sum alone = {.value = SL_SIM_ASSIGNED};
    const struct sum pushed = {.value = SL_SIM_ASSIGNED + 1, .slot = 1, .visits = 1};
    const bool stages = table_of(rows)->spec.consistency.mode == SL_CONSISTENCY_BSP;
    const bool is_pushed = stages && is_as(rows, bait, &pushed);
    rows->visited += is_pushed;
    return is_pushed || is_as(rows, bait, &alone);
}

/* Its third key, which a later step may erase. */
static void check_bait(struct rows *rows, const struct sl_sim_unit *unit, bool is_there)
{
    const struct sum once = {.value = 1, .slot = 1, .visits = 1}, never = {.value = 0};
    const struct view bait = view_at(rows, unit->bait);
    const bool is_pushed = is_as(rows, &bait, &once);
    const bool is_erased = sl_sim_oracle_is_erased(rows->oracle, unit, rows->before_ns);
    const bool may_lack = !is_there || unit->eraser != SL_SIM_NO_UNIT;
    if (unit->is_assigned && is_as_assigned(rows, &bait)) {
        return;
    }
    const bool is_lost = unit->is_assigned && (is_erased || is_there); /* neither is there */
    if (is_pushed ? !is_there || is_erased : is_lost || !may_lack || !is_as(rows, &bait, &never)) {
        sl_sim_fail(&rows->oracle->breach, "erase",
                    "%s: key %" PRIu64 " of t%u is %g, slot %g, visits %u; its push is %s, "
                    "its erase %s",
                    rows->who, unit->bait, rows->table, (double)bait.value, (double)bait.slot,
                    bait.visits, is_there ? "there" : "not there",
                    is_erased                        ? "was acknowledged"
                    : unit->eraser == SL_SIM_NO_UNIT ? "was never sent"
                                                     : "may be there");
    }
    rows->visited += is_pushed;
}

/* Counts what it adds, if it is there. */
static void check_unit(struct rows *rows, const struct sl_sim_unit *unit, struct sum *sums)
{
    const struct sum once = {.value = 1, .slot = 1, .visits = 1}, never = {.value = 0};
    const struct view first = view_at(rows, unit->witness[0]);
    const struct view second = view_at(rows, unit->witness[1]);
    if (!first.is_held || !second.is_held) {
        return;
    }
    const bool is_there = is_as(rows, &first, &once) && is_as(rows, &second, &once);
    if (!is_there && (!is_as(rows, &first, &never) || !is_as(rows, &second, &never))) {
        sl_sim_fail(&rows->oracle->breach, "one cut",
                    "%s: of worker/%u's push of iteration %u to t%u there are %g and %g, "
                    "slots %g and %g, visits %u and %u",
                    rows->who, rows->oracle->instances[unit->instance].task, unit->clock,
                    rows->table, (double)first.value, (double)second.value, (double)first.slot,
                    (double)second.slot, first.visits, second.visits);
    }
    check_presence(rows, unit, is_there);
    if (rows->windows != NULL) {
        sl_sim_windows_check(rows->windows, rows->oracle, rows->who, unit,
                             is_there || is_aside(rows, unit));
    }
    if (is_sparse(rows)) {
        check_bait(rows, unit, is_there);
    }
    if (is_there) {
        rows->visited += 2;
        add_parts(rows, unit, sums);
    }
}

static void check_shared(struct rows *rows, uint32_t shared, const struct sum *sum)
{
    const struct view view = view_at(rows, table_of(rows)->shared[shared]);
    rows->visited += sum->visits > 0;
    if (view.is_held && !is_as(rows, &view, sum)) {
        sl_sim_fail(&rows->oracle->breach, "one cut",
                    "%s: shared key %u of t%u is %g, slot %g, visits %u; the pushes that "
                    "are there add up to %" PRId64 ", %" PRId64 " squared, %u visits",
                    rows->who, shared, rows->table, (double)view.value, (double)view.slot,
                    view.visits, sum->value, sum->slot, sum->visits);
    }
}

struct walk {
    struct rows *rows;
    uint32_t dim, float_count;
    uint64_t visited;
};

/* All columns are alike; and a row without a visit has nothing, also of what is kept beside it. */
static void check_row(struct walk *walk, const struct sl_row *record)
{
    walk->visited += record->count > 0;
    for (uint32_t i = 0; i < walk->float_count; i++) {
        const float first = record->values[i / walk->dim * walk->dim];
        const bool is_assigned = i < walk->dim && fabsf(first) == SL_SIM_ASSIGNED;
        const float like = record->count == 0 && !is_assigned ? 0 : first;
        if (record->values[i] != like) {
            sl_sim_fail(&walk->rows->oracle->breach, "one cut",
                        "%s: float %u of row %" PRIu64 " of t%u, which has %u visits, is "
                        "%g",
                        walk->rows->who, i, record->key, walk->rows->table, record->count,
                        (double)record->values[i]);
        }
    }
}

static void check_rows(struct rows *rows)
{
    struct walk walk = {.rows = rows};
    for (uint32_t i = 0; i < rows->shard_count; i++) {
        const struct sl_shard_table *table = held_by(rows, i);
        if (table != NULL) {
            walk.dim = table->spec.dim;
            walk.float_count =
                walk.dim + (uint32_t)sl_optimizer_slot_floats(table->optimizer, walk.dim);
            for (uint32_t k = 0; k < sl_sparse_table_record_count(table->sparse); k++) {
                const struct sl_row *record = sl_sparse_table_record(table->sparse, k);
                if (record->count != SL_ROW_ERASED) {
                    check_row(&walk, record);
                }
            }
        }
    }
    if (walk.visited != rows->visited) {
        sl_sim_fail(&rows->oracle->breach, "one cut",
                    "%s: t%u has %" PRIu64 " rows that were pushed; of the pushes that are "
                    "there, %" PRIu64,
                    rows->who, rows->table, walk.visited, rows->visited);
    }
}

void sl_sim_oracle_rows(struct sl_sim_oracle *oracle, const char *who,
                        struct sl_shard *const *shards, uint32_t shard_count, uint64_t before_ns,
                        const struct sl_sim_windows *windows)
{
    for (uint32_t table = 0; table < oracle->plan->table_count; table++) {
        if (sl_sim_oracle_forgets_rows(oracle, table)) {
            continue; /* evictions.h */
        }
        struct rows rows = {.oracle = oracle,
                            .who = who,
                            .shards = shards,
                            .shard_count = shard_count,
                            .before_ns = before_ns,
                            .windows = windows,
                            .table = table};
        const uint32_t shared_count = oracle->tables[table].shared_count;
        struct sum *sums = calloc(shared_count, sizeof *sums);
        sl_assert(sums != NULL);
        for (uint32_t i = 0; i < oracle->unit_count; i++) {
            if (oracle->units[i].table == table) {
                check_unit(&rows, &oracle->units[i], sums);
            }
        }
        for (uint32_t i = 0; i < shared_count; i++) {
            check_shared(&rows, i, &sums[i]);
        }
        if (is_sparse(&rows)) {
            check_rows(&rows);
        }
        free(sums);
    }
}
