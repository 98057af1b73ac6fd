#include "tests/sim/evictions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "ps/replication/state.h"
#include "ps/server/state.h"
#include "ps/shard/evict.h"
#include "ps/shard/snapshot.h"
#include "ps/shard/state.h"
#include "tests/sim/cluster.h"

#define GONE_MAX (1U << 20)

/* A row, as a table had it. */
struct seen {
    uint64_t key;
    uint64_t all, values; /* hashes of the record, and of its values */
    uint32_t last_step, count;
    float square_sum;
};

/* A table, as it was. */
struct picture {
    struct seen *rows; /* by key */
    uint32_t count;
};

/* At the beginning of a snapshot. */
struct cut {
    struct cut *next;
    uint32_t shard, table;
    uint64_t at_ns;
    struct picture picture, waiting;
};

/* A row that has gone from the table of this shard object. */
struct gone {
    const struct sl_shard *shard;
    uint32_t table;
    uint64_t key;
};

static struct watch {
    struct sl_sim_cluster *job;
    bool is_frozen;
    struct cut *cuts;
    struct gone *gone; /* a ring */
    uint64_t gone_count;
} watch;

uint32_t __real_sl_shard_evict(struct sl_shard *shard, uint32_t budget,
                               struct sl_shard_evicted *out);
uint32_t __wrap_sl_shard_evict(struct sl_shard *shard, uint32_t budget,
                               struct sl_shard_evicted *out);
bool __real_sl_shard_evict_at_commit(struct sl_shard *shard, struct sl_shard_table *table,
                                     uint64_t step_before, uint32_t budget, uint32_t *spent);
bool __wrap_sl_shard_evict_at_commit(struct sl_shard *shard, struct sl_shard_table *table,
                                     uint64_t step_before, uint32_t budget, uint32_t *spent);
int __real_sl_shard_snapshot_begin(struct sl_shard *shard,
                                   const struct sl_shard_snapshot_options *options);
int __wrap_sl_shard_snapshot_begin(struct sl_shard *shard,
                                   const struct sl_shard_snapshot_options *options);

static int compare(const void *a, const void *b)
{
    const struct seen *one = a, *other = b;
    return one->key < other->key ? -1 : one->key > other->key;
}

static struct picture take(const struct sl_shard_table *table)
{
    const uint32_t dim = table->spec.dim, records = sl_sparse_table_record_count(table->sparse);
    const size_t floats = dim + sl_optimizer_slot_floats(table->optimizer, dim);
    struct picture picture = {.rows = calloc(records + 1, sizeof *picture.rows)};
    sl_assert(picture.rows != NULL);
    for (uint32_t i = 0; i < records; i++) {
        const struct sl_row *row = sl_sparse_table_record(table->sparse, i);
        struct seen *seen = &picture.rows[picture.count];
        if (row->count == SL_ROW_ERASED) {
            continue;
        }
        *seen = (struct seen){.key = row->key, .last_step = row->last_step, .count = row->count};
        seen->values = sl_hash_bytes(row->values, dim * sizeof(float), row->key);
        seen->all = sl_hash_bytes(row->values, floats * sizeof(float),
                                  (uint64_t)row->last_step << 32 | row->count);
        for (uint32_t k = 0; k < dim; k++) {
            seen->square_sum += row->values[k] * row->values[k];
        }
        picture.count++;
    }
    qsort(picture.rows, picture.count, sizeof *picture.rows, compare);
    return picture;
}

/* Keys that wait for admission, or the blocks of the filter that counts them, as rows. */
static struct picture take_waiting(const struct sl_shard_table *table)
{
    if (table->waiting == NULL || table->waiting->sparse != NULL) {
        return table->waiting == NULL ? (struct picture){.rows = NULL} : take(table->waiting);
    }
    const uint32_t blocks = sl_dense_table_block_count(table->waiting->dense);
    struct picture picture = {.rows = calloc(blocks, sizeof *picture.rows), .count = blocks};
    sl_assert(picture.rows != NULL);
    for (uint32_t i = 0; i < blocks; i++) {
        const struct sl_dense_block block = sl_dense_table_block(table->waiting->dense, i);
        picture.rows[i] = (struct seen){
            .key = block.number,
            .last_step = 1,
            .all = sl_hash_bytes(block.floats, block.float_count * sizeof(float), block.number)};
    }
    return picture;
}

static const struct seen *find(const struct picture *picture, uint64_t key)
{
    const struct seen like = {.key = key};
    return bsearch(&like, picture->rows, picture->count, sizeof like, compare);
}

