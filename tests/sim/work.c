#include "tests/sim/work.h"

#include <inttypes.h>
#include <math.h>
#include <starling_rows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/partition.h"
#include "tests/sim/random.h"

/* A step may end so long after its deadline: a disconnect gives what was taken a second. */
#define LATE_NS    (1500 * SL_CLOCK_NS_PER_MS)

#define LOOK_UNITS 12  /* that one pull looks at */
#define LOOK_BACK  200 /* how far it goes back for them */

int sl_sim_work_begin(struct sl_sim_work *work, struct sl_client *client,
                      struct sl_sim_oracle *oracle, struct sl_sim_process *process,
                      uint32_t instance, struct sl_table *const *tables, uint64_t *random,
                      uint32_t clock)
{
    *work = (struct sl_sim_work){.oracle = oracle,
                                 .process = process,
                                 .random = random,
                                 .tables = tables,
                                 .instance = instance,
                                 .clock = clock,
                                 .unit_first = oracle->unit_count,
                                 .unit_end = oracle->unit_count};
    return sl_step_begin(client, clock, &work->step);
}

static struct sl_sim_operation *add_operation(struct sl_sim_work *work, uint32_t table)
{
    sl_assert(work->operation_count < SL_SIM_WORK_OPERATIONS);
    struct sl_sim_operation *operation = &work->operations[work->operation_count++];
    *operation = (struct sl_sim_operation){.table = table};
    return operation;
}

static void *allocate(size_t count, size_t item_bytes)
{
    void *memory = calloc(count + 1, item_bytes);
    sl_assert(memory != NULL);
    return memory;
}

static uint32_t dim_of(const struct sl_sim_work *work, const struct sl_sim_operation *operation)
{
    uint32_t dim = work->oracle->tables[operation->table].spec.dim;
    return dim == 0 ? 1 : dim;
}

static uint32_t add_key(struct sl_sim_operation *operation, uint64_t key)
{
    if (operation->key_count == operation->key_capacity) {
        operation->key_capacity = operation->key_capacity == 0 ? 32 : 2 * operation->key_capacity;
        operation->keys =
            realloc(operation->keys, operation->key_capacity * sizeof *operation->keys);
        sl_assert(operation->keys != NULL);
    }
    operation->keys[operation->key_count] = key;
    return operation->key_count++;
}

/* The pull's rows first_at and second_at are the unit's witnesses. */
static void watch(struct sl_sim_operation *operation, uint32_t unit, uint32_t first_at,
                  uint32_t second_at)
{
    if (operation->watched_count == operation->watched_capacity) {
        uint32_t capacity = operation->watched_capacity == 0 ? 16 : 2 * operation->watched_capacity;
        operation->watched_capacity = capacity;
        operation->units = realloc(operation->units, capacity * sizeof *operation->units);
        operation->watched_at =
            realloc(operation->watched_at, 2 * capacity * sizeof *operation->watched_at);
        sl_assert(operation->units != NULL && operation->watched_at != NULL);
    }
    uint32_t at = operation->watched_count++;
    operation->units[at] = unit;
    operation->watched_at[2 * at] = first_at;
    operation->watched_at[2 * at + 1] = second_at;
}

static int32_t draw_gradient(struct sl_sim_work *work)
{
    return (int32_t)sl_sim_below(work->random, 17) - 8;
}

/* Sets the rate of the next push, and divides its gradients where there is a learning rate to
 * multiply: the values are the same, unless a rate is lost. Powers of two keep them exact. */
static void set_rate(struct sl_sim_work *work, struct sl_sim_operation *operation, uint64_t count)
{
    static const float rates[] = {1, 1, 0.5F, 4};
    const struct sl_sim_oracle *oracle = work->oracle;
    const enum sl_optimizer_kind kind = oracle->tables[operation->table].spec.optimizer.kind;
    const uint64_t draw = sl_hash_key(oracle->plan->seed ^ (uint64_t)oracle->unit_count << 32);
    const float rate = kind == SL_OPTIMIZER_ADAGRAD ? 1 : rates[draw % 4];
    int err = sl_step_set_rate(work->step, rate);
    sl_assert(err == 0);
    for (uint64_t i = 0; kind == SL_OPTIMIZER_SGD && i < count; i++) {
        operation->gradients[i] /= rate;
    }
}

