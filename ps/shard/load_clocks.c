/* Restores clocks and buffered pushes, for the same shard only. For another shard, these blocks are
 * only checked. */
#include <string.h>

#include "core/assert.h"
#include "ps/shard/iteration.h"
#include "ps/shard/load_internal.h"
#include "ps/shard/lookup.h"

#define ELEMENTS_PER_COST 64
#define KEYS_PER_COST     2

void sl_shard_load_clocks_begin(struct sl_shard *shard)
{
    sl_assert(!shard->iteration.in_entry);
    shard->iteration = (struct sl_shard_iteration_state){0};
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table *table = shard->tables[i];
        for (uint32_t w = 0; table != NULL && w < table->queue_count; w++) {
            struct sl_shard_buffered_push *next;
            for (struct sl_shard_buffered_push *at = table->buffered[w].first; at != NULL;
                 at = next) {
                next = at->next;
                sl_shard_push_buffer_put(&shard->push_buffer, at);
                table->buffered_count--;
            }
            table->buffered[w] = (struct sl_shard_push_buffer_queue){0};
        }
    }
    sl_clocks_load_begin(&shard->clocks);
}

int sl_shard_load_clock(struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    struct sl_clocks_worker clock;
    uint32_t worker;
    if (!sl_snapshot_take_clock(&load->cursor, &worker, &clock)) {
        return sl_shard_load_fail_record(load, slice);
    }
    load->left--;
    slice->spent++;
    if (load->same) {
        sl_clocks_load(&load->shard->clocks, worker, &clock);
    }
    return SL_SHARD_DONE;
}

/* Buffered pushes */

/* A piece, with its keys and gradients. */
struct piece {
    struct sl_snapshot_buffered_push head;
    const uint64_t *keys;
    const float *gradients;
};

static bool is_inside(const struct sl_shard_table *table,
                      const struct sl_snapshot_buffered_push *head)
{
    if (table->dense == NULL || head->count > UINT32_MAX) {
        return head->count <= UINT32_MAX;
    }
    const uint64_t start = sl_dense_table_start(table->dense);
    const uint64_t count = sl_dense_table_element_count(table->dense);
    return head->start >= start && head->count <= count &&
           head->start - start <= count - head->count;
}

/* First piece of a push: allocates the whole push. */
static int begin_buffered(struct sl_shard_load *load, struct sl_shard_table *table,
                          const struct sl_snapshot_buffered_push *head,
                          struct sl_shard_slice *slice)
{
    struct sl_shard *shard = load->shard;
    if (load->buffered != NULL || head->first != 0 || !is_inside(table, head)) {
        return sl_shard_load_fail_record(load, slice);
    }
    if (sl_shard_iteration_reserve(table, head->worker + 1) != 0) {
        return sl_shard_load_fail_memory(load, slice);
    }
    const struct sl_shard_push_buffer_queue *queue = &table->buffered[head->worker];
    if (queue->first != NULL && queue->last->clock > head->clock) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT,
                                  "pushes of worker/%u go back to iteration %u", head->worker,
                                  head->clock);
    }
    const bool is_sparse = table->sparse != NULL;
    load->buffered =
        sl_shard_push_buffer_get(&shard->push_buffer, is_sparse ? (uint32_t)head->count : 0,
                                 is_sparse ? head->count * table->spec.dim : head->count);
    if (load->buffered == NULL) {
        return sl_shard_load_fail(load, slice, SL_ERR_NO_MEMORY,
                                  "pushes that wait for other workers fill the %zu bytes reserved",
                                  shard->push_buffer.bytes_max);
    }
    load->buffered->clock = head->clock;
    load->buffered->start = head->start;
    load->buffered->rate = head->rate;
    load->buffered->count = (uint32_t)head->count;
    load->buffered_table = load->block->table_id;
    load->buffered_worker = head->worker;
    load->buffered_done = 0;
    return 0;
}

/* Returns true when the piece is the next one of the current push. */
static bool goes_on(const struct sl_shard_load *load, const struct sl_snapshot_buffered_push *head)
{
    const struct sl_shard_buffered_push *buffered = load->buffered;
    return load->buffered_table == load->block->table_id && load->buffered_worker == head->worker &&
           load->buffered_done == head->first && buffered->clock == head->clock &&
           buffered->start == head->start && buffered->count == head->count &&
           buffered->rate == head->rate;
}

/* Looks up the record indexes of the piece's keys, in slices. */
static int find_keys(struct sl_shard_load *load, struct sl_shard_table *table,
                     const struct piece *piece, struct sl_shard_slice *slice)
{
    while (load->piece_done < piece->head.here) {
        if (sl_shard_slice_left(slice) == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count = sl_shard_batch(piece->head.here - load->piece_done, UINT32_MAX);
        const uint64_t *keys = piece->keys + load->piece_done;
        if (!sl_shard_owns(load->shard, keys, count)) {
            return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "a key is not of that shard");
        }
        /* Rows of these keys may come later. sl_shard_find also initialises missing rows, so a row
         * that the snapshot wrongly lacks is valid. */
        if (sl_shard_find(load->shard, table, keys, count, true,
                          load->buffered->records + load->buffered_done + load->piece_done,
                          NULL) != 0) {
            return sl_shard_load_fail_memory(load, slice);
        }
        load->piece_done += count;
        slice->spent += count / KEYS_PER_COST;
    }
    return SL_SHARD_DONE;
}