static bool is_watched(const struct sl_shard_table *table)
{
    return table != NULL && !table->dropped && sl_shard_eviction_has(&table->spec);
}

/* NULL: the shard is none of the job's. */
static struct sl_server *server_of(const struct sl_shard *shard)
{
    for (uint32_t i = 0; watch.job != NULL && i < watch.job->plan->ps_count; i++) {
        SL_PROCESS_FOREACH (hosted, &watch.job->ps[i].wiring) {
            if (hosted->server != NULL && hosted->server->shard == shard) {
                return hosted->server;
            }
        }
    }
    return NULL;
}

/* The one that the coordinator has named last: what another one evicts may be undone. */
static bool is_newest(const struct sl_server *server, uint32_t shard)
{
    return watch.job->shards[shard].epoch == server->replica->config.epoch &&
           server == sl_sim_cluster_primary(watch.job, shard);
}

static uint64_t share_of(const struct sl_policy_spec *policy, const struct sl_shard *shard)
{
    return (policy->rows_max + shard->options.count - 1) / shard->options.count;
}

/* Returns the rule that the eviction of that row breaks; NULL: none. */
static const char *fault_of(const struct sl_shard *shard, const struct sl_shard_table *table,
                            const struct seen *row, uint64_t rows_before, size_t memory_before)
{
    const struct sl_policy_spec *policy = &table->spec.policy;
    if (row == NULL) {
        return "was not there";
    }
    const uint32_t age = (uint32_t)table->step - row->last_step;
    const bool is_due = (policy->ttl_steps > 0 && age >= policy->ttl_steps) ||
                        row->count < policy->count_below ||
                        row->square_sum < policy->l2_below * policy->l2_below;
    const size_t most = shard->options.memory_bytes_max;
    const bool is_full = most > 0 && memory_before / 92 >= most / 100;
    const bool is_beyond = policy->rows_max > 0 && rows_before > share_of(policy, shard);
    if (age < policy->protect_steps) {
        return "was protected";
    }
    return is_due || (policy->order != SL_POLICY_NONE && (is_full || is_beyond)) ? NULL
                                                                                 : "had no reason";
}

static void fail(const struct sl_shard *shard, uint32_t table, uint64_t key, const char *fault)
{
    sl_sim_fail(&watch.job->oracle.breach, "evicted", "key %" PRIu64 " of t%u on shard %u %s", key,
                table, shard->options.index, fault);
}

/* A row has gone. */
static void look_at(const struct sl_server *server, uint32_t table_id, const struct picture *before,
                    size_t memory_before, uint64_t key)
{
    struct sl_shard *shard = server->shard;
    const struct sl_shard_table *table = shard->tables[table_id];
    const char *fault = fault_of(shard, table, find(before, key), before->count, memory_before);
    uint32_t record;
    sl_sparse_table_find(table->sparse, &key, 1, &record);
    fault = fault == NULL && record != SL_ROW_NONE ? "is still there" : fault;
    if (fault != NULL) {
        fail(shard, table_id, key, fault);
    }
    sl_sim_oracle_evicted(&watch.job->oracle, table_id, shard->options.index, key,
                          is_newest(server, shard->options.index));
    watch.gone[watch.gone_count++ % GONE_MAX] =
        (struct gone){.shard = shard, .table = table_id, .key = key};
}

/* A key waits no more. Returns false when it did not wait. */
static bool was_waiting(const struct sl_server *server, uint32_t table_id,
                        const struct picture *waiting, uint64_t key)
{
    const struct sl_shard_table *table = server->shard->tables[table_id];
    const struct seen *was = waiting->count == 0 ? NULL : find(waiting, key);
    const uint32_t most = table->spec.policy.admit_age_steps;
    if (was != NULL && (most == 0 || (uint32_t)table->step - was->last_step < most)) {
        fail(server->shard, table_id, key, "waits for a row, and had no reason");
    }
    return was != NULL;
}

static uint64_t waiting_count(const struct sl_shard_table *table)
{
    const struct sl_sparse_table *keys = sl_shard_waiting_keys(table);
    return keys == NULL ? 0 : sl_sparse_table_row_count(keys);
}

static void check(const struct sl_server *server, const struct picture *before,
                  const struct picture *waiting, size_t memory_before,
                  const struct sl_shard_evicted *out)
{
    const struct sl_shard_table *table = server->shard->tables[out->table_id];
    for (uint32_t i = 0; i < out->count; i++) {
        if (was_waiting(server, out->table_id, waiting, out->keys[i])) {
            continue;
        }
        look_at(server, out->table_id, before, memory_before, out->keys[i]);
    }
    if (!server->role.serves) {
        fail(server->shard, out->table_id, out->keys[0], "is at no primary");
    }
    if (before->count + waiting->count !=
        sl_sparse_table_row_count(table->sparse) + waiting_count(table) + out->count) {
        fail(server->shard, out->table_id, out->keys[0], "went with others");
    }
}

