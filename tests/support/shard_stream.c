#include "tests/support/shard_stream.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "net/session/message_spec.h"
#include "ps/shard/key_admission.h"
#include "ps/shard/load.h"
#include "ps/shard/snapshot.h"
#include "ps/shard/state.h"

struct sl_snapshot_block *shard_stream_append(struct shard_stream *snapshot,
                                              enum sl_snapshot_kind kind, uint32_t table_id,
                                              uint32_t capacity)
{
    struct sl_snapshot_block *block;
    sl_assert(sl_snapshot_block_create(capacity, &block) == 0);
    sl_snapshot_block_begin(block, kind, table_id);
    block->next = NULL;
    if (snapshot->last == NULL) {
        snapshot->first = block;
    } else {
        snapshot->last->next = block;
    }
    snapshot->last = block;
    return block;
}

void shard_stream_fini(struct shard_stream *snapshot)
{
    while (snapshot->first != NULL) {
        struct sl_snapshot_block *block = snapshot->first;
        snapshot->first = block->next;
        sl_snapshot_block_destroy(&block);
    }
    snapshot->last = NULL;
}

struct maker {
    struct shard_stream *snapshot;
    const struct sl_shard *shard;
    const struct sl_shard_table *table;
    uint32_t table_id;
    uint32_t block_bytes;
    bool adds;
    uint64_t base_step, base_rows;
    uint64_t number;                 /* of the row that comes next */
    struct sl_snapshot_block *block; /* of this table and kind; NULL: none yet */
};

static bool is_new(const struct maker *maker, uint64_t number, uint32_t last_step)
{
    const uint32_t since = last_step - (uint32_t)maker->base_step;
    const uint32_t span = (uint32_t)maker->table->step - (uint32_t)maker->base_step;
    return !maker->adds || number >= maker->base_rows || (since >= 1 && since <= span);
}

static void another_block(struct maker *maker, enum sl_snapshot_kind kind)
{
    maker->block = shard_stream_append(maker->snapshot, kind, maker->table_id, maker->block_bytes);
}

static void put_record(struct maker *maker, enum sl_snapshot_kind kind,
                       const struct sl_snapshot_record *record, uint32_t float_count)
{
    if (maker->block == NULL || !sl_snapshot_put_record(maker->block, record, float_count)) {
        another_block(maker, kind);
        sl_assert(sl_snapshot_put_record(maker->block, record, float_count));
    }
}

/* table: the maker's, or its waiting keys. */
static void put_row(struct maker *maker, const struct sl_shard_table *table,
                    const struct sl_row *record)
{
    const struct sl_snapshot_record snapshot = {
        .key = record->key,
        .last_step = record->last_step,
        .count = record->count,
        .floats = record->values,
    };
    if (is_new(maker, maker->number++, record->last_step) && record->count != SL_ROW_ERASED) {
        put_record(maker, table == maker->table ? SL_SNAPSHOT_ROWS : SL_SNAPSHOT_WAITING, &snapshot,
                   table->spec.dim +
                       (uint32_t)sl_optimizer_slot_floats(table->optimizer, table->spec.dim));
    }
}

static void put_blocks(struct maker *maker, const struct sl_dense_table *dense,
                       enum sl_snapshot_kind kind)
{
    maker->base_rows = UINT64_MAX;
    maker->block = NULL;
    for (uint32_t i = 0; i < sl_dense_table_block_count(dense); i++) {
        const struct sl_dense_block block = sl_dense_table_block(dense, i);
        const struct sl_snapshot_record snapshot = {
            .key = block.number,
            .last_step = block.last_step,
            .count = block.count,
            .floats = block.floats,
        };
        if (is_new(maker, 0, block.last_step)) {
            put_record(maker, kind, &snapshot, block.float_count);
        }
    }
}

static void put_array(struct maker *maker, const struct sl_kv_array *array)
{
    const uint32_t value_bytes = maker->table->spec.dim;
    for (uint32_t done = 0; done < array->length;) {
        const struct sl_snapshot_kv piece = {
            .key = array->key,
            .length = array->length,
            .initialized_count = array->initialized_count,
            .first = done,
            .count = array->length - done,
            .values = array->values + (size_t)done * value_bytes,
        };
        const uint32_t put =
            maker->block == NULL ? 0 : sl_snapshot_put_kv(maker->block, &piece, value_bytes);
        if (put == 0) {
            another_block(maker, SL_SNAPSHOT_KV);
        }
        done += put;
    }
}