/* Chooses precisions for the operations that follow, in half of the seeds. All that is pushed, and
 * what oracles look at in pulls, has the same value in each. */
static void set_encoding(struct sl_sim_work *work, uint32_t table)
{
    const struct sl_sim_oracle *oracle = work->oracle;
    const uint64_t seed = oracle->plan->seed;
    const bool is_dense = oracle->tables[table].spec.kind == SL_TABLE_DENSE;
    const uint64_t draw = sl_hash_key(seed ^ (uint64_t)(oracle->unit_count + 1) << 32);
    if (sl_hash_key(seed) % 2 == 0) {
        int err = sl_step_set_encoding(work->step, (enum sl_precision)(draw % (is_dense ? 3 : 4)),
                                       (enum sl_precision)(draw >> 8 & 3));
        sl_assert(err == 0);
    }
}

/* Adds a key that only this push has, with a gradient of 1. Where keys wait for admission it comes
 * so often before, with gradients of 0, that this one counts whether others are dropped or not. */
static uint32_t add_own_key(struct sl_sim_work *work, struct sl_sim_operation *operation,
                            uint64_t key, int32_t *gradients)
{
    const uint32_t times = work->oracle->tables[operation->table].spec.policy.admit_count;
    for (uint32_t i = 1; i < times; i++) {
        (void)add_key(operation, key);
    }
    const uint32_t at = add_key(operation, key);
    gradients[at] = 1;
    return at;
}

/* What a step does to baits of earlier ones after its push. */
enum { ERASE, ASSIGN, AFTER_COUNT };

/* One shard's part of a sparse push: witness, shared keys, witness, bait. Perhaps an earlier bait
 * is erased or assigned in the same step. */
static void push_keys(struct sl_sim_work *work, struct sl_sim_operation *operation,
                      struct sl_sim_operation *const *after, uint32_t shard, int32_t *gradients)
{
    struct sl_sim_oracle *oracle = work->oracle;
    const struct sl_sim_table *table = &oracle->tables[operation->table];
    uint32_t unit =
        sl_sim_oracle_push(oracle, operation->table, shard, work->instance, work->clock);
    const uint32_t first = add_own_key(work, operation, oracle->units[unit].witness[0], gradients);
    uint32_t picks = oracle->plan->keys_of_push;
    for (uint32_t i = 0; i < picks; i++) {
        uint32_t shared =
            shard + oracle->plan->shard_count *
                        sl_sim_below(work->random, table->shared_count / oracle->plan->shard_count);
        uint32_t at = add_key(operation, table->shared[shared]);
        gradients[at] = draw_gradient(work);
        sl_sim_oracle_adds(oracle, unit, shared, gradients[at]);
    }
    const uint32_t second = add_own_key(work, operation, oracle->units[unit].witness[1], gradients);
    watch(operation, unit, first, second);
    (void)add_own_key(work, operation, oracle->units[unit].bait, gradients);
    for (uint32_t i = 0; i < oracle->plan->keys_aside; i++) {
        gradients[add_key(operation, sl_sim_oracle_key(oracle, operation->table, shard))] = 1;
    }
    const bool erases = sl_sim_chance(work->random, 400);
    const uint32_t erased = erases ? sl_sim_oracle_erases(oracle, unit) : SL_SIM_NO_UNIT;
    if (erased != SL_SIM_NO_UNIT) {
        oracle->units[erased].is_assigned = sl_sim_chance(work->random, 500);
        (void)add_key(after[oracle->units[erased].is_assigned], oracle->units[erased].bait);
    }
}