uint32_t __wrap_sl_shard_evict(struct sl_shard *shard, uint32_t budget,
                               struct sl_shard_evicted *out)
{
    const struct sl_server *server = server_of(shard);
    struct picture pictures[SL_SIM_TABLES_MAX] = {{.rows = NULL}};
    struct picture waiting[SL_SIM_TABLES_MAX] = {{.rows = NULL}};
    const size_t memory_before = shard->memory_bytes;
    out->count = 0;
    if (watch.is_frozen) {
        return 0;
    }
    for (uint32_t i = 0; server != NULL && i < shard->table_count; i++) {
        if (is_watched(shard->tables[i])) {
            pictures[i] = take(shard->tables[i]);
        }
        if (is_watched(shard->tables[i]) && sl_shard_waiting_keys(shard->tables[i]) != NULL) {
            waiting[i] = take_waiting(shard->tables[i]);
        }
    }
    const uint32_t spent = __real_sl_shard_evict(shard, budget, out);
    if (server != NULL && out->count > 0) {
        check(server, &pictures[out->table_id], &waiting[out->table_id], memory_before, out);
    }
    for (uint32_t i = 0; i < SL_SIM_TABLES_MAX; i++) {
        free(pictures[i].rows);
        free(waiting[i].rows);
    }
    return spent;
}

/* At the backup of a shard the same rows go: what it has is compared in the end. */
bool __wrap_sl_shard_evict_at_commit(struct sl_shard *shard, struct sl_shard_table *table,
                                     uint64_t step_before, uint32_t budget, uint32_t *spent)
{
    const struct sl_server *server = server_of(shard);
    if (server == NULL || !server->role.serves || !is_watched(table)) {
        return watch.is_frozen ||
               __real_sl_shard_evict_at_commit(shard, table, step_before, budget, spent);
    }
    struct picture before = take(table);
    uint32_t table_id = 0;
    while (shard->tables[table_id] != table) {
        table_id++;
    }
    const bool is_done = __real_sl_shard_evict_at_commit(shard, table, step_before, budget, spent);
    for (uint32_t i = 0; i < before.count; i++) {
        uint32_t record;
        sl_sparse_table_find(table->sparse, &before.rows[i].key, 1, &record);
        if (record == SL_ROW_NONE) {
            look_at(server, table_id, &before, shard->memory_bytes, before.rows[i].key);
        }
    }
    free(before.rows);
    return is_done;
}

int __wrap_sl_shard_snapshot_begin(struct sl_shard *shard,
                                   const struct sl_shard_snapshot_options *options)
{
    const int err = __real_sl_shard_snapshot_begin(shard, options);
    const bool is_ours = err == 0 && server_of(shard) != NULL;
    for (uint32_t i = 0; is_ours && i < shard->table_count; i++) {
        if (is_watched(shard->tables[i])) {
            struct cut *cut = malloc(sizeof *cut);
            sl_assert(cut != NULL);
            *cut = (struct cut){.next = watch.cuts,
                                .shard = shard->options.index,
                                .table = i,
                                .at_ns = watch.job->world->now_ns,
                                .picture = take(shard->tables[i]),
                                .waiting = take_waiting(shard->tables[i])};
            watch.cuts = cut;
        }
    }
    return err;
}

void sl_sim_evictions_watch(struct sl_sim_cluster *job)
{
    while (watch.cuts != NULL) {
        struct cut *next = watch.cuts->next;
        free(watch.cuts->picture.rows);
        free(watch.cuts->waiting.rows);
        free(watch.cuts);
        watch.cuts = next;
    }
    free(watch.gone);
    watch = (struct watch){.job = job, .gone = NULL};
    if (job != NULL) {
        watch.gone = calloc(GONE_MAX, sizeof *watch.gone);
        sl_assert(watch.gone != NULL);
    }
}

void sl_sim_evictions_freeze(void)
{
    watch.is_frozen = true;
}

