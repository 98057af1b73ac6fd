#include "ps/shard/shard.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "net/session/message_spec.h"
#include "ps/shard/iteration.h"
#include "ps/shard/key_admission.h"
#include "ps/shard/lookup.h"
#include "ps/shard/section.h"
#include "ps/shard/snapshot.h"
#include "ps/shard/snapshot_hooks.h"
#include "ps/shard/table_drop.h"
#include "ps/shard/whole.h"

#define PUSH_BUFFER_BYTES_DEFAULT ((size_t)256 << 20)

/* Most keys or gradients that a frame can carry: INT8 has a byte each. */
#define FRAME_KEYS_MAX            (SL_LIMIT_FRAME_PAYLOAD_BYTES / sizeof(uint64_t))
#define FRAME_FLOATS_MAX          SL_LIMIT_FRAME_PAYLOAD_BYTES

static_assert(SL_CLOCKS_FINISHED == SL_REQUEST_CLOCK_FINISHED, "one value for a finished clock");

int sl_shard_create(const struct sl_shard_options *options, struct sl_shard **out)
{
    sl_assert(options->index < options->count);
    sl_assert(options->count <= SL_LIMIT_SHARDS);
    struct sl_shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    shard->options = *options;
    sl_list_init(&shard->wholes);
    sl_hot_keys_sampler_init(&shard->sampler, options->index);
    if (shard->options.push_buffer_bytes_max == 0) {
        shard->options.push_buffer_bytes_max = PUSH_BUFFER_BYTES_DEFAULT;
    }
    if (sl_clocks_init(&shard->clocks) != 0 ||
        sl_shard_scratch_init(&shard->small, SL_SHARD_SMALL_KEYS, SL_SHARD_SMALL_FLOATS) != 0 ||
        sl_shard_scratch_init(&shard->large, FRAME_KEYS_MAX, FRAME_FLOATS_MAX) != 0) {
        sl_shard_destroy(&shard);
        return SL_ERR_NO_MEMORY;
    }
    *out = shard;
    return 0;
}

static void table_destroy(struct sl_shard_table **table)
{
    struct sl_shard_storage storage = sl_shard_table_take_storage(*table);
    sl_shard_storage_free(&storage);
    free((*table)->buffered);
    free(*table);
    *table = NULL;
}

bool sl_shard_has_tables(const struct sl_shard *shard)
{
    return shard->table_count > 0;
}

void sl_shard_destroy(struct sl_shard **shard)
{
    sl_shard_snapshot_end(*shard, NULL);
    while (sl_shard_snapshot_has_spare(*shard)) {
        sl_shard_snapshot_clean(*shard);
    }
    for (uint32_t i = 0; i < (*shard)->table_count; i++) {
        if ((*shard)->tables[i] != NULL) {
            table_destroy(&(*shard)->tables[i]);
        }
    }
    sl_shard_whole_fini(*shard);
    sl_shard_push_buffer_fini(&(*shard)->push_buffer);
    sl_shard_scratch_fini(&(*shard)->large);
    sl_shard_scratch_fini(&(*shard)->small);
    sl_clocks_fini(&(*shard)->clocks);
    free(*shard);
    *shard = NULL;
}

/* Results of a check: */
enum { CREATES, IS_SAME, GETS_POLICY };

/* Checks an open against the existing tables. */
static int table_check(const struct sl_shard *shard, uint32_t table_id,
                       const struct sl_table_spec *spec, struct sl_reason *reason)
{
    if (table_id >= SL_LIMIT_TABLES) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "table id %u: accepts 0 to %d", table_id,
                              SL_LIMIT_TABLES - 1);
    }
    int err = sl_message_check_spec(spec, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < shard->table_count; i++) {
        const struct sl_shard_table *other = shard->tables[i];
        if (other == NULL || other->dropped || i == table_id ||
            strcmp(other->spec.name, spec->name) != 0) {
            continue;
        }
        return sl_reason_fail(reason, SL_ERR_EXISTS, "table %s has id %u on this shard, not %u",
                              spec->name, i, table_id);
    }
    const struct sl_shard_table *table = shard->tables[table_id];
    if (table == NULL) {
        return CREATES;
    }
    if (table->dropped) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "table %s was dropped", spec->name);
    }
    if (table->eviction.is_loaded && sl_message_specs_differ_in_policy(&table->spec, spec)) {
        return GETS_POLICY;
    }
    err = sl_message_compare_specs(&table->spec, spec, reason);
    return err == 0 ? IS_SAME : err;
}

static uint32_t key_cost(uint32_t dim)
{
    return dim == 0 ? 1 : (dim + SL_SHARD_ELEMENTS_PER_KEY - 1) / SL_SHARD_ELEMENTS_PER_KEY;
}

