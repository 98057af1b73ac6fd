#include "tests/sim/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/partition.h"
#include "tests/sim/random.h"

#define SHARED_OF_SHARD 8  /* shared keys, of each shard */
#define SHARED_OF_RANGE 64 /* elements at the head of each dense range */
#define KEY_TRIES       (1U << 20)
#define ERASE_BACK      400 /* units that are looked through for one to erase */

static void *grown(void *items, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (count < *capacity) {
        return items;
    }
    *capacity = *capacity == 0 ? 64 : 2 * *capacity;
    items = realloc(items, *capacity * item_bytes);
    sl_assert(items != NULL);
    return items;
}

#define GROW(oracle, what)                                                                         \
    ((oracle)->what##s = grown((oracle)->what##s, (oracle)->what##_count,                          \
                               &(oracle)->what##_capacity, sizeof *(oracle)->what##s))

static uint64_t key_of(struct sl_sim_oracle *oracle, struct sl_sim_table *table, uint32_t shard)
{
    for (uint32_t i = 0; i < KEY_TRIES; i++) {
        uint64_t key = table->witness_next++;
        if (sl_partition_owner(key, oracle->plan->shard_count) == shard) {
            return key;
        }
    }
    sl_assert(false);
    return 0;
}

static void init_sparse(struct sl_sim_oracle *oracle, struct sl_sim_table *table)
{
    for (uint32_t i = 0; i < table->shared_count; i++) {
        table->shared_shard[i] = i % oracle->plan->shard_count;
        table->shared[i] = key_of(oracle, table, table->shared_shard[i]);
    }
    if (sl_sim_oracle_forgets_rows(oracle, table->id)) {
        table->ghost = key_of(oracle, table, 0);
    }
}

/* The heads of all ranges are shared; what lies behind is for witnesses. */
static void init_dense(struct sl_sim_oracle *oracle, struct sl_sim_table *table)
{
    uint32_t shards = oracle->plan->shard_count;
    for (uint32_t i = 0; i < table->shared_count; i++) {
        uint32_t range = i % shards;
        table->shared_shard[i] = sl_partition_shard_of_range(table->id, range, shards);
        table->shared[i] = sl_partition_range_start(table->spec.length, shards, range) + i / shards;
    }
}

static void init_table(struct sl_sim_oracle *oracle, uint32_t index)
{
    struct sl_sim_table *table = &oracle->tables[index];
    uint32_t shards = oracle->plan->shard_count;
    *table = (struct sl_sim_table){.spec = oracle->plan->tables[index], .id = index};
    table->sign = table->spec.optimizer.kind == SL_OPTIMIZER_SUM;
    table->witness_next = sl_hash_random(&oracle->random);
    table->shared_count = SHARED_OF_SHARD * shards;
    table->shared = calloc(table->shared_count, sizeof *table->shared);
    table->shared_shard = calloc(table->shared_count, sizeof *table->shared_shard);
    table->shared_evicted = calloc(table->shared_count, sizeof *table->shared_evicted);
    table->slots_used = calloc(shards, sizeof *table->slots_used);
    sl_assert(table->shared != NULL && table->shared_shard != NULL && table->slots_used != NULL &&
              table->shared_evicted != NULL);
    if (table->spec.kind == SL_TABLE_SPARSE) {
        init_sparse(oracle, table);
    } else {
        init_dense(oracle, table);
    }
}

void sl_sim_oracle_init(struct sl_sim_oracle *oracle, const struct sl_sim_plan *plan,
                        struct sl_sim_world *world)
{
    *oracle = (struct sl_sim_oracle){
        .plan = plan, .random = sl_hash_key(plan->seed ^ 0x5eed), .world = world};
    oracle->task_instance = calloc(sl_sim_plan_tasks(plan), sizeof *oracle->task_instance);
    oracle->replied_ns =
        calloc((size_t)plan->ps_count * plan->network.host_count, sizeof *oracle->replied_ns);
    oracle->shards = calloc(plan->shard_count, sizeof *oracle->shards);
    sl_assert(oracle->task_instance != NULL && oracle->replied_ns != NULL &&
              oracle->shards != NULL);
    for (uint32_t task = 0; task < sl_sim_plan_tasks(plan); task++) {
        oracle->task_instance[task] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < plan->table_count; i++) {
        init_table(oracle, i);
    }
}

void sl_sim_oracle_fini(struct sl_sim_oracle *oracle)
{
    for (uint32_t i = 0; i < oracle->plan->table_count; i++) {
        free(oracle->tables[i].shared);
        free(oracle->tables[i].shared_shard);
        free(oracle->tables[i].shared_evicted);
        free(oracle->tables[i].slots_used);
    }
    free(oracle->task_instance);
    free(oracle->instances);
    free(oracle->units);
    free(oracle->parts);
    free(oracle->looks);
    free(oracle->sights);
    free(oracle->checkpoints);
    free(oracle->replied_ns);
    free(oracle->shards);
}

uint32_t sl_sim_oracle_instance(struct sl_sim_oracle *oracle, uint32_t task, bool has_clock)
{
    GROW(oracle, instance);
    uint32_t index = oracle->instance_count++;
    oracle->instances[index] =
        (struct sl_sim_instance){.task = task,
                                 .has_clock = has_clock,
                                 .replaces = has_clock && oracle->task_instance[task] != UINT32_MAX,
                                 .started_ns = SL_CLOCK_NEVER};
    if (has_clock) {
        oracle->task_instance[task] = index;
    }
    return index;
}

void sl_sim_oracle_started(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t clock)
{
    struct sl_sim_instance *started = &oracle->instances[instance];
    started->first_clock = started->ticks = started->ticks_acked = clock;
    started->started_ns = oracle->world->now_ns;
    started->counts =
        started->has_clock && !started->tainted && !started->forgotten && clock != UINT32_MAX;
    sl_sim_world_note(oracle->world, "worker/%d starts at iteration %d", (int)started->task,
                      (int)clock);
}

void sl_sim_oracle_gone(struct sl_sim_oracle *oracle, uint32_t instance)
{
    oracle->instances[instance].counts = false;
    oracle->instances[instance].is_gone = true;
}

void sl_sim_oracle_lost(struct sl_sim_oracle *oracle, uint32_t task)
{
    const struct sl_sim_instance *instance = &oracle->instances[oracle->task_instance[task]];
    if (oracle->plan->network.link_bytes_per_ms != 0 && !instance->is_gone) {
        sl_sim_fail(&oracle->breach, "leases",
                    "worker/%u is lost, though no fault is as long as its lease", task);
    }
}

void sl_sim_oracle_taint(struct sl_sim_oracle *oracle, uint32_t instance)
{
    if (!oracle->instances[instance].tainted) {
        sl_sim_world_note(oracle->world, "worker/%d may be believed lost from now on",
                          (int)oracle->instances[instance].task);
    }
    oracle->instances[instance].tainted = true;
    oracle->instances[instance].counts = false;
}

/* A push of more elements is sent in several sections of about the same size: the first has at
 * least half as many. */
#define SECTION_ELEMENTS (((uint64_t)512 << 10) / sizeof(float))

/* Two elements of the shard's range that no one else pushes. */
static bool take_slots(struct sl_sim_oracle *oracle, struct sl_sim_table *table, uint32_t shard,
                       uint64_t witness[2])
{
    uint32_t shards = oracle->plan->shard_count;
    uint32_t range = sl_partition_range_of_shard(table->id, shard, shards);
    uint64_t start = sl_partition_range_start(table->spec.length, shards, range);
    uint64_t end = sl_partition_range_start(table->spec.length, shards, range + 1);
    /* A long push is sent in sections of whole blocks (worker/client/encode_dense.c): both in the
     * first.
     */
    const uint64_t whole = end - end % SL_PARTITION_BLOCK_ELEMENTS;
    if (end - start > SECTION_ELEMENTS) {
        end = start + SECTION_ELEMENTS / 2;
    } else if (whole > start) {
        end = whole;
    }
    uint32_t used = table->slots_used[range];
    if (start + SHARED_OF_RANGE + 2ULL * (used + 1) > end) {
        return false;
    }
    table->slots_used[range]++;
    witness[0] = start + SHARED_OF_RANGE + used;
    witness[1] = end - 1 - used;
    return true;
}

uint32_t sl_sim_oracle_push(struct sl_sim_oracle *oracle, uint32_t table_index, uint32_t shard,
                            uint32_t instance, uint32_t clock)
{
    struct sl_sim_table *table = &oracle->tables[table_index];
    struct sl_sim_unit unit = {.table = table_index,
                               .shard = shard,
                               .instance = instance,
                               .clock = clock,
                               .eraser = SL_SIM_NO_UNIT,
                               .part_first = oracle->part_count,
                               .begun_ns = oracle->world->now_ns,
                               .ended_ns = SL_CLOCK_NEVER,
                               .ticked_ns = SL_CLOCK_NEVER,
                               .epoch_begun = oracle->shards[shard].epoch,
                               .seen = -1};
    if (table->spec.kind == SL_TABLE_SPARSE) {
        unit.witness[0] = key_of(oracle, table, shard);
        unit.witness[1] = key_of(oracle, table, shard);
        unit.bait = key_of(oracle, table, shard);
    } else if (!take_slots(oracle, table, shard, unit.witness)) {
        return SL_SIM_NO_UNIT;
    }
    GROW(oracle, unit);
    oracle->units[oracle->unit_count] = unit;
    return oracle->unit_count++;
}

uint64_t sl_sim_oracle_key(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shard)
{
    return key_of(oracle, &oracle->tables[table], shard);
}

uint32_t sl_sim_oracle_erases(struct sl_sim_oracle *oracle, uint32_t index)
{
    const struct sl_sim_unit *of = &oracle->units[index];
    const uint32_t end = index < ERASE_BACK ? 0 : index - ERASE_BACK;
    for (uint32_t i = index; i > end; i--) {
        struct sl_sim_unit *unit = &oracle->units[i - 1];
        if (unit->table == of->table && unit->shard == of->shard &&
            unit->instance == of->instance && unit->acked && unit->eraser == SL_SIM_NO_UNIT) {
            unit->eraser = index;
            return i - 1;
        }
    }
    return SL_SIM_NO_UNIT;
}

/* An erase of a BSP table may come before the push, which is buffered. */
bool sl_sim_oracle_is_erased(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit,
                             uint64_t before_ns)
{
    if (unit->eraser == SL_SIM_NO_UNIT ||
        oracle->tables[unit->table].spec.consistency.mode == SL_CONSISTENCY_BSP) {
        return false;
    }
    const struct sl_sim_unit *eraser = &oracle->units[unit->eraser];
    return eraser->acked && eraser->fate == SL_SIM_FATE_SURE && eraser->ended_ns < before_ns;
}

void sl_sim_oracle_adds(struct sl_sim_oracle *oracle, uint32_t unit, uint32_t shared,
                        int32_t gradient)
{
    GROW(oracle, part);
    sl_assert(unit == oracle->unit_count - 1); /* the parts of a unit lie together */
    oracle->parts[oracle->part_count++] =
        (struct sl_sim_part){.shared = shared, .gradient = gradient};
    oracle->units[unit].part_count++;
}

void sl_sim_oracle_pushed(struct sl_sim_oracle *oracle, uint32_t index, bool acked)
{
    struct sl_sim_unit *unit = &oracle->units[index];
    sl_assert(unit->ended_ns == SL_CLOCK_NEVER);
    unit->ended_ns = oracle->world->now_ns;
    unit->epoch_ended = oracle->shards[unit->shard].epoch;
    unit->acked = acked;
    if (acked && oracle->acknowledged != NULL) {
        oracle->acknowledged(oracle, unit);
    }
}

struct sl_sim_checkpoint *sl_sim_oracle_add_checkpoint(struct sl_sim_oracle *oracle)
{
    GROW(oracle, checkpoint);
    return &oracle->checkpoints[oracle->checkpoint_count++];
}

/* The ticks of a task that certainly counts, else UINT32_MAX. */
static uint32_t certain_ticks(const struct sl_sim_oracle *oracle, uint32_t task)
{
    uint32_t newest = oracle->task_instance[task];
    if (newest == UINT32_MAX) {
        /* Never heard of: the first worker_count tasks count from the start. */
        return task < oracle->plan->worker_count ? 0 : UINT32_MAX;
    }
    const struct sl_sim_instance *instance = &oracle->instances[newest];
    return instance->counts ? instance->ticks : UINT32_MAX;
}

void sl_sim_oracle_pulled(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t table,
                          uint32_t clock)
{
    const struct sl_consistency_spec *mode = &oracle->tables[table].spec.consistency;
    if (mode->mode == SL_CONSISTENCY_ASP || !oracle->instances[instance].counts) {
        return;
    }
    for (uint32_t task = 0; task < oracle->plan->worker_count; task++) {
        uint32_t ticks = certain_ticks(oracle, task);
        if (ticks != UINT32_MAX && ticks + mode->staleness < clock) {
            sl_sim_fail(&oracle->breach, "staleness",
                        "worker/%u has pulled from t%u for iteration %u, with staleness %u, "
                        "while worker/%u has ticked %u iterations only",
                        oracle->instances[instance].task, table, clock, mode->staleness, task,
                        ticks);
        }
    }
}

uint32_t sl_sim_oracle_look(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t table,
                            uint32_t clock, bool undisturbed, uint64_t begun_ns)
{
    GROW(oracle, look);
    oracle->looks[oracle->look_count] = (struct sl_sim_look){.instance = instance,
                                                             .table = table,
                                                             .clock = clock,
                                                             .undisturbed = undisturbed,
                                                             .begun_ns = begun_ns};
    return oracle->look_count++;
}

/* Of a witness: 0 or 1, else a breach. */
static bool read_witness(struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit, float value)
{
    float one = oracle->tables[unit->table].sign != 0 ? 1.0F : -1.0F;
    if (value != 0.0F && value != one) {
        sl_sim_fail(&oracle->breach, "exactly-once",
                    "a witness of worker/%u's push of iteration %u to t%u on shard %u is "
                    "%g: carried out %g times",
                    oracle->instances[unit->instance].task, unit->clock, unit->table, unit->shard,
                    (double)value, (double)(value / one));
    }
    return value != 0.0F;
}

void sl_sim_oracle_saw(struct sl_sim_oracle *oracle, uint32_t look, uint32_t unit, float first,
                       float second)
{
    const struct sl_sim_unit *of = &oracle->units[unit];
    struct sl_sim_sight sight = {.unit = unit, .look = look};
    sight.seen[0] = read_witness(oracle, of, first);
    sight.seen[1] = read_witness(oracle, of, second);
    bool stages = oracle->tables[of->table].spec.consistency.mode == SL_CONSISTENCY_BSP;
    uint32_t epoch = oracle->shards[of->shard].epoch;
    const bool is_newest = oracle->looks[look].begun_ns > oracle->shards[of->shard].doubled_ns;
    bool must = !stages && of->acked && of->ended_ns < oracle->looks[look].begun_ns &&
                of->epoch_begun == epoch && is_newest;
    const bool may_lack = sl_sim_oracle_may_lack(of, 0) || sl_sim_oracle_may_lack(of, 1);
    if (is_newest) {
        sl_sim_oracle_check_evicted(oracle, of, 0, first, oracle->looks[look].begun_ns, "a pull");
        sl_sim_oracle_check_evicted(oracle, of, 1, second, oracle->looks[look].begun_ns, "a pull");
    }
    if (must && ((!sight.seen[0] && !sl_sim_oracle_may_lack(of, 0)) ||
                 (!sight.seen[1] && !sl_sim_oracle_may_lack(of, 1)))) {
        sl_sim_fail(&oracle->breach, "exactly-once",
                    "a pull from t%u does not show a push to shard %u that was acknowledged "
                    "before it began",
                    of->table, of->shard);
    }
    if (stages && !may_lack && epoch == of->epoch_begun) {
        GROW(oracle, sight);
        oracle->sights[oracle->sight_count++] = sight;
    }
}