static int assign(struct sl_sim_work *work, struct sl_sim_operation *operation)
{
    const bool grows = work->oracle->tables[operation->table].sign != 0;
    const uint32_t count = operation->key_count * dim_of(work, operation);
    operation->gradients = allocate(count, sizeof(float));
    for (uint32_t i = 0; i < count; i++) {
        operation->gradients[i] = grows ? SL_SIM_ASSIGNED : -SL_SIM_ASSIGNED;
    }
    return sl_step_assign(work->step, work->tables[operation->table], operation->keys,
                          operation->key_count, operation->gradients);
}

static int push_sparse(struct sl_sim_work *work, struct sl_sim_operation *operation, bool pull_too)
{
    struct sl_sim_operation *const after[AFTER_COUNT] = {
        [ERASE] = add_operation(work, operation->table),
        [ASSIGN] = add_operation(work, operation->table),
    };
    const struct sl_sim_plan *plan = work->oracle->plan;
    uint32_t dim = dim_of(work, operation);
    const uint32_t times = work->oracle->tables[operation->table].spec.policy.admit_count;
    const uint32_t own = SL_SIM_OWN_KEYS * (times > 0 ? times : 1);
    int32_t *gradients =
        allocate((size_t)plan->shard_count * (plan->keys_of_push + own + plan->keys_aside),
                 sizeof *gradients);
    uint32_t sure = sl_sim_below(work->random, plan->shard_count);
    for (uint32_t i = 0; i < plan->shard_count; i++) {
        uint32_t shard = (sure + i) % plan->shard_count;
        if (i == 0 || sl_sim_chance(work->random, 700)) {
            push_keys(work, operation, after, shard, gradients);
        }
    }
    operation->gradients = allocate((size_t)operation->key_count * dim, sizeof(float));
    for (uint32_t i = 0; i < operation->key_count * dim; i++) {
        operation->gradients[i] = (float)gradients[i / dim];
    }
    free(gradients);
    set_rate(work, operation, (uint64_t)operation->key_count * dim);
    struct sl_table *table = work->tables[operation->table];
    int err = 0;
    if (!pull_too) {
        err = sl_step_push(work->step, table, operation->keys, operation->key_count,
                           operation->gradients);
    } else {
        operation->values = allocate((size_t)operation->key_count * dim, sizeof(float));
        err = sl_step_push_pull(work->step, table, operation->keys, operation->key_count,
                                operation->gradients, operation->values);
    }
    if (err == 0 && after[ERASE]->key_count > 0) {
        err = sl_step_erase(work->step, table, after[ERASE]->keys, after[ERASE]->key_count);
    }
    return err == 0 && after[ASSIGN]->key_count > 0 ? assign(work, after[ASSIGN]) : err;
}

/* One range's part of a dense push. False: no witnesses are left. */
static bool push_range(struct sl_sim_work *work, struct sl_sim_operation *operation, uint32_t range)
{
    struct sl_sim_oracle *oracle = work->oracle;
    const struct sl_sim_table *table = &oracle->tables[operation->table];
    uint32_t shards = oracle->plan->shard_count;
    uint32_t shard = sl_partition_shard_of_range(table->id, range, shards);
    uint32_t unit =
        sl_sim_oracle_push(oracle, operation->table, shard, work->instance, work->clock);
    if (unit == SL_SIM_NO_UNIT) {
        return false;
    }
    uint64_t first = oracle->units[unit].witness[0] - operation->start;
    uint64_t second = oracle->units[unit].witness[1] - operation->start;
    operation->gradients[first] = operation->gradients[second] = 1;
    for (uint32_t i = 0; i < oracle->plan->keys_of_push; i++) {
        uint32_t shared = range + shards * sl_sim_below(work->random, table->shared_count / shards);
        int32_t gradient = draw_gradient(work);
        operation->gradients[table->shared[shared] - operation->start] += (float)gradient;
        sl_sim_oracle_adds(oracle, unit, shared, gradient);
    }
    watch(operation, unit, (uint32_t)first, (uint32_t)second);
    return true;
}