static bool is_beyond_limit(const struct sl_shard *shard, size_t more)
{
    const size_t bytes_max = shard->options.memory_bytes_max;
    return bytes_max != 0 &&
           (shard->memory_bytes > bytes_max || more > bytes_max - shard->memory_bytes);
}

/* Returns the memory of a table besides its values, if the limit covers it: BSP queues for all
 * workers that may join, and snapshot blocks. */
static size_t beside_memory(const struct sl_shard *shard, const struct sl_table_spec *spec)
{
    const bool has_queues = spec->consistency.mode == SL_CONSISTENCY_BSP;
    const size_t queues =
        has_queues ? SL_LIMIT_WORKERS * sizeof(struct sl_shard_push_buffer_queue) : 0;
    const size_t tables = sl_policy_has_admission(&spec->policy) ? 2 : 1; /* its waiting keys */
    const size_t blocks =
        shard->options.snapshot_bytes_max > 0 ? tables * SL_SHARD_SNAPSHOT_TABLE_BYTES : 0;
    return shard->options.limit_covers_all ? queues + blocks : 0;
}

static int table_create(const struct sl_shard *shard, uint32_t table_id,
                        struct sl_shard_table *table)
{
    const struct sl_table_spec *spec = &table->spec;
    const size_t left = sl_shard_memory_left(shard);
    if (left == 0) {
        return SL_ERR_NO_MEMORY;
    }
    const size_t bytes_max = left == SIZE_MAX ? 0 : left;
    if (spec->kind == SL_TABLE_SPARSE) {
        const int err = sl_sparse_table_create(spec, bytes_max, &table->sparse);
        if (err != 0) {
            return err;
        }
        const size_t taken = sl_sparse_table_memory_bytes(table->sparse);
        const size_t rest = bytes_max > taken ? bytes_max - taken : 0;
        return bytes_max > 0 && rest == 0 ? SL_ERR_NO_MEMORY
                                          : sl_shard_key_admission_create(shard, table, rest);
    }
    if (spec->kind == SL_TABLE_KV) {
        return sl_kv_table_create(spec->dim, spec->values, bytes_max, &table->kv);
    }
    uint32_t range =
        sl_partition_range_of_shard(table_id, shard->options.index, shard->options.count);
    uint64_t start = sl_partition_range_start(spec->length, shard->options.count, range);
    uint64_t end = sl_partition_range_start(spec->length, shard->options.count, range + 1);
    return sl_dense_table_create(spec, start, end - start, bytes_max, &table->dense);
}

static size_t table_memory(const struct sl_shard_table *table)
{
    return table->sparse != NULL ? sl_sparse_table_memory_bytes(table->sparse)
           : table->kv != NULL   ? sl_kv_table_memory_bytes(table->kv)
                                 : sl_dense_table_memory_bytes(table->dense);
}

static int push_buffer_init(struct sl_shard *shard, const struct sl_shard_table *table)
{
    const size_t bytes = shard->options.push_buffer_bytes_max;
    const size_t counted = shard->options.limit_covers_all ? bytes : 0;
    if (counted > 0 && is_beyond_limit(shard, counted + table_memory(table))) {
        return SL_ERR_NO_MEMORY;
    }
    int err = sl_shard_push_buffer_init(&shard->push_buffer, bytes);
    shard->memory_bytes += err == 0 ? counted : 0;
    return err;
}

/* Prepares clocks and the push buffer for the table. */
static int consistency_init(struct sl_shard *shard, struct sl_shard_table *table)
{
    const struct sl_consistency_spec *consistency = &table->spec.consistency;
    if (consistency->mode == SL_CONSISTENCY_BSP) {
        uint32_t joined_end = shard->clocks.joined_end;
        uint32_t queues =
            joined_end > consistency->worker_count ? joined_end : consistency->worker_count;
        int err = sl_shard_iteration_reserve(table, queues);
        if (err == 0 && shard->push_buffer.base == NULL) {
            err = push_buffer_init(shard, table);
        }
        if (err != 0) {
            return err;
        }
    }
    /* Last, because a group is permanent: there is room for one per table. */
    if (consistency->worker_count > 0) {
        table->clock_group = sl_clocks_group(&shard->clocks, consistency->worker_count);
    }
    return 0;
}

/* Returns true when the keys that wait can go on under the new policy. */
static bool keeps_waiting_keys(const struct sl_policy_spec *old, const struct sl_policy_spec *new)
{
    const bool waits[] = {
        sl_policy_has_admission(old) && old->admission != SL_ADMISSION_PROBABILITY,
        sl_policy_has_admission(new) && new->admission != SL_ADMISSION_PROBABILITY};
    if (!waits[0] || !waits[1]) {
        return waits[0] == waits[1];
    }
    return old->admission == new->admission &&
           (old->admission != SL_ADMISSION_BLOOM ||
            (sl_key_filter_block_count(old) == sl_key_filter_block_count(new) &&
             sl_key_filter_hash_count(old) == sl_key_filter_hash_count(new)));
}

