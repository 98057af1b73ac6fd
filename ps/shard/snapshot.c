#include "ps/shard/snapshot.h"

#include <stdlib.h>

#include "core/assert.h"
#include "ps/shard/snapshot_internal.h"

#define BYTES_MAX_DEFAULT ((size_t)128 << 20)
#define BLOCK_BYTES_MIN   (64U << 10)
#define BLOCKS_PER_TABLE  (SL_SHARD_SNAPSHOT_TABLE_BYTES / BLOCK_BYTES_MIN)
#define TABLES_BESIDES    2 /* clocks and buffered pushes count as tables */
#define HEAD_COST         16

static const char FULL[] = "the blocks that wait to be written fill the memory reserved for them";

/* Each table may have an open block. Together these take at most a quarter of the memory. */
static uint32_t block_bytes_for(size_t bytes_max, uint32_t table_count)
{
    const size_t bytes =
        bytes_max / BLOCKS_PER_TABLE / (table_count + TABLES_BESIDES) / 4096 * 4096;
    return bytes >= SL_SNAPSHOT_BLOCK_BYTES ? SL_SNAPSHOT_BLOCK_BYTES
           : bytes < BLOCK_BYTES_MIN        ? BLOCK_BYTES_MIN
                                            : (uint32_t)bytes;
}

static size_t bytes_max_for(size_t bytes_max, uint32_t table_count)
{
    const size_t least =
        (size_t)(table_count + TABLES_BESIDES) * BLOCKS_PER_TABLE * BLOCK_BYTES_MIN;
    bytes_max = bytes_max == 0 ? BYTES_MAX_DEFAULT : bytes_max;
    return bytes_max < least ? least : bytes_max;
}

/* Start */

static void part_begin(struct sl_shard *shard, struct sl_shard_snapshot_part *part,
                       struct sl_shard_table *table, uint32_t table_id,
                       const struct sl_snapshot_base *base)
{
    struct sl_snapshot_builder *blocks = &shard->snapshots.blocks;
    part->table = table;
    part->table_id = table_id;
    part->queue_count = table->buffered_count > 0 ? table->queue_count : 0;
    part->state = table->state;
    part->step = table->step;
    part->pulled_rows = table->pulled_rows;
    part->pushed_rows = table->pushed_rows;
    part->walks = true;
    if (table->sparse != NULL) {
        if (base != NULL && base->open) {
            sl_shard_snapshot_put_erased(shard, table, table_id, base);
        }
        sl_copy_sparse_begin(&part->sparse, table->sparse, blocks, table_id, base, table->step);
    } else if (table->kv != NULL) {
        sl_copy_kv_begin(&part->kv, table->kv, blocks, table_id, base);
    } else {
        sl_copy_dense_begin(&part->dense, table->dense, blocks,
                            table == shard->tables[table_id] ? SL_SNAPSHOT_DENSE
                                                             : SL_SNAPSHOT_WAITING,
                            table_id, base, table->step);
    }
}

/* Returns true when the worker's state is not the initial one. */
static bool is_known(const struct sl_clocks_worker *worker)
{
    return worker->clock != 0 || worker->state != SL_CLOCKS_STATE_ACTIVE || worker->seen ||
           worker->joined || worker->began || worker->pushed;
}

/* At once, because clocks would change before the walk reached them. */
static void put_clocks(struct sl_shard *shard)
{
    struct sl_snapshot_appender stream;
    sl_snapshot_appender_init(&stream, &shard->snapshots.blocks, SL_SNAPSHOT_CLOCKS, 0, 0);
    for (uint32_t i = 0; i < SL_LIMIT_WORKERS; i++) {
        const struct sl_clocks_worker *worker = &shard->clocks.workers[i];
        if (!is_known(worker)) {
            continue;
        }
        struct sl_snapshot_block *block;
        while ((block = sl_snapshot_appender_block(&stream)) != NULL &&
               !sl_snapshot_put_clock(block, i, worker)) {
            sl_snapshot_appender_close(&stream);
        }
    }
    sl_snapshot_appender_close(&stream);
}

static int create(struct sl_shard *shard, struct sl_shard_snapshot **out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        const struct sl_shard_table *table = sl_shard_table_in_use(shard, i);
        count += table == NULL ? 0 : table->waiting == NULL ? 1 : 2;
    }
    struct sl_shard_snapshot *snapshot =
        calloc(1, sizeof *snapshot + count * sizeof snapshot->parts[0]);
    if (snapshot == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    snapshot->part_count = count;
    snapshot->number = ++shard->snapshots.number_last;
    snapshot->order = shard->snapshots.order_last;
    *out = snapshot;
    return 0;
}

