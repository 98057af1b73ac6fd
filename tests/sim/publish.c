#include "tests/sim/publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "net/transfer/engine.h"
#include "objects/node/node.h"
#include "ps/publish/ps_tables.h"
#include "reactor/port.h"
#include "tests/sim/cluster.h"
#include "tests/sim/evictions.h"
#include "tests/sim/jobs.h"
#include "tests/sim/random.h"

#define LOOK_NS      (50 * SL_CLOCK_NS_PER_MS)
#define POOL_BYTES   (64U << 20)
#define LIST_MS      5000
#define VERSIONS_MAX 4096
#define SHARDS_MAX   (SL_SIM_PS_MAX * SL_SIM_REACTORS_MAX)

/* A ps's node: beside its reactors, on a host of its own. */
struct keeper {
    struct sl_sim_app base;
    struct sl_sim_ps *ps;
    struct sl_transfer *engine;
    struct sl_objects *node;
    struct sl_port_set *ports; /* to the reactors of the ps */
    struct sl_ps_tables_asked asked;
    struct sl_mailbox_lane *lane;
    struct sl_sim_jobs jobs; /* that publish */
};

struct attempt {
    uint64_t begun_ns, ended_ns; /* ended_ns: SL_CLOCK_NEVER: it was not acknowledged */
};

static struct publish {
    struct sl_sim_member member;
    struct sl_sim_network_options options;
    struct sl_sim_cluster *job;
    struct keeper keepers[SL_SIM_PS_MAX];
    struct attempt attempts[SL_SIM_TABLES_MAX][VERSIONS_MAX];
    uint64_t newest[SL_SIM_TABLES_MAX]; /* that was acknowledged */
    uint32_t published, judged;
    struct sl_sim_breach breach;
} publish;

/* Keepers */

static int publish_tables(void *ctx, struct sl_objects *node,
                          const struct sl_objects_tables_request *request,
                          struct sl_objects_tables_state *state, struct sl_reason *reason)
{
    struct keeper *keeper = ctx;
    return sl_ps_tables_publish(&keeper->ps->wiring, keeper->ports, &keeper->asked, node, request,
                                state, reason);
}

static void post(void *ctx, struct sl_offload_job *job)
{
    sl_sim_jobs_post(&((struct keeper *)ctx)->jobs, job);
}

static void create_node(struct keeper *keeper)
{
    const struct sl_sim_ps_options *ps = &keeper->ps->options;
    char catalogue[SL_SIM_APP_NAME_BYTES], name[SL_SIM_APP_NAME_BYTES], directory[16];
    sl_sim_app_name(publish.member.first_host + publish.options.host_count, catalogue);
    sl_sim_app_name(keeper->base.process.host, name);
    (void)snprintf(directory, sizeof directory, SL_SIM_PS_OBJECTS "%u", ps->task_index);
    keeper->engine = sl_sim_app_engine(&keeper->base, name);
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = keeper->engine,
                                               .catalogue = catalogue,
                                               .host = name,
                                               .agent = "off",
                                               .pool_bytes = POOL_BYTES};
    struct sl_objects_setup setup = {.is_keeper = true,
                                     .directory = directory,
                                     .disk = &ps->disk->memory.disk,
                                     .publish_tables = publish_tables,
                                     .post = post};
    sl_sim_app_setup(&keeper->base, &setup);
    int err = sl_port_set_create(keeper->ps->process.reactors, ps->reactor_count, NULL,
                                 sizeof(struct sl_port), &keeper->ports);
    sl_assert(err == 0);
    err = sl_objects_create_with(&options, &setup, &keeper->node);
    sl_assert(err == 0);
    err = sl_objects_copy_open_pool(keeper->node); /* it waits under a lock */
    sl_assert(err == 0);
}

static void life(void *ctx)
{
    struct keeper *keeper = ctx;
    create_node(keeper);
    while (!keeper->base.dying) {
        sl_sim_app_sleep(&keeper->base, LOOK_NS);
    }
    sl_objects_destroy(&keeper->node); /* waits for jobs */
    sl_sim_jobs_close(&keeper->jobs, 1);
    sl_port_set_destroy(&keeper->ports, NULL);
    sl_transfer_destroy(&keeper->engine);
    sl_mailbox_lane_close(&keeper->lane);
}

static void nothing(struct sl_sim_app *app)
{
}