static void put_staged(struct maker *maker, uint32_t worker,
                       const struct sl_shard_buffered_push *staged)
{
    const uint32_t dim = maker->table->sparse == NULL ? 0 : maker->table->spec.dim;
    const uint32_t floats = dim == 0 ? 1 : dim;
    for (uint64_t done = 0; done < staged->count;) {
        const struct sl_snapshot_buffered_push piece = {
            .worker = worker,
            .clock = staged->clock,
            .count = staged->count,
            .start = staged->start,
            .first = done,
            .rate = staged->rate,
        };
        uint64_t *keys;
        float *gradients;
        const uint32_t put =
            maker->block == NULL
                ? 0
                : sl_snapshot_put_buffered_push(maker->block, &piece, dim, &keys, &gradients);
        if (put == 0) {
            another_block(maker, SL_SNAPSHOT_BUFFERED_PUSH);
            continue;
        }
        for (uint32_t i = 0; dim != 0 && i < put; i++) {
            keys[i] = sl_sparse_table_record(maker->table->sparse, staged->records[done + i])->key;
        }
        memcpy(gradients, staged->gradients + done * floats,
               (size_t)put * floats * sizeof *gradients);
        done += put;
    }
}

static void put_queues(struct maker *maker)
{
    maker->block = NULL;
    for (uint32_t worker = 0; worker < maker->table->queue_count; worker++) {
        for (const struct sl_shard_buffered_push *at = maker->table->buffered[worker].first;
             at != NULL; at = at->next) {
            put_staged(maker, worker, at);
        }
    }
}

static void put_rows(struct maker *maker, const struct sl_shard_table *table)
{
    maker->block = NULL;
    for (uint32_t i = 0; table != NULL && i < sl_sparse_table_record_count(table->sparse); i++) {
        put_row(maker, table, sl_sparse_table_record(table->sparse, i));
    }
}

static void put_table(struct maker *maker)
{
    const struct sl_shard_table *table = maker->table;
    const struct sl_snapshot_table snapshot = {
        .spec = table->spec,
        .step = table->step,
        .state = table->state,
        .pulled_rows = table->pulled_rows,
        .pushed_rows = table->pushed_rows,
    };
    another_block(maker, SL_SNAPSHOT_TABLE);
    sl_snapshot_put_table(maker->block, maker->table_id, &snapshot);
    maker->block = NULL;
    if (table->sparse != NULL) {
        put_rows(maker, table);
        if (sl_shard_waiting_keys(table) != NULL) {
            put_rows(maker, table->waiting);
        } else if (table->waiting != NULL) {
            put_blocks(maker, table->waiting->dense, SL_SNAPSHOT_WAITING);
        }
    } else if (table->dense != NULL) {
        put_blocks(maker, table->dense, SL_SNAPSHOT_DENSE);
    } else {
        for (uint32_t i = 0; i < sl_kv_table_record_count(table->kv); i++) {
            const struct sl_kv_array *array = sl_kv_table_at(table->kv, i);
            if (array->values != NULL) {
                put_array(maker, array);
            }
        }
    }
    put_queues(maker);
}

static bool is_known(const struct sl_clocks_worker *who)
{
    return who->clock != 0 || who->state != SL_CLOCKS_STATE_ACTIVE || who->seen || who->joined ||
           who->began || who->pushed;
}

static void put_clocks(struct maker *maker)
{
    maker->table_id = 0;
    maker->block = NULL;
    for (uint32_t worker = 0; worker < SL_LIMIT_WORKERS; worker++) {
        const struct sl_clocks_worker *who = &maker->shard->clocks.workers[worker];
        if (is_known(who) &&
            (maker->block == NULL || !sl_snapshot_put_clock(maker->block, worker, who))) {
            another_block(maker, SL_SNAPSHOT_CLOCKS);
            sl_assert(sl_snapshot_put_clock(maker->block, worker, who));
        }
    }
}