static void end_buffered(struct sl_shard_load *load, struct sl_shard_table *table)
{
    if (load->buffered_done == load->buffered->count) {
        sl_shard_iteration_add(load->shard, table, load->buffered_worker, load->buffered);
        load->buffered = NULL;
    }
}

static int load_piece(struct sl_shard_load *load, struct sl_shard_table *table,
                      const struct piece *piece, struct sl_shard_slice *slice)
{
    const uint32_t dim = table->sparse != NULL ? table->spec.dim : 1;
    if (load->piece_done == 0 && piece->head.first == 0) {
        const int err = begin_buffered(load, table, &piece->head, slice);
        if (err != 0) {
            return err;
        }
    } else if (load->buffered == NULL || !goes_on(load, &piece->head)) {
        return sl_shard_load_fail_record(load, slice);
    }
    if (table->sparse != NULL) {
        const int result = find_keys(load, table, piece, slice);
        if (result != SL_SHARD_DONE) {
            return result;
        }
    }
    memcpy(load->buffered->gradients + load->buffered_done * dim, piece->gradients,
           (size_t)piece->head.here * dim * sizeof(float));
    slice->spent += piece->head.here * dim / ELEMENTS_PER_COST + 1;
    load->buffered_done += piece->head.here;
    load->piece_done = 0;
    end_buffered(load, table);
    return SL_SHARD_DONE;
}

int sl_shard_load_buffered_push(struct sl_shard_load *load, struct sl_shard_table *table,
                                struct sl_shard_slice *slice)
{
    struct piece piece;
    struct sl_bytes cursor = load->cursor;
    const uint32_t dim = table->sparse != NULL ? table->spec.dim : 0;
    if (!sl_snapshot_take_buffered_push(&cursor, dim, &piece.head, &piece.keys, &piece.gradients) ||
        table->spec.consistency.mode != SL_CONSISTENCY_BSP) {
        return sl_shard_load_fail_record(load, slice);
    }
    int result = SL_SHARD_DONE;
    if (load->same) {
        result = load_piece(load, table, &piece, slice);
    } else {
        slice->spent++;
    }
    if (result == SL_SHARD_DONE) {
        load->cursor = cursor;
        load->left--;
    }
    return result;
}

/* End */

/* Checks that buffered pushes are of workers in the table's clock group, and of iterations that the
 * worker has reached. */
static int check_queues(const struct sl_shard_load *load, const struct sl_shard_table *table,
                        struct sl_shard_slice *slice)
{
    const struct sl_clocks *clocks = &load->shard->clocks;
    for (uint32_t worker = 0; worker < table->queue_count; worker++) {
        if (table->buffered[worker].first == NULL) {
            continue;
        }
        const struct sl_shard_buffered_push *last = table->buffered[worker].last;
        if (!sl_clocks_belongs(clocks, table->clock_group, worker) ||
            last->clock > clocks->workers[worker].clock) {
            return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT,
                                      "worker/%u, at iteration %u, has pushed to table %s in "
                                      "iteration %u",
                                      worker, clocks->workers[worker].clock, table->spec.name,
                                      last->clock);
        }
    }
    return 0;
}

int sl_shard_load_clocks_end(struct sl_shard_load *load, struct sl_shard_slice *slice)
{
    struct sl_shard *shard = load->shard;
    sl_clocks_load_end(&shard->clocks);
    if (load->buffered != NULL) {
        return sl_shard_load_fail(load, slice, SL_ERR_CORRUPT, "a buffered push is not complete");
    }
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table *table = shard->tables[i];
        if (table == NULL || table->spec.consistency.mode != SL_CONSISTENCY_BSP) {
            continue;
        }
        if (sl_shard_iteration_reserve(table, shard->clocks.joined_end) != 0) {
            return sl_shard_load_fail_memory(load, slice);
        }
        const int err = check_queues(load, table, slice);
        if (err != 0) {
            return err;
        }
    }
    sl_shard_iteration_update(shard);
    return 0;
}

void sl_shard_load_new_job(struct sl_shard *shard)
{
    for (uint32_t worker = 0; worker < SL_LIMIT_WORKERS; worker++) {
        if (sl_clocks_is_active(&shard->clocks, worker)) {
            sl_shard_worker_left(shard, worker); /* expected, but never connected */
        }
    }
    while (sl_shard_iteration_due(shard)) {
        (void)sl_shard_apply_iteration(shard, UINT32_MAX);
    }
    sl_clocks_load_begin(&shard->clocks);
    sl_clocks_load_end(&shard->clocks);
    sl_shard_tables_drop(shard, SL_SHARD_LOAD_JOB_TABLES);
}

void sl_shard_load_allow_ahead(struct sl_shard *shard)
{
    sl_clocks_expect_again(&shard->clocks);
    sl_clocks_allow_ahead(&shard->clocks);
}