static struct sl_sim_app *start(struct sl_sim_member *member, uint32_t host, uint64_t seed,
                                uint64_t offset_ns)
{
    static const struct sl_sim_app_actions actions = {.ended = nothing, .fini = nothing};
    struct keeper *keeper = &publish.keepers[host];
    struct sl_sim_process *process = &keeper->base.process;
    *keeper = (struct keeper){.base = {.actions = &actions, .random = seed},
                              .ps = &publish.job->ps[host]};
    sl_sim_process_init(process, member->world->network, member->first_host + host, "keeper", 1,
                        sl_hash_random(&keeper->base.random), offset_ns, publish.job->plan->gap_ns);
    const int err = sl_mailbox_lane_open(sl_reactor_mailbox(process->reactors[0]), &keeper->lane);
    sl_assert(err == 0);
    sl_sim_app_thread(&keeper->base, life, keeper);
    sl_sim_jobs_init(&keeper->jobs, &keeper->base, keeper->lane);
    keeper->ps->beside = &keeper->base;
    return &keeper->base;
}

/* Its jobs have mail for the ps. */
static void stepped(struct sl_sim_member *member, uint32_t host)
{
    if (publish.job->ps[host].running) {
        sl_sim_process_look(&publish.job->ps[host].process);
    }
    sl_sim_app_judge_pool(&publish.keepers[host].base, publish.keepers[host].node, member->breach);
}

static void look(struct sl_sim_member *member)
{
}

static void ps_started(struct sl_sim_ps *ps)
{
    publish.member.places[ps->options.task_index].start_ns = publish.member.world->now_ns;
}

static void ps_ends(struct sl_sim_ps *ps, bool silent)
{
    publish.member.places[ps->options.task_index].start_ns = SL_CLOCK_NEVER;
    if (ps->beside != NULL && publish.member.places[ps->options.task_index].app != NULL) {
        struct memory_disk *disk = &ps->options.disk->memory;
        const bool was_stopped = disk->stopped;
        disk->stopped = true; /* a process that was killed removes nothing */
        sl_sim_world_kill_app(&publish.member, ps->options.task_index, silent);
        disk->stopped = was_stopped;
    }
}

/* Versions */

uint32_t sl_sim_publish_models(void)
{
    return publish.job->plan->table_count;
}

bool sl_sim_publish_may_fail(void)
{
    const struct sl_sim_plan *plan = publish.job->plan;
    bool has_iterations = false;
    for (uint32_t i = 0; i < plan->table_count; i++) {
        has_iterations |= plan->tables[i].consistency.mode == SL_CONSISTENCY_BSP;
    }
    return has_iterations && publish.job->oracle.has_crashed;
}

bool sl_sim_publish_has(uint32_t model)
{
    return publish.newest[model] > 0;
}

/* Of every second version: a part of the publisher's own, in two blocks. */
static int add_own(void *ctx, struct sl_publication *publication)
{
    static uint8_t bytes[SL_OBJECTS_BLOCK_BYTES + 5];
    const struct sl_object_tensor own = {.name = ".own",
                                         .type = SL_OBJECT_U8,
                                         .rank = 1,
                                         .shape = {sizeof bytes},
                                         .data = bytes,
                                         .bytes = sizeof bytes};
    return sl_publish_tensor(publication, &own);
}

int sl_sim_publish_version(struct sl_objects *node, uint32_t model, uint64_t version,
                           uint32_t timeout_ms)
{
    char name[16], note[32], tables[64] = "t0";
    sl_assert(version < VERSIONS_MAX);
    (void)snprintf(name, sizeof name, "m%u", model);
    (void)snprintf(note, sizeof note, "%u@%" PRIu64, model, version);
    if (model > 0) {
        (void)snprintf(tables, sizeof tables, "t%u", model);
    }
    for (uint32_t i = 1; model == 0 && i < sl_sim_publish_models(); i++) {
        (void)snprintf(tables + strlen(tables), sizeof tables - strlen(tables), ",t%u", i);
    }
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .note = note, .version = version};
    struct attempt *attempt = &publish.attempts[model][version];
    uint64_t made = 0;
    *attempt =
        (struct attempt){.begun_ns = publish.member.world->now_ns, .ended_ns = SL_CLOCK_NEVER};
    const struct sl_objects_tables_own own = {.add = add_own};
    const int err = sl_objects_tables_publish(node, &options, tables, version % 2 ? &own : NULL,
                                              timeout_ms, &made);
    sl_sim_world_note(publish.member.world, "%s@%" PRIu64 ": %s%s%s", name, version,
                      sl_err_name(err), err != 0 ? ": " : "",
                      err != 0 ? sl_objects_last_error() : "");
    if (err == 0) {
        attempt->ended_ns = publish.member.world->now_ns;
        publish.newest[model] = version;
        publish.published++;
    }
    return err;
}