void shard_stream_base_of(const struct sl_shard *shard, struct shard_stream_base *out)
{
    *out = (struct shard_stream_base){0};
    for (uint32_t id = 0; id < shard->table_count; id++) {
        const struct sl_shard_table *table = shard->tables[id];
        if (table != NULL) {
            out->steps[id] = table->step;
            out->rows[id] = table->sparse == NULL ? 0 : sl_sparse_table_record_count(table->sparse);
        }
    }
}

void shard_stream_make(const struct sl_shard *shard, const struct shard_stream_base *base,
                       uint32_t block_bytes, struct shard_stream *out)
{
    *out = (struct shard_stream){
        .end = {.shard = shard->options.index, .shard_count = shard->options.count}};
    struct maker maker = {
        .snapshot = out, .shard = shard, .block_bytes = block_bytes, .adds = base != NULL};
    for (uint32_t id = 0; id < shard->table_count; id++) {
        if (shard->tables[id] != NULL) {
            maker.table = shard->tables[id];
            maker.table_id = id;
            maker.base_step = base == NULL ? 0 : base->steps[id];
            maker.base_rows = base == NULL ? 0 : base->rows[id];
            maker.number = 0;
            put_table(&maker);
        }
    }
    put_clocks(&maker);
    for (const struct sl_snapshot_block *block = out->first; block != NULL; block = block->next) {
        sl_snapshot_end_add(&out->end, block);
    }
    sl_snapshot_put_end(shard_stream_append(out, SL_SNAPSHOT_END, 0, SL_SNAPSHOT_END_BYTES),
                        &out->end);
}

bool shard_stream_snapshot(struct sl_shard *shard, uint32_t key_budget, struct shard_stream *out)
{
    (void)sl_shard_snapshot_run(shard, key_budget);
    struct sl_snapshot_block *block;
    while ((block = sl_shard_snapshot_take(shard)) != NULL) {
        struct sl_snapshot_block *copy = shard_stream_append(
            out, (enum sl_snapshot_kind)block->kind, block->table_id, block->bytes);
        copy->count = block->count;
        copy->bytes = block->bytes;
        memcpy(copy->payload, block->payload, block->bytes);
        if (block->kind == SL_SNAPSHOT_END) {
            sl_assert(sl_snapshot_take_end(block, &out->end));
        }
        sl_shard_snapshot_put(shard, block);
    }
    const enum sl_shard_snapshot_state state = sl_shard_snapshot_state(shard);
    sl_assert(state == SL_SHARD_SNAPSHOT_RUNNING || state == SL_SHARD_SNAPSHOT_DONE);
    return state == SL_SHARD_SNAPSHOT_RUNNING;
}

static int load_block(struct sl_shard_load *load, const struct sl_snapshot_block *block,
                      uint32_t key_budget, struct sl_reason *reason)
{
    int result = SL_SHARD_AGAIN;
    while (result == SL_SHARD_AGAIN) {
        result = sl_shard_load_block(load, block, key_budget, reason);
    }
    return result;
}

int shard_stream_load(const struct shard_stream *snapshot, struct sl_shard *shard,
                      uint32_t key_budget, struct sl_reason *reason)
{
    struct sl_shard_load load;
    int err =
        sl_shard_load_begin(&load, shard, snapshot->end.shard, snapshot->end.shard_count, reason);
    for (const struct sl_snapshot_block *block = snapshot->first; block != NULL && err == 0;
         block = block->next) {
        err = load_block(&load, block, key_budget, reason);
    }
    return err != 0 ? err : sl_shard_load_end(&load, reason);
}

#define PACK_HEADER_BYTES 16

size_t shard_stream_pack(const struct shard_stream *snapshot, uint8_t *to)
{
    size_t bytes = 0;
    for (const struct sl_snapshot_block *block = snapshot->first; block != NULL;
         block = block->next) {
        if (to != NULL) {
            const uint32_t header[4] = {block->kind, block->table_id, block->count, block->bytes};
            memcpy(to + bytes, header, sizeof header);
            memcpy(to + bytes + sizeof header, block->payload, block->bytes);
        }
        bytes += PACK_HEADER_BYTES + block->bytes;
    }
    return bytes;
}