static int push_dense(struct sl_sim_work *work, struct sl_sim_operation *operation, bool pull_too)
{
    const struct sl_sim_table *table = &work->oracle->tables[operation->table];
    uint32_t shards = work->oracle->plan->shard_count;
    uint32_t from = sl_sim_below(work->random, shards);
    uint32_t to = from + 1 + sl_sim_below(work->random, shards - from);
    operation->start = sl_partition_range_start(table->spec.length, shards, from);
    operation->count = sl_partition_range_start(table->spec.length, shards, to) - operation->start;
    operation->gradients = allocate(operation->count, sizeof(float));
    bool booked = false;
    for (uint32_t range = from; range < to; range++) {
        booked = push_range(work, operation, range) || booked;
    }
    set_rate(work, operation, operation->count);
    struct sl_table *opened = work->tables[operation->table];
    if (!pull_too) {
        return sl_step_dense_push(work->step, opened, operation->start, operation->count,
                                  operation->gradients);
    }
    operation->values = allocate(operation->count, sizeof(float));
    return sl_step_dense_push_pull(work->step, opened, operation->start, operation->count,
                                   operation->gradients, operation->values);
}

void sl_sim_work_push(struct sl_sim_work *work, uint32_t table, bool pull_too)
{
    struct sl_sim_operation *operation = add_operation(work, table);
    operation->pushes = true;
    operation->pulls = pull_too;
    operation->clock = work->clock;
    set_encoding(work, table);
    bool sparse = work->oracle->tables[table].spec.kind == SL_TABLE_SPARSE;
    int err =
        sparse ? push_sparse(work, operation, pull_too) : push_dense(work, operation, pull_too);
    sl_assert(err == 0);
    work->unit_end = work->oracle->unit_count;
}

static void look_at(struct sl_sim_work *work, struct sl_sim_operation *operation, uint32_t unit)
{
    const uint64_t *witness = work->oracle->units[unit].witness;
    if (operation->keys == NULL && operation->count > 0) {
        watch(operation, unit, (uint32_t)(witness[0] - operation->start),
              (uint32_t)(witness[1] - operation->start));
    } else {
        uint32_t first = add_key(operation, witness[0]);
        watch(operation, unit, first, add_key(operation, witness[1]));
    }
}

/* Some of the units that were booked lately; of BSP tables those near the iteration. */
static void look_at_some(struct sl_sim_work *work, struct sl_sim_operation *operation)
{
    const struct sl_sim_oracle *oracle = work->oracle;
    bool bsp = oracle->tables[operation->table].spec.consistency.mode == SL_CONSISTENCY_BSP;
    uint32_t left = oracle->unit_count < LOOK_BACK ? oracle->unit_count : LOOK_BACK;
    for (uint32_t i = oracle->unit_count; left > 0 && operation->watched_count < LOOK_UNITS;
         left--) {
        const struct sl_sim_unit *unit = &oracle->units[--i];
        bool near = unit->clock + 2 > operation->clock;
        if (unit->table == operation->table && (!bsp || near) &&
            sl_sim_chance(work->random, bsp ? 700 : 300)) {
            look_at(work, operation, i);
        }
    }
}

/* Pulls of tables that forget rows are finds, most of them. The last key is one that nobody pushes.
 */
static int submit_find(struct sl_sim_work *work, struct sl_sim_operation *operation)
{
    (void)add_key(operation, work->oracle->tables[operation->table].ghost);
    operation->values =
        allocate((size_t)operation->key_count * dim_of(work, operation), sizeof(float));
    operation->found = allocate(operation->key_count, 1);
    return sl_step_find(work->step, work->tables[operation->table], operation->keys,
                        operation->key_count, operation->values, operation->found);
}