void sl_sim_publish_judge_kept(struct sl_objects *node)
{
    struct sl_object_list *list;
    if (sl_object_list(node, "m", LIST_MS, &list) != 0) {
        sl_sim_fail(&publish.breach, "kept", "no list: %s", sl_objects_last_error());
        return;
    }
    for (uint32_t model = 0; model < sl_sim_publish_models(); model++) {
        char name[16];
        bool is_there = publish.newest[model] == 0;
        (void)snprintf(name, sizeof name, "m%u", model);
        for (uint64_t i = 0; i < list->count; i++) {
            is_there = is_there || (strcmp(list->entries[i].name, name) == 0 &&
                                    list->entries[i].version >= publish.newest[model]);
        }
        if (!is_there) {
            sl_sim_fail(&publish.breach, "kept", "%s@%" PRIu64 " was acknowledged, and is gone",
                        name, publish.newest[model]);
        }
    }
    sl_object_list_free(&list);
}

/* Rows */

struct rows {
    const uint64_t *keys;
    const float *values;
    uint64_t count, dim;
};

struct judge {
    struct sl_sim_oracle *oracle;
    const struct attempt *attempt;
    char name[32];
    uint32_t table;
    struct rows shards[SHARDS_MAX];
    uint8_t *is_there;  /* [unit_count] */
    uint32_t clock_max; /* of BSP: of pushes that are there, and 1 */
};

/* The first column of the key; of a dense table, the element. Absent rows have zeros. */
static float value_at(const struct judge *judge, uint32_t shard, uint64_t key)
{
    const struct sl_sim_table *table = &judge->oracle->tables[judge->table];
    const struct rows *rows = &judge->shards[shard];
    uint64_t row = key, column = 0, first = 0, end = rows->count;
    if (table->spec.kind != SL_TABLE_SPARSE) {
        row = key / SL_PARTITION_BLOCK_ELEMENTS;
        column = key % SL_PARTITION_BLOCK_ELEMENTS;
    }
    while (first < end) {
        const uint64_t middle = first + (end - first) / 2;
        if (rows->keys[middle] < row) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first < rows->count && rows->keys[first] == row
               ? rows->values[first * rows->dim + column]
               : 0;
}

static void fail_unit(struct judge *judge, const struct sl_sim_unit *unit, const char *what)
{
    sl_sim_fail(&publish.breach, "published",
                "%s, begun at %" PRIu64 " us: worker/%u's push of iteration %u to t%u on shard %u, "
                "%s at %" PRIu64 " us, is %s",
                judge->name, sl_sim_us(judge->attempt->begun_ns),
                judge->oracle->instances[unit->instance].task, unit->clock, judge->table,
                unit->shard, unit->acked ? "acknowledged" : "not acknowledged",
                sl_sim_us(unit->acked ? unit->ended_ns : unit->begun_ns), what);
}

static bool has_iterations(const struct judge *judge)
{
    return judge->oracle->tables[judge->table].spec.consistency.mode == SL_CONSISTENCY_BSP;
}

/* All of a push or nothing; what was acknowledged before is there, and what began later is not. */
static void judge_unit(struct judge *judge, uint32_t index)
{
    const struct sl_sim_unit *unit = &judge->oracle->units[index];
    const float one = judge->oracle->tables[judge->table].sign != 0 ? 1.0F : -1.0F;
    const float first = value_at(judge, unit->shard, unit->witness[0]);
    const float second = value_at(judge, unit->shard, unit->witness[1]);
    const bool is_there = first != 0;
    const bool must = unit->acked && unit->fate == SL_SIM_FATE_SURE && !has_iterations(judge) &&
                      unit->ended_ns < judge->attempt->begun_ns;
    judge->is_there[index] = is_there;
    if (first != second || (is_there && first != one)) {
        fail_unit(judge, unit, "there in part");
    } else if (is_there && unit->begun_ns > judge->attempt->ended_ns) {
        fail_unit(judge, unit, "there before it began");
    } else if (must && !is_there) {
        fail_unit(judge, unit, "not there");
    }
    if (is_there && has_iterations(judge) && unit->clock + 1 > judge->clock_max) {
        judge->clock_max = unit->clock + 1;
    }
}

/* Every shard has all iterations that some shard has. */
static void judge_iteration(struct judge *judge, uint32_t index)
{
    const struct sl_sim_unit *unit = &judge->oracle->units[index];
    const struct sl_sim_instance *instance = &judge->oracle->instances[unit->instance];
    if (!judge->is_there[index] && unit->acked && unit->ticked_ns != SL_CLOCK_NEVER &&
        unit->fate == SL_SIM_FATE_SURE && !instance->tainted && !instance->forgotten &&
        unit->clock < judge->clock_max) {
        fail_unit(judge, unit, "not there, but its iteration is there on another shard");
    }
}

/* What workers share is the sum of the pushes that are there. */
static void judge_shared(struct judge *judge, const float *sums)
{
    const struct sl_sim_table *table = &judge->oracle->tables[judge->table];
    for (uint32_t i = 0; i < table->shared_count; i++) {
        const float want = table->sign != 0 ? sums[i] : -sums[i];
        const float value = value_at(judge, table->shared_shard[i], table->shared[i]);
        if (value != want) {
            sl_sim_fail(&publish.breach, "published",
                        "%s: shared key %u of t%u is %g; the pushes that are there add up to %g",
                        judge->name, i, judge->table, (double)value, (double)want);
        }
    }
}

static void judge_table(struct judge *judge)
{
    const struct sl_sim_oracle *oracle = judge->oracle;
    float *sums = calloc(oracle->tables[judge->table].shared_count + 1, sizeof *sums);
    judge->is_there = calloc(oracle->unit_count + 1, 1);
    sl_assert(sums != NULL && judge->is_there != NULL);
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->table == judge->table) {
            judge_unit(judge, i);
        }
        for (uint32_t k = 0; judge->is_there[i] != 0 && k < unit->part_count; k++) {
            const struct sl_sim_part *part = &oracle->parts[unit->part_first + k];
            sums[part->shared] += (float)part->gradient;
        }
    }
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        if (oracle->units[i].table == judge->table) {
            judge_iteration(judge, i);
        }
    }
    judge_shared(judge, sums);
    free(sums);
    free(judge->is_there);
}