/* The next block, a copy; NULL: there is none. One that is cut short has what there is. */
static struct sl_snapshot_block *unpack(struct sl_bytes *cursor)
{
    if (cursor->left < PACK_HEADER_BYTES) {
        return NULL;
    }
    struct sl_snapshot_block head = {.kind = (uint8_t)sl_bytes_u32(cursor)};
    head.table_id = sl_bytes_u32(cursor);
    head.count = sl_bytes_u32(cursor);
    head.bytes = sl_bytes_u32(cursor);
    head.bytes = head.bytes < cursor->left ? head.bytes : (uint32_t)cursor->left;
    struct sl_snapshot_block *block;
    sl_assert(sl_snapshot_block_create(head.bytes, &block) == 0);
    if (head.bytes > 0) {
        memcpy(block->payload, sl_bytes_take(cursor, head.bytes), head.bytes);
    }
    block->kind = head.kind;
    block->table_id = head.table_id;
    block->count = head.count;
    block->bytes = head.bytes;
    return block;
}

int shard_stream_load_packed(const uint8_t *from, size_t bytes, uint32_t stream_shard,
                             uint32_t stream_shard_count, struct sl_shard *shard,
                             struct sl_reason *reason)
{
    struct sl_shard_load load;
    struct sl_bytes cursor = sl_bytes_over(from, bytes);
    struct sl_snapshot_block *block;
    int err = sl_shard_load_begin(&load, shard, stream_shard, stream_shard_count, reason);
    while (err == 0 && (block = unpack(&cursor)) != NULL) {
        err = load_block(&load, block, 64, reason);
        sl_snapshot_block_destroy(&block);
    }
    return err != 0 ? err : sl_shard_load_end(&load, reason);
}

static char difference[512];

static const char *differ(const struct sl_shard_table *table, const char *what, uint64_t where)
{
    (void)snprintf(difference, sizeof difference, "table %s: %s %llu differs", table->spec.name,
                   what, (unsigned long long)where);
    return difference;
}

struct others {
    struct sl_shard *const *shards;
    uint32_t count;
    uint32_t table_id;
    bool waiting;   /* the waiting keys of the table */
    uint32_t shard; /* of `table` */
    const struct sl_shard_table *table;
    uint64_t seen;
    const char *found;
};

static const struct sl_shard_table *other_table(const struct sl_shard *shard, uint32_t id,
                                                bool waiting)
{
    return waiting ? shard->tables[id]->waiting : shard->tables[id];
}

static void compare_row(struct others *others, const struct sl_row *record)
{
    if (record->count == SL_ROW_ERASED) {
        return;
    }
    const struct sl_shard *shard = others->shards[sl_partition_owner(record->key, others->count)];
    const struct sl_shard_table *table = other_table(shard, others->table_id, others->waiting);
    uint32_t number;
    others->seen++;
    sl_sparse_table_find(table->sparse, &record->key, 1, &number);
    if (number == SL_ROW_NONE || memcmp(record, sl_sparse_table_record(table->sparse, number),
                                        sl_sparse_table_record_bytes(table->sparse)) != 0) {
        others->found = differ(table, "the row of key", record->key);
    }
}

static const char *compare_dense(const struct others *others)
{
    for (uint32_t i = 0; i < sl_dense_table_block_count(others->table->dense); i++) {
        const struct sl_dense_block block = sl_dense_table_block(others->table->dense, i);
        bool same = false;
        for (uint32_t s = 0; s < others->count; s++) {
            const struct sl_dense_table *store =
                other_table(others->shards[s], others->table_id, others->waiting)->dense;
            const uint64_t first = sl_dense_table_start(store) / SL_PARTITION_BLOCK_ELEMENTS;
            if (block.number < first || block.number - first >= sl_dense_table_block_count(store) ||
                (others->waiting && s != others->shard)) { /* neighbours share a block */
                continue;
            }
            const struct sl_dense_block other =
                sl_dense_table_block(store, (uint32_t)(block.number - first));
            same = (other.last_step == block.last_step || others->waiting) && /* a failed push */
                   other.count == block.count && other.float_count == block.float_count &&
                   memcmp(other.floats, block.floats, block.float_count * sizeof(float)) == 0;
        }
        if (!same) {
            return differ(others->table, "block", block.number);
        }
    }
    return NULL;
}

