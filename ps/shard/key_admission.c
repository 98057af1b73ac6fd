#include "ps/shard/key_admission.h"

#include <stdlib.h>

#include "core/limits.h"
#include "ps/shard/lookup.h"
#include "ps/shard/push.h"

/* A note of a push of a table with BLOOM is the index of the key in the push, and in the low bits
 * which counters it has raised. */
static_assert(SL_LIMIT_FRAME_PAYLOAD_BYTES / sizeof(uint64_t) <= UINT32_MAX >>
                  SL_KEY_FILTER_HASHES_MAX,
              "the index of each key fits into a note");

static int create_filter(const struct sl_shard *shard, struct sl_shard_table *table,
                         size_t bytes_max)
{
    const uint64_t blocks = sl_key_filter_block_count(&table->spec.policy);
    uint64_t first, end;
    sl_key_filter_range(blocks, shard->options.index, shard->options.count, &first, &end);
    table->hash_count = sl_key_filter_hash_count(&table->spec.policy);
    table->waiting->spec = (struct sl_table_spec){.kind = SL_TABLE_DENSE,
                                                  .length = blocks * SL_PARTITION_BLOCK_ELEMENTS};
    return sl_dense_table_create(&table->waiting->spec, first * SL_PARTITION_BLOCK_ELEMENTS,
                                 (end - first) * SL_PARTITION_BLOCK_ELEMENTS, bytes_max,
                                 &table->waiting->dense);
}

int sl_shard_key_admission_create(const struct sl_shard *shard, struct sl_shard_table *table,
                                  size_t bytes_max)
{
    const struct sl_policy_spec *policy = &table->spec.policy;
    table->admits = sl_policy_has_admission(policy);
    if (!table->admits || policy->admission == SL_ADMISSION_PROBABILITY) {
        return 0;
    }
    struct sl_shard_table *waiting = calloc(1, sizeof *waiting);
    if (waiting == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    waiting->optimizer = sl_optimizer_find(SL_OPTIMIZER_SUM, SL_OPTIMIZER_SIMD_BEST);
    waiting->key_cost = 1;
    table->waiting = waiting;
    if (policy->admission == SL_ADMISSION_BLOOM) {
        return create_filter(shard, table, bytes_max);
    }
    waiting->spec = (struct sl_table_spec){
        .kind = SL_TABLE_SPARSE,
        .policy = {.ttl_steps = policy->admit_age_steps, .order = SL_POLICY_LRU}};
    sl_shard_eviction_init(waiting);
    return sl_sparse_table_create(&waiting->spec, bytes_max, &waiting->sparse);
}

/* The waiting keys of a push in progress are noted at the end of its scratch's place for created
 * rows: a key of the push takes one place at most. */
static const uint32_t *notes_end(const struct sl_shard_request *request)
{
    return request->push.scratch->created + request->view.section.key_count;
}

static bool is_small(const struct sl_shard_table *table, const struct sl_shard_request *request)
{
    return sl_shard_push_is_small(&request->view.section, table->spec.dim);
}

static uint32_t notes_count(const struct sl_shard_request *request)
{
    return (uint32_t)(notes_end(request) - request->push.waiting);
}

/* Creates the key's row, if an earlier key of the push has not. Errors: NO_MEMORY. */
static int create_row(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, uint64_t key, uint32_t *record)
{
    return sl_shard_find(shard, table, &key, 1, true, record, &request->push.created_end);
}

/* Errors: NO_MEMORY (the key is not counted). */
static int filter_key(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, const uint64_t *key, uint32_t *record)
{
    const struct sl_key_filter filter = sl_shard_key_filter(table);
    const uint32_t wanted = sl_policy_admit_count(&table->spec.policy, *key);
    const uint32_t raised =
        wanted <= 1 ? 0 : sl_key_filter_add(&filter, *key, table->step + 1, wanted - 1);
    if (raised == 0) {
        return create_row(shard, table, request, *key, record);
    }
    const uint32_t index = (uint32_t)(key - request->view.keys);
    *--request->push.waiting = index << SL_KEY_FILTER_HASHES_MAX | raised;
    return 0;
}

/* Errors: NO_MEMORY (the key is not counted). */
static int count_key(struct sl_shard *shard, struct sl_shard_table *table,
                     struct sl_shard_request *request, uint64_t key, uint32_t *record)
{
    struct sl_sparse_table *waiting = table->waiting->sparse;
    const uint32_t wanted = sl_policy_admit_count(&table->spec.policy, key);
    uint32_t at;
    if (wanted <= 1) {
        return create_row(shard, table, request, key, record);
    }
    int err = sl_shard_find(shard, table->waiting, &key, 1, true, &at, NULL);
    if (err != 0) {
        return err;
    }
    const struct sl_row *row = sl_sparse_table_record(waiting, at);
    const uint32_t count = row->count + 1;
    if (count < wanted) {
        *--request->push.waiting = at;
    } else if ((err = create_row(shard, table, request, key, record)) != 0) {
        sl_sparse_table_erase_unvisited(waiting, &at, 1);
        return err;
    }
    if (count <= wanted) { /* above it, the key occurs again in the push */
        sl_sparse_table_note(waiting, at, count, row->last_step);
    }
    return 0;
}

static int admit_key(struct sl_shard *shard, struct sl_shard_table *table,
                     struct sl_shard_request *request, const uint64_t *key, uint32_t *record)
{
    switch (table->spec.policy.admission) {
    case SL_ADMISSION_BLOOM:
        return filter_key(shard, table, request, key, record);
    case SL_ADMISSION_PROBABILITY:
        return sl_policy_draws(&table->spec.policy, table->spec.initializer.seed, *key,
                               table->step + 1)
                   ? create_row(shard, table, request, *key, record)
                   : 0;
    case SL_ADMISSION_COUNT:
    default:
        return count_key(shard, table, request, *key, record);
    }
}

int sl_shard_key_admission_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                                  struct sl_shard_request *request, struct sl_shard_slice *slice,
                                  const uint64_t *keys, uint32_t count, uint32_t *records)
{
    bool is_complete;
    int err =
        sl_shard_lookup_existing(shard, table, request, slice, keys, count, records, &is_complete);
    for (uint32_t i = 0; err == 0 && !is_complete && i < count; i++) {
        if (records[i] == SL_ROW_NONE) {
            err = admit_key(shard, table, request, &keys[i], &records[i]);
            slice->spent++;
        }
    }
    return err == SL_ERR_NO_MEMORY ? sl_shard_fail_memory(shard, request, slice) : err;
}