/* Gives the table, whose policy is new, another table of waiting keys, without any. */
static int replace_waiting_keys(struct sl_shard *shard, struct sl_shard_table *table)
{
    struct sl_shard_table fresh = {.spec = table->spec, .sparse = table->sparse};
    const size_t left = sl_shard_memory_left(shard);
    int err = left == 0 ? SL_ERR_NO_MEMORY
                        : sl_shard_key_admission_create(shard, &fresh, left == SIZE_MAX ? 0 : left);
    struct sl_shard_table *gone = err == 0 ? table->waiting : fresh.waiting;
    if (err == 0) {
        table->waiting = fresh.waiting;
        table->hash_count = fresh.hash_count;
        shard->memory_bytes -= gone == NULL ? 0 : gone->counted.memory;
        if (table->waiting != NULL) {
            table->waiting->counted.memory = table_memory(table->waiting);
            shard->memory_bytes += table->waiting->counted.memory;
        }
    }
    if (gone != NULL) {
        table_destroy(&gone);
    }
    return err;
}

/* A push of several slices has judged some of its keys. Buffered pushes that are due belong to the
 * time before. */
static bool is_using_policy(const struct sl_shard *shard, const struct sl_shard_table *table,
                            const struct sl_policy_spec *policy)
{
    const bool admits = table->admits || sl_policy_has_admission(policy);
    return (admits && shard->large.owner != NULL) ||
           (table->spec.consistency.mode == SL_CONSISTENCY_BSP && shard->iteration.due);
}

static int replace_policy(struct sl_shard *shard, struct sl_shard_table *table,
                          const struct sl_policy_spec *policy, struct sl_reason *reason)
{
    const struct sl_policy_spec old = table->spec.policy;
    if (is_using_policy(shard, table, policy)) {
        return sl_reason_fail(reason, SL_ERR_CANCELLED,
                              "a push to table %s, with the policy of its checkpoint, is in "
                              "progress on shard %u: open it again",
                              table->spec.name, shard->options.index);
    }
    const size_t beside = beside_memory(shard, &table->spec);
    const bool evicted = sl_shard_eviction_has(&table->spec);
    sl_shard_snapshot_fail_for_policy(shard);
    table->spec.policy = *policy;
    if (!keeps_waiting_keys(&old, policy) && replace_waiting_keys(shard, table) != 0) {
        table->spec.policy = old;
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                              "no memory for the keys of table %s that wait, on shard %u",
                              table->spec.name, shard->options.index);
    }
    table->admits = sl_policy_has_admission(policy);
    if (sl_shard_waiting_keys(table) != NULL) {
        table->waiting->spec.policy.ttl_steps = policy->admit_age_steps;
        sl_shard_eviction_init(table->waiting);
    }
    struct sl_shard_eviction eviction = {.second = table->eviction.second,
                                         .round_second = table->eviction.second,
                                         .round_step = table->step,
                                         .policies = table->eviction.policies + 1};
    memcpy(eviction.evicted, table->eviction.evicted, sizeof eviction.evicted);
    table->eviction = eviction;
    sl_shard_eviction_init(table);
    shard->evicting_count += sl_shard_eviction_has(&table->spec);
    shard->evicting_count -= evicted;
    const size_t more = beside_memory(shard, &table->spec) - beside; /* modulo 2^64 */
    table->counted.beside += more;
    shard->memory_bytes += more;
    return 0;
}

static uint64_t table_count(const struct sl_shard_table *table)
{
    return table->sparse != NULL ? sl_sparse_table_row_count(table->sparse)
           : table->kv != NULL   ? sl_kv_table_key_count(table->kv)
                                 : sl_dense_table_element_count(table->dense);
}

static void table_place(struct sl_shard *shard, uint32_t table_id, struct sl_shard_table *table)
{
    shard->tables[table_id] = table;
    shard->table_count = table_id >= shard->table_count ? table_id + 1 : shard->table_count;
}