static void check_shard(struct sl_sim_cluster *cluster, const struct sl_shard *shard)
{
    const size_t most = cluster->plan->memory_bytes_max;
    size_t bytes = 0;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        const struct sl_shard_table *table = shard->tables[i];
        bytes += table == NULL || table->sparse == NULL
                     ? 0
                     : sl_sparse_table_memory_bytes(table->sparse);
    }
    if (bytes > most || shard->memory_bytes > most) {
        sl_sim_fail(&cluster->oracle.breach, "memory",
                    "shard %u has tables of %zu bytes, %zu counted; its limit is %zu",
                    shard->options.index, bytes, shard->memory_bytes, most);
    }
}

void sl_sim_evictions_check_memory(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->plan->memory_bytes_max > 0 && i < cluster->plan->ps_count; i++) {
        SL_PROCESS_FOREACH (hosted, &cluster->ps[i].wiring) {
            if (hosted->server != NULL && hosted->server->shard != NULL) {
                check_shard(cluster, hosted->server->shard);
            }
        }
    }
}

static bool has_gone(const struct sl_shard *shard, uint32_t table, uint64_t key)
{
    const uint64_t count = watch.gone_count < GONE_MAX ? watch.gone_count : GONE_MAX;
    for (uint64_t i = 0; i < count; i++) {
        const struct gone *gone = &watch.gone[i];
        if (gone->shard == shard && gone->table == table && gone->key == key) {
            return true;
        }
    }
    return false;
}

/* What differs; NULL: nothing. Rows that no push has visited do not count: a snapshot has those
 * again that were erased behind a buffered push. */
static const char *differ(const struct picture *then, const struct picture *now,
                          const struct sl_shard *shard, uint32_t table, uint64_t *key)
{
    for (uint32_t i = 0; i < now->count; i++) {
        const struct seen *was = then->count == 0 ? NULL : find(then, now->rows[i].key);
        *key = now->rows[i].key;
        if (now->rows[i].last_step != 0 && (was == NULL || was->all != now->rows[i].all)) {
            return was == NULL ? "was not there" : "was different";
        }
    }
    for (uint32_t i = 0; i < then->count; i++) {
        *key = then->rows[i].key;
        if (then->rows[i].last_step != 0 && (now->count == 0 || find(now, *key) == NULL) &&
            !has_gone(shard, table, *key)) {
            return "is missing";
        }
    }
    return NULL;
}

static void check_table(struct sl_sim_oracle *oracle, const char *who, const struct sl_shard *shard,
                        uint32_t table, uint64_t begin_ns, uint64_t end_ns)
{
    struct picture now = take(shard->tables[table]);
    struct picture waiting = take_waiting(shard->tables[table]);
    const char *what = "was in no snapshot";
    uint64_t key = 0;
    for (const struct cut *cut = watch.cuts; cut != NULL && what != NULL; cut = cut->next) {
        if (cut->shard == shard->options.index && cut->table == table && cut->at_ns >= begin_ns &&
            cut->at_ns <= end_ns) {
            what = differ(&cut->picture, &now, shard, table, &key);
            what = what == NULL ? differ(&cut->waiting, &waiting, shard, table, &key) : what;
        }
    }
    if (what != NULL) {
        sl_sim_fail(&oracle->breach, "one moment", "%s: key %" PRIu64 " of t%u on shard %u %s", who,
                    key, table, shard->options.index, what);
    }
    free(now.rows);
    free(waiting.rows);
}

void sl_sim_evictions_check(struct sl_sim_oracle *oracle, const char *who,
                            struct sl_shard *const *shards, uint32_t shard_count,
                            const struct sl_sim_checkpoint *checkpoint)
{
    for (uint32_t i = 0; checkpoint != NULL && i < shard_count; i++) {
        for (uint32_t t = 0; t < shards[i]->table_count; t++) {
            if (is_watched(shards[i]->tables[t])) {
                check_table(oracle, who, shards[i], t, checkpoint->begun_ns, checkpoint->cut_ns);
            }
        }
    }
}

bool sl_sim_evictions_are_rows(uint32_t shard, uint32_t table, const uint64_t *keys,
                               const float *values, uint64_t count, uint64_t dim, uint64_t begin_ns,
                               uint64_t end_ns)
{
    bool is_same = false;
    for (const struct cut *cut = watch.cuts; cut != NULL && !is_same; cut = cut->next) {
        if (cut->shard != shard || cut->table != table || cut->at_ns < begin_ns ||
            cut->at_ns > end_ns || cut->picture.count != count) {
            continue;
        }
        is_same = true;
        for (uint64_t i = 0; i < count && is_same; i++) {
            const struct seen *was = find(&cut->picture, keys[i]);
            is_same = was != NULL &&
                      was->values == sl_hash_bytes(values + i * dim, dim * sizeof(float), keys[i]);
        }
    }
    return is_same;
}