static void undo_filter(struct sl_shard_table *table, const struct sl_shard_request *request,
                        uint32_t note)
{
    const struct sl_key_filter filter = sl_shard_key_filter(table);
    sl_key_filter_take_back(&filter, request->view.keys[note >> SL_KEY_FILTER_HASHES_MAX],
                            table->step + 1, note & ((1U << SL_KEY_FILTER_HASHES_MAX) - 1));
}

static void undo_count(struct sl_shard_table *table, uint32_t record)
{
    const struct sl_row *row = sl_sparse_table_record(table->waiting->sparse, record);
    sl_sparse_table_note(table->waiting->sparse, record, row->count - 1, row->last_step);
    sl_sparse_table_erase_unvisited(table->waiting->sparse, &record, 1);
}

bool sl_shard_key_admission_undo(struct sl_shard_table *table, struct sl_shard_request *request,
                                 struct sl_shard_slice *slice)
{
    while (notes_count(request) > 0) {
        if (sl_shard_slice_left(slice) == 0 && !is_small(table, request)) {
            return false;
        }
        const uint32_t note = *request->push.waiting++;
        if (sl_shard_waiting_keys(table) == NULL) {
            undo_filter(table, request, note);
        } else {
            undo_count(table, note);
        }
        slice->spent++;
    }
    return true;
}

void sl_shard_key_admission_undo_created(struct sl_shard_table *table, const uint32_t *created,
                                         uint32_t count)
{
    for (uint32_t i = 0; i < count && sl_shard_waiting_keys(table) != NULL; i++) {
        const uint64_t key = sl_sparse_table_record(table->sparse, created[i])->key;
        uint32_t record;
        if (sl_sparse_table_find(table->waiting->sparse, &key, 1, &record)) {
            undo_count(table, record);
        }
    }
}

bool sl_shard_key_admission_apply(struct sl_shard_table *table, struct sl_shard_request *request,
                                  struct sl_shard_slice *slice)
{
    const uint32_t step = (uint32_t)request->push.optimizer.step;
    while (notes_count(request) > 0) {
        if (sl_shard_slice_left(slice) == 0 && !is_small(table, request)) {
            return false;
        }
        const uint32_t record = *request->push.waiting++;
        const struct sl_row *row = sl_sparse_table_record(table->waiting->sparse, record);
        sl_sparse_table_note(table->waiting->sparse, record, row->count, step);
        slice->spent++;
    }
    return true;
}

void sl_shard_key_admission_pushed(struct sl_shard_table *table, const uint32_t *records,
                                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_row *row = sl_sparse_table_record(table->sparse, records[i]);
        if (row->count > 0 || row->last_step > 0) {
            continue;
        }
        table->admitted++;
        if (sl_shard_waiting_keys(table) != NULL) {
            sl_sparse_table_erase(table->waiting->sparse, &row->key, 1);
        }
    }
}