static void submit_pull(struct sl_sim_work *work, struct sl_sim_operation *operation)
{
    if (sl_sim_oracle_forgets_rows(work->oracle, operation->table)) {
        int err = submit_find(work, operation);
        sl_assert(err == 0);
        return;
    }
    struct sl_table *table = work->tables[operation->table];
    bool sparse = work->oracle->tables[operation->table].spec.kind == SL_TABLE_SPARSE;
    uint64_t values =
        sparse ? (uint64_t)operation->key_count * dim_of(work, operation) : operation->count;
    operation->values = allocate(values, sizeof(float));
    for (uint64_t i = 0; i < values; i++) {
        operation->values[i] = NAN;
    }
    int err = sparse ? sl_step_pull(work->step, table, operation->keys, operation->key_count,
                                    operation->values)
                     : sl_step_dense_pull(work->step, table, operation->start, operation->count,
                                          operation->values);
    sl_assert(err == 0);
}

void sl_sim_work_pull(struct sl_sim_work *work, uint32_t table, uint32_t clock)
{
    struct sl_sim_operation *operation = add_operation(work, table);
    const struct sl_sim_table *of = &work->oracle->tables[table];
    operation->pulls = true;
    operation->clock = clock;
    if (of->spec.kind == SL_TABLE_DENSE) {
        operation->count = of->spec.length;
    }
    set_encoding(work, table);
    look_at_some(work, operation);
    if (of->spec.kind == SL_TABLE_SPARSE) {
        for (uint32_t i = 0; i < of->shared_count; i++) {
            (void)add_key(operation, of->shared[i]);
        }
    }
    submit_pull(work, operation);
}

void sl_sim_work_pull_all(struct sl_sim_work *work, uint32_t table)
{
    struct sl_sim_operation *operation = add_operation(work, table);
    const struct sl_sim_table *of = &work->oracle->tables[table];
    operation->pulls = true;
    if (of->spec.kind == SL_TABLE_DENSE) {
        operation->count = of->spec.length;
    }
    for (uint32_t i = 0; i < of->shared_count && of->spec.kind == SL_TABLE_SPARSE; i++) {
        (void)add_key(operation, of->shared[i]);
    }
    for (uint32_t i = 0; i < work->oracle->unit_count; i++) {
        if (work->oracle->units[i].table == table) {
            look_at(work, operation, i);
            if (of->spec.kind == SL_TABLE_SPARSE) {
                (void)add_key(operation, work->oracle->units[i].bait);
            }
        }
    }
    submit_pull(work, operation);
}

void sl_sim_work_tick(struct sl_sim_work *work)
{
    int err = sl_step_tick(work->step);
    sl_assert(err == 0);
    work->ticks = true;
}

void sl_sim_work_finish(struct sl_sim_work *work)
{
    int err = sl_step_finish(work->step);
    sl_assert(err == 0);
    work->finishes = true;
}

static void book_end(struct sl_sim_work *work, bool acked)
{
    for (uint32_t i = work->unit_first; i < work->unit_end; i++) {
        sl_sim_oracle_pushed(work->oracle, i, acked);
    }
    work->unit_first = work->unit_end;
}

static void note_step(struct sl_sim_work *work)
{
    char what[120] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < work->operation_count && used < sizeof what; i++) {
        const struct sl_sim_operation *operation = &work->operations[i];
        used += (size_t)snprintf(what + used, sizeof what - used, " %s%s t%u",
                                 operation->pushes ? "push" : "", operation->pulls ? "pull" : "",
                                 operation->table);
    }
    sl_sim_world_note(work->oracle->world, "worker/%d submits iteration %u:%s%s%s, %u ms",
                      (int)work->oracle->instances[work->instance].task, work->clock, what,
                      work->ticks ? " tick" : "", work->finishes ? " finish" : "",
                      work->timeout_ms);
}