/* Filters of another number of shards count no key lower: a block merged into theirs changes
 * nothing, but for the halving that is due. */
static const char *compare_filter(const struct others *others)
{
    for (uint32_t i = 0; i < sl_dense_table_block_count(others->table->dense); i++) {
        const struct sl_dense_block block = sl_dense_table_block(others->table->dense, i);
        for (uint32_t s = 0; s < others->count; s++) {
            const struct sl_shard_table *table = others->shards[s]->tables[others->table_id];
            const struct sl_key_filter filter = sl_shard_key_filter(table);
            const uint64_t at = block.number - sl_dense_table_start(filter.table) /
                                                   SL_PARTITION_BLOCK_ELEMENTS; /* modulo 2^64 */
            float floats[SL_PARTITION_BLOCK_ELEMENTS];
            if (at >= sl_dense_table_block_count(filter.table)) {
                continue;
            }
            const struct sl_dense_block other = sl_dense_table_block(filter.table, (uint32_t)at);
            sl_key_filter_merge(&filter, block.number, other.last_step, table->step + 1,
                                memcpy(floats, other.floats, sizeof floats));
            memcpy(floats, other.floats, sizeof floats);
            sl_key_filter_merge(&filter, block.number, block.last_step, table->step + 1,
                                block.floats);
            if (memcmp(floats, other.floats, sizeof floats) != 0) {
                return differ(others->table, "block", block.number);
            }
        }
    }
    return NULL;
}

static const char *compare_kv(struct others *others)
{
    const struct sl_kv_table *store = others->table->kv;
    for (uint32_t i = 0; i < sl_kv_table_record_count(store); i++) {
        const struct sl_kv_array *array = sl_kv_table_at(store, i);
        if (array->values == NULL) {
            continue;
        }
        others->seen++;
        struct sl_kv_array *other;
        const struct sl_shard *shard =
            others->shards[sl_partition_kv_owner(array->key, others->count)];
        sl_kv_table_find(shard->tables[others->table_id]->kv, &array->key, 1, &other);
        if (other == NULL || other->length != array->length ||
            other->initialized_count != array->initialized_count ||
            memcmp(other->values, array->values, (size_t)array->length * others->table->spec.dim) !=
                0) {
            return differ(others->table, "the array of key", array->key);
        }
    }
    return NULL;
}

static uint64_t records_of(const struct others *others)
{
    uint64_t records = 0;
    for (uint32_t s = 0; s < others->count; s++) {
        const struct sl_shard_table *table =
            other_table(others->shards[s], others->table_id, others->waiting);
        records += table->sparse != NULL ? sl_sparse_table_row_count(table->sparse)
                   : table->kv != NULL   ? sl_kv_table_key_count(table->kv)
                                         : 0;
    }
    return records;
}

static const char *compare_table(struct sl_shard *const *a, uint32_t a_count, struct others *b)
{
    uint64_t seen = 0;
    for (uint32_t s = 0; s < a_count; s++) {
        b->table = other_table(a[s], b->table_id, b->waiting);
        b->shard = s;
        b->seen = 0;
        b->found = NULL;
        if (b->table->sparse != NULL) {
            for (uint32_t i = 0; i < sl_sparse_table_record_count(b->table->sparse); i++) {
                compare_row(b, sl_sparse_table_record(b->table->sparse, i));
            }
        } else {
            b->found = b->table->dense == NULL             ? compare_kv(b)
                       : b->waiting && a_count != b->count ? compare_filter(b)
                                                           : compare_dense(b);
        }
        if (b->found != NULL) {
            return b->found;
        }
        seen += b->seen;
    }
    return seen == records_of(b) ? NULL : differ(b->table, "the number of records,", seen);
}