uint32_t sl_shard_snapshot_iterations(const struct sl_shard *shard)
{
    uint32_t least = SL_CLOCKS_FINISHED;
    bool is_any = false;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        const struct sl_shard_table *table = sl_shard_table_in_use(shard, i);
        if (table != NULL && table->spec.consistency.mode == SL_CONSISTENCY_BSP) {
            const uint32_t clock = sl_clocks_min(&shard->clocks, table->clock_group);
            least = clock < least ? clock : least;
            is_any = true;
        }
    }
    return shard->iteration.due ? shard->iteration.clock : is_any ? least : 0;
}

void sl_shard_snapshot_hold(struct sl_shard *shard, uint32_t iterations)
{
    shard->snapshots.holds = iterations != SL_CLOCKS_FINISHED;
    shard->snapshots.hold_clock = iterations;
}

int sl_shard_snapshot_begin(struct sl_shard *shard, const struct sl_shard_snapshot_options *options)
{
    if (shard->snapshots.current != NULL) {
        return SL_ERR_EXISTS;
    }
    shard->snapshots.wanted = true;
    if (shard->snapshots.pushes_in_part > 0 || shard->iteration.begun) {
        return SL_ERR_AGAIN;
    }
    shard->snapshots.holds = false;
    shard->snapshots.wanted = false;
    struct sl_shard_snapshot *snapshot;
    if (create(shard, &snapshot) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    if (sl_shard_snapshot_base_create(shard, &snapshot->base) != 0) {
        free(snapshot);
        return SL_ERR_NO_MEMORY;
    }
    snapshot->more = options->more;
    snapshot->more_ctx = options->more_ctx;
    shard->snapshots.current = snapshot;
    const size_t bytes_max = bytes_max_for(
        options->bytes_max == 0 ? shard->options.snapshot_bytes_max : options->bytes_max,
        snapshot->part_count);
    sl_snapshot_builder_begin(&shard->snapshots.blocks, bytes_max,
                              block_bytes_for(bytes_max, snapshot->part_count));
    snapshot->is_full =
        options->base == NULL || !sl_shard_snapshot_base_holds(shard, options->base, bytes_max);
    shard->snapshots.blocks.end.shard = shard->options.index;
    shard->snapshots.blocks.end.shard_count = shard->options.count;
    const struct sl_shard_snapshot_base *base = snapshot->is_full ? NULL : options->base;
    uint32_t part = 0;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table *table = sl_shard_table_in_use(shard, i);
        if (table != NULL) {
            part_begin(shard, &snapshot->parts[part++], table, i,
                       sl_shard_snapshot_base_of(base, i, false));
        }
        if (table != NULL && table->waiting != NULL) {
            part_begin(shard, &snapshot->parts[part++], table->waiting, i,
                       sl_shard_snapshot_base_of(base, i, true));
        }
    }
    put_clocks(shard);
    return 0;
}

/* End */

static void part_end(struct sl_shard_snapshot_part *part)
{
    if (!part->walks) {
        return;
    }
    part->walks = false;
    if (part->table->sparse != NULL) {
        sl_copy_sparse_end(&part->sparse);
    } else if (part->table->kv != NULL) {
        sl_copy_kv_end(&part->kv);
    } else {
        sl_copy_dense_end(&part->dense);
    }
}

/* Releases all memory of the snapshot. */
static void snapshot_release(struct sl_shard *shard)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    for (uint32_t i = 0; i < snapshot->part_count; i++) {
        part_end(&snapshot->parts[i]);
    }
    sl_shard_snapshot_buffered_drop(shard);
    sl_snapshot_builder_drop(&shard->snapshots.blocks);
    shard->snapshots.blocks.copy_debt = 0;
}

static void snapshot_fail(struct sl_shard *shard, const char *why)
{
    shard->snapshots.blocks.err = SL_ERR_NO_MEMORY;
    snapshot_release(shard);
    shard->snapshots.current->failed = true;
    shard->snapshots.current->why = why;
}

/* Returns true when there is a snapshot that has not failed. A push without memory for its copy
 * sets err. */
static bool is_whole(struct sl_shard *shard)
{
    if (shard->snapshots.current == NULL || shard->snapshots.current->failed) {
        return false;
    }
    if (shard->snapshots.blocks.err != 0) {
        snapshot_fail(shard, FULL);
        return false;
    }
    return true;
}