int sl_sim_work_submit(struct sl_sim_work *work, uint32_t timeout_ms)
{
    struct sl_sim_instance *instance = &work->oracle->instances[work->instance];
    work->timeout_ms = timeout_ms;
    work->begun_ns = sl_sim_network_now(work->process->network);
    work->deadline_ns = sl_sim_process_now(work->process) + timeout_ms * SL_CLOCK_NS_PER_MS;
    work->paused_ns = work->process->paused_ns;
    work->disturbances = instance->disturbances;
    if (work->ticks) {
        instance->ticks = work->clock + 1;
    }
    if (work->finishes) {
        instance->counts = false;
    }
    note_step(work);
    int err = sl_step_submit(work->step, timeout_ms);
    if (err != 0) {
        book_end(work, false);
        if (work->scan != NULL) {
            sl_sim_scan_close(work->scan);
        }
        sl_sim_work_free(work);
    }
    sl_sim_process_look(work->process);
    return err;
}

/* The deadline is over: it must end soon. */
static void check_late(struct sl_sim_work *work)
{
    uint64_t now_ns = sl_sim_network_now(work->process->network);
    if (sl_sim_process_now(work->process) < work->deadline_ns) {
        return;
    }
    work->late_ns = work->late_ns == 0 ? now_ns : work->late_ns;
    uint64_t paused_ns = work->process->paused_ns - work->paused_ns;
    if (now_ns - work->late_ns > LATE_NS + paused_ns) {
        sl_sim_fail(&work->oracle->breach, "deadline",
                    "a step of worker/%u, begun at %" PRIu64 " us, has not ended %" PRIu64
                    " ms after its deadline",
                    work->oracle->instances[work->instance].task, sl_sim_us(work->begun_ns),
                    sl_sim_ms(now_ns - work->late_ns));
    }
    sl_sim_process_wake(work->process, now_ns + LATE_NS);
}

/* Nothing has happened that a client need notice: then only deadlines that are too short pass. */
static void check_excuse(struct sl_sim_work *work, int err)
{
    const struct sl_sim_oracle *oracle = work->oracle;
    const struct sl_sim_instance *instance = &oracle->instances[work->instance];
    bool was_patient = work->timeout_ms == oracle->plan->step_timeout_ms;
    bool crashed = oracle->has_crashed; /* also by a disk, of which the plan's faults do not tell */
    for (uint32_t i = 0; i < oracle->plan->shard_count; i++) {
        crashed = crashed || oracle->shards[i].epoch > 0;
    }
    bool is_calm = was_patient && !crashed;
    for (uint32_t i = 0; i < oracle->plan->fault_count; i++) {
        is_calm = is_calm && oracle->plan->faults[i].kind >= SL_SIM_FAULT_MOVE;
    }
    if (is_calm || (err != SL_ERR_DEADLINE && !crashed && !instance->tainted)) {
        sl_sim_fail(&work->oracle->breach, "continuity",
                    "a step of worker/%d, begun at %" PRIu64 " us, failed without need: %s: "
                    "%s",
                    (int)instance->task, sl_sim_us(work->begun_ns), sl_err_name(err),
                    sl_step_error(work->step));
    }
}

static void check_error(struct sl_sim_work *work, int err)
{
    const char *text = sl_step_error(work->step);
    if (strstr(text, "ps/") == NULL && strstr(text, "coordinator") == NULL) {
        sl_sim_fail(&work->oracle->breach, "deadline",
                    "the error of a step of worker/%u names nobody: %s: \"%s\"",
                    work->oracle->instances[work->instance].task, sl_err_name(err), text);
    }
}

static void check_values(struct sl_sim_work *work, const struct sl_sim_operation *operation)
{
    uint32_t dim = dim_of(work, operation);
    const uint64_t rows = operation->keys != NULL ? operation->key_count : operation->count;
    for (uint64_t row = 0; row < rows; row++) {
        const float *values = &operation->values[row * dim];
        for (uint32_t column = 0; column < dim; column++) {
            if (isnan(values[column]) || values[column] != values[0]) {
                sl_sim_fail(&work->oracle->breach, "exactly-once",
                            "a pull from t%u gave %g in column %u of row %" PRIu64,
                            operation->table, (double)values[column], column, row);
                return;
            }
        }
    }
}