/* Of a table with a policy, each shard's rows are those of the moment of its snapshot. */
static void judge_rows(struct judge *judge)
{
    for (uint32_t i = 0; i < publish.job->plan->shard_count; i++) {
        const struct rows *rows = &judge->shards[i];
        if (!sl_sim_evictions_are_rows(i, judge->table, rows->keys, rows->values, rows->count,
                                       rows->dim, judge->attempt->begun_ns,
                                       judge->attempt->ended_ns)) {
            sl_sim_fail(&publish.breach, "published",
                        "%s: the %" PRIu64 " rows of t%u on shard %u were there at no moment",
                        judge->name, rows->count, judge->table, i);
        }
    }
}

/* Finds the rows of the table. */
static uint32_t find_rows(struct judge *judge, const struct sl_object_tensor *tensors,
                          uint32_t count)
{
    uint32_t found = 0, table, shard;
    char kind[5];
    for (uint32_t i = 0; i < count; i++) {
        if (sscanf(tensors[i].name, "t%u/%4[a-z].%u", &table, kind, &shard) != 3 ||
            table != judge->table || shard >= SHARDS_MAX) {
            continue;
        }
        struct rows *rows = &judge->shards[shard];
        found++;
        rows->count = tensors[i].shape[0];
        if (kind[0] == 'k') {
            rows->keys = tensors[i].data;
        } else {
            rows->values = tensors[i].data;
            rows->dim = tensors[i].shape[1];
        }
    }
    return found;
}

void sl_sim_publish_judge_rows(uint32_t model, uint64_t version,
                               const struct sl_object_tensor *tensors, uint32_t count)
{
    const struct sl_sim_plan *plan = publish.job->plan;
    const uint32_t last = model == 0 ? plan->table_count - 1 : model;
    publish.judged++;
    for (uint32_t table = model; table <= last; table++) {
        struct judge judge = {.oracle = &publish.job->oracle,
                              .attempt = &publish.attempts[model][version],
                              .table = table};
        (void)snprintf(judge.name, sizeof judge.name, "m%u@%" PRIu64, model, version);
        if (find_rows(&judge, tensors, count) != 2 * plan->shard_count) {
            sl_sim_fail(&publish.breach, "published", "%s has not the rows of t%u of all shards",
                        judge.name, table);
            return;
        }
        if (sl_sim_oracle_forgets_rows(judge.oracle, table)) {
            judge_rows(&judge);
        } else {
            judge_table(&judge);
        }
    }
}

/* The nodes of a run */

static void make(const struct sl_sim_choice *choice, struct sl_sim_world *world)
{
    static const struct sl_sim_member_actions actions = {
        .start = start, .stepped = stepped, .look = look};
    struct sl_sim_cluster *job = SL_CONTAINER_OF(world->members[0], struct sl_sim_cluster, member);
    publish = (struct publish){.member = {.actions = &actions,
                                          .breach = &publish.breach,
                                          .random = sl_hash_key(world->seed ^ 0x9b115),
                                          .options = &publish.options,
                                          .is_background = true},
                               .options.host_count = job->plan->ps_count,
                               .job = job};
    sl_sim_world_add(world, &publish.member);
    job->ps_started = ps_started;
    job->ps_ends = ps_ends;
}

static void begin(void)
{
    sl_sim_world_schedule_faults(&publish.member);
}

static void judge(void)
{
    if (publish.member.world->verbose) {
        printf("%u versions of tables published, %u judged\n", publish.published, publish.judged);
    }
}

static void fini(void)
{
}

const struct sl_sim_kind sl_sim_kind_publish = {
    .make = make, .begin = begin, .judge = judge, .fini = fini};