bool sl_shard_snapshot_yield(struct sl_shard *shard)
{
    if (shard->snapshots.current == NULL || shard->snapshots.current->kept == 0) {
        return false;
    }
    snapshot_fail(shard,
                  "new pushes that wait for other workers need the room of those that it holds");
    return true;
}

void sl_shard_snapshot_fail_for_policy(struct sl_shard *shard)
{
    if (is_whole(shard) && shard->snapshots.current->phase < SL_SHARD_SNAPSHOT_PHASE_OVER) {
        snapshot_fail(shard, "a restored table got another policy meanwhile");
    }
}

void sl_shard_snapshot_end(struct sl_shard *shard, struct sl_shard_snapshot_base **base)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    const bool is_done = sl_shard_snapshot_state(shard) == SL_SHARD_SNAPSHOT_DONE;
    shard->snapshots.wanted = false;
    if (base != NULL) {
        *base = NULL;
    }
    if (snapshot == NULL) {
        return;
    }
    if (!snapshot->failed) {
        snapshot_release(shard);
    }
    if (base != NULL && is_done) {
        *base = snapshot->base;
    } else {
        sl_shard_snapshot_base_destroy(&snapshot->base);
    }
    free(snapshot);
    shard->snapshots.current = NULL;
}

/* Walk */

static void put_head(struct sl_shard *shard, const struct sl_shard_snapshot_part *part)
{
    struct sl_snapshot_block *block =
        sl_snapshot_builder_open(&shard->snapshots.blocks, SL_SNAPSHOT_TABLE_BYTES);
    if (block == NULL) {
        return;
    }
    const struct sl_snapshot_table table = {
        .spec = part->table->spec,
        .row_count = part->table->sparse != NULL ? part->sparse.marks.count : 0,
        .step = part->step,
        .state = part->state,
        .pulled_rows = part->pulled_rows,
        .pushed_rows = part->pushed_rows,
    };
    sl_snapshot_put_table(block, part->table_id, &table);
    sl_snapshot_builder_close(&shard->snapshots.blocks, block);
}

static bool run_heads(struct sl_shard *shard, uint32_t budget, uint32_t *spent)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    for (; snapshot->part < snapshot->part_count && *spent < budget; snapshot->part++) {
        const struct sl_shard_snapshot_part *part = &snapshot->parts[snapshot->part];
        if (part->table == shard->tables[part->table_id]) { /* not its waiting keys */
            put_head(shard, part);
        }
        *spent += HEAD_COST;
    }
    shard->snapshots.blocks.heads_done = snapshot->part == snapshot->part_count;
    return shard->snapshots.blocks.heads_done;
}

/* Continues one table; returns true when it is done. */
static bool run_part(struct sl_shard_snapshot_part *part, uint32_t budget, uint32_t *spent)
{
    const struct sl_shard_table *table = part->table;
    if (table->sparse != NULL) {
        *spent += sl_copy_sparse_run(&part->sparse, budget);
        return sl_copied_set_done(&part->sparse.marks);
    }
    if (table->kv != NULL) {
        *spent += sl_copy_kv_run(&part->kv, budget);
        return sl_copied_set_done(&part->kv.marks);
    }
    *spent += sl_copy_dense_run(&part->dense, budget);
    return sl_copied_set_done(&part->dense.marks);
}

static bool run_tables(struct sl_shard *shard, uint32_t budget, uint32_t *spent)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    for (; snapshot->part < snapshot->part_count && *spent < budget; snapshot->part++) {
        struct sl_shard_snapshot_part *part = &snapshot->parts[snapshot->part];
        if (!run_part(part, budget - *spent, spent)) {
            return false;
        }
        part_end(part);
        *spent += 1;
    }
    return snapshot->part == snapshot->part_count;
}

static bool put_the_end(struct sl_shard *shard)
{
    struct sl_snapshot_block *block =
        sl_snapshot_builder_open(&shard->snapshots.blocks, SL_SNAPSHOT_END_BYTES);
    if (block == NULL) {
        return false;
    }
    sl_snapshot_put_end(block, &shard->snapshots.blocks.end);
    sl_snapshot_builder_close(&shard->snapshots.blocks, block);
    return true;
}

