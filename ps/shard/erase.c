#include "ps/shard/erase.h"

#include "ps/shard/lookup.h"
#include "ps/shard/push.h"
#include "ps/shard/snapshot_hooks.h"

#define CHECKS_PER_COST 8 /* keys whose owner is checked */
#define TIDY_SHARE      2 /* records tidied for each key erased */

int sl_shard_erase_begin(struct sl_shard *shard, struct sl_shard_request *request)
{
    if (shard->large.owner != NULL) {
        return SL_SHARD_AGAIN;
    }
    shard->large.owner = request;
    request->push.scratch = &shard->large;
    return SL_SHARD_DONE;
}

static int check_keys(const struct sl_shard *shard, struct sl_shard_request *request,
                      struct sl_shard_slice *slice)
{
    const uint32_t key_count = request->view.section.key_count;
    while (request->done < key_count) {
        if (sl_shard_slice_left(slice) == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count = sl_shard_batch(key_count - request->done, UINT32_MAX);
        const int err =
            sl_shard_check_owner(shard, request, slice, request->view.keys + request->done, count);
        if (err != 0) {
            return err;
        }
        request->done += count;
        slice->spent += (count + CHECKS_PER_COST - 1) / CHECKS_PER_COST;
    }
    return SL_SHARD_DONE;
}

/* While a snapshot is pending, no erase starts that needs another slice. */
static bool is_held(const struct sl_shard *shard, const struct sl_shard_table *table,
                    const struct sl_shard_request *request, const struct sl_shard_slice *slice)
{
    const uint64_t cost = (uint64_t)request->view.section.key_count * table->key_cost;
    return shard->snapshots.wanted && cost > sl_shard_slice_left(slice);
}

static int erase_rows(struct sl_shard_table *table, struct sl_shard_request *request,
                      struct sl_shard_slice *slice)
{
    const uint32_t key_count = request->view.section.key_count;
    while (request->done < key_count) {
        const uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count =
            sl_shard_batch(key_count - request->done, (uint64_t)left / table->key_cost + 1);
        const uint64_t *keys = request->view.keys + request->done;
        sl_sparse_table_erase(table->sparse, keys, count);
        if (sl_shard_waiting_keys(table) != NULL) {
            sl_sparse_table_erase(table->waiting->sparse, keys, count);
        }
        request->done += count;
        slice->spent += count * table->key_cost;
    }
    return SL_SHARD_DONE;
}

int sl_shard_erase_run(struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    if (request->phase == SL_SHARD_PHASE_COLLECT) {
        const int result = check_keys(shard, request, slice);
        if (result != SL_SHARD_DONE) {
            return result;
        }
        if (is_held(shard, table, request, slice)) {
            return SL_SHARD_AGAIN;
        }
        request->phase = SL_SHARD_PHASE_APPLY;
        request->done = 0;
    }
    table->holds_erased |= table->buffered_count > 0;
    const uint64_t before = request->done;
    const int result = erase_rows(table, request, slice);
    slice->spent += sl_shard_snapshot_copy_debt(shard);
    slice->spent +=
        sl_shard_tidy(shard, table, request, TIDY_SHARE * (uint32_t)(request->done - before));
    sl_shard_count_memory(shard, table);
    if (result == SL_SHARD_DONE) {
        sl_shard_push_drop(shard, request);
    } else {
        sl_shard_part_begin(shard, request);
    }
    return result;
}