/* A key without a row reads as zeros, and a find creates none. */
static void check_found(struct sl_sim_work *work, const struct sl_sim_operation *operation)
{
    const uint32_t dim = dim_of(work, operation);
    for (uint32_t i = 0; operation->found != NULL && i < operation->key_count; i++) {
        const bool is_ghost = i + 1 == operation->key_count;
        const float value = operation->values[(size_t)i * dim];
        if (operation->found[i] > (is_ghost ? 0 : 1) || (operation->found[i] == 0 && value != 0)) {
            sl_sim_fail(&work->oracle->breach, "find",
                        "a find of t%u gave %u for key %" PRIu64 ", %s, and %g", operation->table,
                        operation->found[i], operation->keys[i],
                        is_ghost ? "which nobody pushes" : "which may be there", (double)value);
        }
    }
}

static void judge_pull(struct sl_sim_work *work, const struct sl_sim_operation *operation)
{
    struct sl_sim_oracle *oracle = work->oracle;
    const struct sl_sim_instance *instance = &oracle->instances[work->instance];
    uint32_t dim = dim_of(work, operation);
    check_values(work, operation);
    check_found(work, operation);
    if (instance->has_clock) {
        sl_sim_oracle_pulled(oracle, work->instance, operation->table, operation->clock);
    }
    uint32_t look =
        sl_sim_oracle_look(oracle, work->instance, operation->table, operation->clock,
                           instance->disturbances == work->disturbances, work->begun_ns);
    for (uint32_t i = 0; i < operation->watched_count; i++) {
        const uint32_t *at = &operation->watched_at[2 * (size_t)i];
        sl_sim_oracle_saw(oracle, look, operation->units[i], operation->values[(size_t)at[0] * dim],
                          operation->values[(size_t)at[1] * dim]);
    }
}

static void ended_well(struct sl_sim_work *work)
{
    struct sl_sim_instance *instance = &work->oracle->instances[work->instance];
    instance->ticks_acked = work->ticks ? work->clock + 1 : instance->ticks_acked;
    instance->finish_acked = instance->finish_acked || work->finishes;
    if (work->ticks) {
        sl_sim_oracle_ticked(work->oracle, work->instance, work->clock);
    }
    for (uint32_t i = 0; i < work->operation_count; i++) {
        if (work->operations[i].pulls) {
            judge_pull(work, &work->operations[i]);
        }
    }
    if (work->scan != NULL) {
        sl_sim_scan_take(work->scan, work->oracle,
                         work->operations[work->operation_count - 1].values);
    }
}

int sl_sim_work_poll(struct sl_sim_work *work)
{
    if (!sl_step_done(work->step)) {
        check_late(work);
        return SL_ERR_AGAIN;
    }
    check_late(work);
    int err = sl_step_wait(work->step);
    sl_sim_world_note(work->oracle->world, "worker/%d's step of %" PRIu64 " us ends: %s %s",
                      (int)work->oracle->instances[work->instance].task, sl_sim_us(work->begun_ns),
                      sl_err_name(err), sl_step_error(work->step));
    sl_sim_work_note_requests(work);
    book_end(work, err == 0);
    if (err != 0 && work->scan != NULL) {
        sl_sim_scan_close(work->scan);
    }
    if (err == 0) {
        ended_well(work);
    } else if (err != SL_ERR_CLOSED || work->scan == NULL) { /* a scan of another copy */
        check_error(work, err);
        check_excuse(work, err);
    }
    return err;
}

void sl_sim_work_forsake(struct sl_sim_work *work)
{
    sl_sim_work_note_requests(work);
    book_end(work, false);
    if (work->scan != NULL) {
        sl_sim_scan_close(work->scan);
    }
}

void sl_sim_work_free(struct sl_sim_work *work)
{
    sl_step_destroy(&work->step);
    for (uint32_t i = 0; i < work->operation_count; i++) {
        free(work->operations[i].keys);
        free(work->operations[i].gradients);
        free(work->operations[i].values);
        free(work->operations[i].found);
        free(work->operations[i].units);
        free(work->operations[i].watched_at);
    }
    work->operation_count = 0;
}