int sl_shard_table_open(struct sl_shard *shard, uint32_t table_id, const struct sl_table_spec *spec,
                        struct sl_reason *reason)
{
    const int check = table_check(shard, table_id, spec, reason);
    if (check == GETS_POLICY) {
        return replace_policy(shard, shard->tables[table_id], &spec->policy, reason);
    }
    if (check != CREATES) {
        return check == IS_SAME ? 0 : check;
    }
    struct sl_shard_table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        goto no_memory;
    }
    table->counted.beside = beside_memory(shard, spec);
    if (is_beyond_limit(shard, table->counted.beside)) {
        free(table);
        goto no_memory;
    }
    shard->memory_bytes += table->counted.beside;
    table->spec = *spec;
    table->key_cost = key_cost(spec->dim);
    sl_shard_eviction_init(table);
    table->optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_BEST);
    sl_assert(table->optimizer != NULL);
    sl_optimizer_state_init(&spec->optimizer, &table->state);
    if (table_create(shard, table_id, table) != 0 || consistency_init(shard, table) != 0) {
        shard->memory_bytes -= table->counted.beside;
        table_destroy(&table);
        goto no_memory;
    }
    table->counted.memory = table_memory(table);
    shard->memory_bytes += table->counted.memory;
    if (table->waiting != NULL) {
        table->waiting->counted.memory = table_memory(table->waiting);
        shard->memory_bytes += table->waiting->counted.memory;
    }
    shard->evicting_count += sl_shard_eviction_has(&table->spec);
    table_place(shard, table_id, table);
    return 0;

no_memory:
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                          "no memory for table %s on shard %u: the tables have %zu bytes, %s",
                          spec->name, shard->options.index, shard->memory_bytes,
                          sl_shard_limit_text(shard, (char[64]){0}));
}

int sl_shard_table_note_dropped(struct sl_shard *shard, uint32_t table_id,
                                const struct sl_table_spec *spec)
{
    sl_assert(table_id < SL_LIMIT_TABLES);
    if (shard->tables[table_id] != NULL) {
        return 0;
    }
    struct sl_shard_table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    table->spec = *spec;
    table->spec.consistency = (struct sl_consistency_spec){0};
    table->key_cost = key_cost(spec->dim);
    table->optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_BEST);
    table->dropped = true;
    table_place(shard, table_id, table);
    return 0;
}

void sl_shard_tables_drop(struct sl_shard *shard, const char *prefix)
{
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table **table = &shard->tables[i];
        if (sl_shard_table_in_use(shard, i) != NULL &&
            strncmp((*table)->spec.name, prefix, strlen(prefix)) == 0) {
            shard->memory_bytes -= (*table)->counted.memory + (*table)->counted.beside;
            shard->memory_bytes -=
                (*table)->waiting == NULL ? 0 : (*table)->waiting->counted.memory;
            shard->evicting_count -= sl_shard_eviction_has(&(*table)->spec);
            table_destroy(table);
        }
    }
}

bool sl_shard_give_back(struct sl_shard *shard)
{
    return sl_shard_push_buffer_give_back(&shard->push_buffer);
}

void sl_shard_table_stats(const struct sl_shard_table *table, struct sl_message_table_stats *out)
{
    memcpy(out->name, table->spec.name, sizeof out->name);
    out->rows = table_count(table);
    out->bytes_admission = table->waiting == NULL ? 0 : table_memory(table->waiting);
    out->bytes = table_memory(table) + out->bytes_admission;
    out->pulled_rows = table->pulled_rows;
    out->pushed_rows = table->pushed_rows;
    out->steps = table->step;
    out->evicted_ttl = table->eviction.evicted[SL_EVICTION_TTL];
    out->evicted_count = table->eviction.evicted[SL_EVICTION_COUNT];
    out->evicted_l2 = table->eviction.evicted[SL_EVICTION_L2];
    out->evicted_room = table->eviction.evicted[SL_EVICTION_ROOM];
    out->admitted = table->admitted;
    out->refused = table->refused;
    out->waiting = sl_shard_waiting_keys(table) == NULL ? 0 : table_count(table->waiting);
    out->rows_created = out->rows;
    if (table->sparse != NULL) {
        const uint64_t gone = sl_sparse_table_erased_log(table->sparse)->end;
        const struct sl_sparse_table_parts parts = sl_sparse_table_memory_parts(table->sparse);
        out->rows_created += gone;
        out->rows_erased =
            gone - out->evicted_ttl - out->evicted_count - out->evicted_l2 - out->evicted_room;
        out->bytes_rows = parts.record_bytes;
        out->bytes_index = parts.index_bytes;
    }
}

int sl_shard_stats(const struct sl_shard *shard, struct sl_message_stats *out)
{
    struct sl_message_table_stats *tables = calloc(shard->table_count + 1, sizeof *tables);
    if (tables == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        const struct sl_shard_table *table = sl_shard_table_in_use(shard, i);
        if (table == NULL) {
            continue;
        }
        sl_shard_table_stats(table, &tables[count++]);
    }
    out->tables = tables;
    out->table_count = count;
    return 0;
}