const char *shard_stream_differ(struct sl_shard *const *a, uint32_t a_count,
                                struct sl_shard *const *b, uint32_t b_count)
{
    for (uint32_t id = 0; id < SL_LIMIT_TABLES; id++) {
        if ((a[0]->tables[id] == NULL) != (b[0]->tables[id] == NULL)) {
            return "one has a table more";
        }
        struct others others = {.shards = b, .count = b_count, .table_id = id};
        const char *found = a[0]->tables[id] == NULL ? NULL : compare_table(a, a_count, &others);
        others.waiting = a[0]->tables[id] != NULL && a[0]->tables[id]->waiting != NULL;
        if (found == NULL && others.waiting) {
            found = compare_table(a, a_count, &others);
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static const char *compare_queues(const struct sl_shard_table *a, const struct sl_shard_table *b)
{
    if (a->buffered_count != b->buffered_count) {
        return differ(a, "what is kept aside,", a->buffered_count);
    }
    for (uint32_t w = 0; w < a->queue_count && w < b->queue_count; w++) {
        const struct sl_shard_buffered_push *x = a->buffered[w].first;
        const struct sl_shard_buffered_push *y = b->buffered[w].first;
        const size_t floats = a->sparse == NULL ? 1 : a->spec.dim;
        for (; x != NULL && y != NULL; x = x->next, y = y->next) {
            if (x->clock != y->clock || x->start != y->start || x->count != y->count ||
                memcmp(x->gradients, y->gradients, x->count * floats * sizeof(float)) != 0) {
                return differ(a, "a push of worker", w);
            }
            for (uint64_t i = 0; a->sparse != NULL && i < x->count; i++) {
                if (sl_sparse_table_record(a->sparse, x->records[i])->key !=
                    sl_sparse_table_record(b->sparse, y->records[i])->key) {
                    return differ(a, "a key pushed by worker", w);
                }
            }
        }
        if (x != NULL || y != NULL) {
            return differ(a, "how much is kept aside of worker", w);
        }
    }
    return NULL;
}

static const char *compare_state(const struct sl_shard *a, const struct sl_shard *b, uint32_t id)
{
    const struct sl_shard_table *x = a->tables[id];
    const struct sl_shard_table *y = b->tables[id];
    if (sl_message_compare_specs(&x->spec, &y->spec, NULL) != 0) {
        return differ(x, "the specification of table", id);
    }
    if (x->step != y->step || memcmp(&x->state, &y->state, sizeof x->state) != 0 ||
        x->pulled_rows != y->pulled_rows || x->pushed_rows != y->pushed_rows) {
        return differ(x, "the state at step", x->step);
    }
    if (x->spec.consistency.worker_count > 0 &&
        sl_clocks_min(&a->clocks, x->clock_group) != sl_clocks_min(&b->clocks, y->clock_group)) {
        return differ(x, "the floor,", sl_clocks_min(&a->clocks, x->clock_group));
    }
    return compare_queues(x, y);
}

static bool same_worker(const struct sl_clocks_worker *a, const struct sl_clocks_worker *b)
{
    return a->clock == b->clock && a->state == b->state && a->seen == b->seen &&
           a->joined == b->joined && a->began == b->began && a->pushed == b->pushed;
}

const char *shard_stream_differ_at_all(struct sl_shard *a, struct sl_shard *b)
{
    const char *found = shard_stream_differ(&a, 1, &b, 1);
    for (uint32_t id = 0; id < SL_LIMIT_TABLES && found == NULL; id++) {
        found = a->tables[id] == NULL ? NULL : compare_state(a, b, id);
    }
    for (uint32_t w = 0; w < SL_LIMIT_WORKERS && found == NULL; w++) {
        if (!same_worker(&a->clocks.workers[w], &b->clocks.workers[w])) {
            (void)snprintf(difference, sizeof difference, "worker/%u stands elsewhere", w);
            found = difference;
        }
    }
    if (found == NULL && (sl_clocks_min_of_all(&a->clocks) != sl_clocks_min_of_all(&b->clocks) ||
                          a->iteration.due != b->iteration.due)) {
        found = "the floor of all, or whether a commit is due, differs";
    }
    return found;
}