/* Continues the phase; returns true when it is done. */
static bool run_phase(struct sl_shard *shard, uint32_t budget, uint32_t *spent)
{
    const struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    switch (snapshot->phase) {
    case SL_SHARD_SNAPSHOT_PHASE_HEADS:
        return run_heads(shard, budget, spent);
    case SL_SHARD_SNAPSHOT_PHASE_MORE:
        return snapshot->more == NULL || snapshot->more(snapshot->more_ctx, budget, spent);
    case SL_SHARD_SNAPSHOT_PHASE_BUFFERED:
        return sl_shard_snapshot_buffered_run(shard, budget, spent);
    case SL_SHARD_SNAPSHOT_PHASE_TABLES:
        return run_tables(shard, budget, spent);
    case SL_SHARD_SNAPSHOT_PHASE_END:
        *spent += 1;
        return put_the_end(shard);
    default:
        return false;
    }
}

uint32_t sl_shard_snapshot_run(struct sl_shard *shard, uint32_t budget)
{
    uint32_t spent = 0;
    if (!is_whole(shard)) {
        return 0;
    }
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    while (spent < budget && run_phase(shard, budget, &spent)) {
        snapshot->phase++;
        snapshot->part = 0;
    }
    (void)is_whole(shard);
    return spent;
}

enum sl_shard_snapshot_state sl_shard_snapshot_state(const struct sl_shard *shard)
{
    const struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    const struct sl_snapshot_builder *blocks = &shard->snapshots.blocks;
    if (snapshot == NULL) {
        return shard->snapshots.wanted ? SL_SHARD_SNAPSHOT_PENDING : SL_SHARD_SNAPSHOT_NONE;
    }
    if (snapshot->failed || blocks->err != 0) {
        return SL_SHARD_SNAPSHOT_FAILED;
    }
    return snapshot->phase == SL_SHARD_SNAPSHOT_PHASE_OVER && blocks->full.first == NULL
               ? SL_SHARD_SNAPSHOT_DONE
               : SL_SHARD_SNAPSHOT_RUNNING;
}

bool sl_shard_snapshot_is_full(const struct sl_shard *shard)
{
    return shard->snapshots.current->is_full;
}

struct sl_snapshot_builder *sl_shard_snapshot_blocks(struct sl_shard *shard)
{
    return &shard->snapshots.blocks;
}

bool sl_shard_snapshot_waits(const struct sl_shard *shard)
{
    return sl_shard_snapshot_state(shard) == SL_SHARD_SNAPSHOT_RUNNING &&
           (shard->snapshots.current->phase == SL_SHARD_SNAPSHOT_PHASE_OVER ||
            (shard->snapshots.current->phase != SL_SHARD_SNAPSHOT_PHASE_HEADS &&
             shard->snapshots.current->phase != SL_SHARD_SNAPSHOT_PHASE_END &&
             !sl_snapshot_builder_have_room(&shard->snapshots.blocks)));
}

struct sl_snapshot_block *sl_shard_snapshot_take(struct sl_shard *shard)
{
    return is_whole(shard) ? sl_snapshot_builder_take(&shard->snapshots.blocks) : NULL;
}

void sl_shard_snapshot_put(struct sl_shard *shard, struct sl_snapshot_block *block)
{
    sl_snapshot_builder_put(&shard->snapshots.blocks, block);
}

bool sl_shard_snapshot_has_spare(const struct sl_shard *shard)
{
    return shard->snapshots.blocks.spare != NULL &&
           (sl_shard_snapshot_state(shard) != SL_SHARD_SNAPSHOT_RUNNING ||
            shard->snapshots.current->phase == SL_SHARD_SNAPSHOT_PHASE_OVER);
}

void sl_shard_snapshot_clean(struct sl_shard *shard)
{
    sl_assert(sl_shard_snapshot_has_spare(shard));
    sl_snapshot_builder_clean(&shard->snapshots.blocks);
}

const char *sl_shard_snapshot_why(const struct sl_shard *shard)
{
    sl_assert(sl_shard_snapshot_state(shard) == SL_SHARD_SNAPSHOT_FAILED);
    return shard->snapshots.current->failed ? shard->snapshots.current->why : FULL;
}

size_t sl_shard_snapshot_memory_bytes(const struct sl_shard *shard)
{
    const struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    size_t bytes = shard->snapshots.blocks.bytes;
    for (uint32_t i = 0; snapshot != NULL && i < snapshot->part_count; i++) {
        const struct sl_shard_snapshot_part *part = &snapshot->parts[i];
        if (!part->walks) {
            continue;
        }
        if (part->table->sparse != NULL) {
            bytes += sl_copied_set_memory_bytes(&part->sparse.marks);
        } else if (part->table->kv != NULL) {
            bytes += sl_copied_set_memory_bytes(&part->kv.marks) + part->kv.pieces_bytes;
        } else {
            bytes += sl_copied_set_memory_bytes(&part->dense.marks);
        }
    }
    return bytes;
}
