#include "tests/sim/elsewhere.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "ps/shard/state.h"
#include "tests/sim/evictions.h"
#include "tests/sim/random.h"
#include "tests/support/shard_stream.h"

#define SALT         0xe15e
#define SHARE        500 /* of 1000 seeds */
#define WAIT_NS      (60 * SL_CLOCK_NS_PER_S)
#define REACTORS_MAX 3
#define SHARDS_MAX   (SL_SIM_PS_MAX * REACTORS_MAX)

struct shards {
    struct sl_shard *items[SHARDS_MAX]; /* by index */
    uint32_t count;
};

static void shards_of(const struct sl_sim_cluster *cluster, struct shards *out)
{
    out->count = cluster->plan->shard_count;
    for (uint32_t i = 0; i < out->count; i++) {
        const struct sl_server *server = sl_sim_cluster_primary(cluster, i);
        sl_assert(server != NULL);
        out->items[i] = server->shard;
        sl_assert(out->items[i] != NULL);
    }
}

/* The newest complete one began when nothing was to come any more. */
static bool has_checkpoint_since(const struct sl_sim_cluster *cluster, uint64_t at_ns)
{
    const struct sl_sim_oracle *oracle = &cluster->oracle;
    uint32_t parts = 0;
    for (uint32_t i = 0; i < oracle->checkpoint_count; i++) {
        const struct sl_sim_checkpoint *checkpoint = &oracle->checkpoints[i];
        parts += checkpoint->number == oracle->complete && checkpoint->begun_ns >= at_ns;
    }
    return parts == cluster->plan->shard_count;
}

static bool is_any_damaged(const struct sl_sim_cluster *cluster)
{
    bool is_damaged = false;
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        is_damaged = is_damaged || cluster->disks[i].was_damaged;
    }
    return is_damaged;
}

/* BSP buffers pushes of workers that a coordinator which began anew does not know of. Shards
 * that go on as those that they were apply them: nobody can come any more. */
static bool keeps_aside(const struct shards *shards)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < shards->count; i++) {
        count += shards->items[i]->push_buffer.entry_count;
    }
    return count > 0;
}

static void draw_plan(const struct sl_sim_plan *from, struct sl_sim_plan *to)
{
    uint64_t random = sl_hash_key(from->seed ^ SALT);
    *to = *from;
    while (to->ps_count == from->ps_count && to->shards_of_ps == from->shards_of_ps) {
        to->ps_count = 1 + sl_sim_below(&random, SL_SIM_PS_MAX);
        to->shards_of_ps = 1 + sl_sim_below(&random, REACTORS_MAX);
    }
    to->shard_count = to->ps_count * to->shards_of_ps;
    to->reactors_of_ps = 1 + sl_sim_below(&random, to->shards_of_ps);
    to->replica = (struct sl_sim_replica_plan){.is_there = false};
    to->ps_at_start = to->ps_count;
    to->moves = false;
    to->fault_count = 0;
    to->memory_bytes_max = 0; /* fewer shards have less in all */
    to->floods = false;
    to->network.has_packets = false;
    to->network.break_per_10000 = to->network.connect_fail_permille = 0;
    to->network.host_count = sl_sim_plan_task_host(to, sl_sim_plan_tasks(to));
    to->disk = (struct sl_sim_disk_plan){
        .is_there = true, .every_ns = 0, .keep = 1, .level = from->disk.level};
}

/* The file, into the folder of that disk, where another ps's may be already. */
static void copy_file(struct memory_disk *to, const char *path, const struct memory_disk_node *node)
{
    char folder[MEMORY_DISK_PATH];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (memory_disk_find(to, folder) == NULL) {
        int err = sl_disk_make_subdir(&to->disk, folder, NULL);
        sl_assert(err == 0);
    }
    memory_disk_put(to, path, node->bytes, node->count);
}

static void copy_disk(struct memory_disk *to, struct memory_disk *from)
{
    for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
        const char *path = from->names[i].path;
        const struct memory_disk_node *node = path[0] == '\0' ? NULL : memory_disk_find(from, path);
        if (node != NULL && !node->is_folder && strstr(path, ".part") == NULL &&
            strncmp(path, SL_SIM_PS_OBJECTS, strlen(SL_SIM_PS_OBJECTS)) != 0) {
            copy_file(to, path, node);
        }
    }
}

/* Each ps gets the folders of all; and who asks is told that these checkpoints were whole. */
static void bring(struct sl_sim_cluster *to, const struct sl_sim_cluster *from)
{
    const struct sl_sim_oracle *oracle = &from->oracle;
    for (uint32_t ps = 0; ps < to->plan->ps_count; ps++) {
        for (uint32_t i = 0; i < from->plan->ps_count; i++) {
            copy_disk(&to->disks[ps].memory, &from->disks[i].memory);
        }
    }
    for (uint32_t i = 0; i < oracle->checkpoint_count; i++) {
        const struct sl_sim_checkpoint *one = &oracle->checkpoints[i];
        const bool is_whole = one->shard == 0 && one->cut_ns != SL_CLOCK_NEVER;
        for (uint32_t shard = 0; is_whole && shard < to->plan->shard_count; shard++) {
            *sl_sim_oracle_add_checkpoint(&to->oracle) =
                (struct sl_sim_checkpoint){.shard = shard, .number = one->number};
        }
    }
}

static uint64_t greatest_step(const struct shards *shards, uint32_t table_id)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < shards->count; i++) {
        const struct sl_shard_table *table = shards->items[i]->tables[table_id];
        step = table != NULL && table->step > step ? table->step : step;
    }
    return step;
}

static void compare_steps(struct sl_sim_oracle *oracle, const struct shards *old,
                          const struct shards *new)
{
    for (uint32_t id = 0; id < oracle->plan->table_count; id++) {
        const uint64_t greatest = greatest_step(old, id);
        for (uint32_t i = 0; i < new->count; i++) {
            const struct sl_shard_table *table = new->items[i]->tables[id];
            const bool is_same = old->count == new->count &&table != NULL;
            const uint64_t want = is_same ? old->items[i]->tables[id]->step : greatest;
            if (table != NULL && table->step != want) {
                sl_sim_fail(&oracle->breach, "elsewhere",
                            "t%u is at step %" PRIu64 " on shard %u of %u, and was at "
                            "%" PRIu64 " on %u shards",
                            id, table->step, i, new->count, want, old->count);
            }
        }
    }
}

static void compare(struct sl_sim_oracle *oracle, const struct sl_sim_cluster *cluster,
                    const struct sl_sim_cluster *other)
{
    struct shards old, new;
    shards_of(cluster, &old);
    shards_of(other, &new);
    if (old.count == new.count && keeps_aside(&old)) {
        return;
    }
    const char *what = shard_stream_differ(old.items, old.count, new.items, new.count);
    if (what != NULL) {
        sl_sim_fail(&oracle->breach, "elsewhere",
                    "checkpoint %" PRIu64 " of %u shards, restored on %u: %s", oracle->complete,
                    old.count, new.count, what);
    }
    compare_steps(oracle, &old, &new);
    sl_sim_oracle_rows(oracle, "elsewhere", new.items, new.count, SL_CLOCK_NEVER, NULL);
}

static void restore(struct sl_sim_cluster *cluster, struct sl_sim_cluster *other)
{
    struct sl_sim_world world = {.seed = cluster->plan->seed, .verbose = cluster->world->verbose};
    struct sl_sim_oracle *oracle = &cluster->oracle;
    static struct sl_sim_plan plan;
    draw_plan(cluster->plan, &plan);
    sl_sim_world_note(oracle->world, "checkpoint %" PRIu64 " is restored by %u ps of %u shards",
                      oracle->complete, plan.ps_count, plan.shards_of_ps);
    sl_sim_cluster_create(other, &plan, &world);
    sl_sim_world_create(&world);
    other->oracle.is_elsewhere = true;
    bring(other, cluster);
    if (sl_sim_cluster_start(other)) {
        compare(oracle, cluster, other);
    } else {
        sl_sim_fail(&oracle->breach, "elsewhere", "%u ps of %u shards: %s: %s", plan.ps_count,
                    plan.shards_of_ps, other->oracle.breach.of, other->oracle.breach.what);
    }
    sl_sim_cluster_fini(other);
    sl_sim_world_fini(&world);
}

void sl_sim_elsewhere_run(struct sl_sim_cluster *cluster)
{
    uint64_t random = sl_hash_key(cluster->plan->seed ^ (SALT + 1));
    const uint64_t began_ns = cluster->world->now_ns;
    sl_sim_evictions_freeze();
    if (!sl_sim_cluster_saves(cluster) || is_any_damaged(cluster) ||
        !sl_sim_chance(&random, SHARE)) {
        return;
    }
    while (sl_sim_world_is_good(cluster->world) && !has_checkpoint_since(cluster, began_ns)) {
        if (cluster->world->now_ns > began_ns + WAIT_NS) {
            sl_sim_fail(&cluster->oracle.breach, "checkpoints",
                        "all have gone, and no checkpoint becomes complete");
        } else {
            sl_sim_world_moment(cluster->world);
        }
    }
    struct sl_sim_cluster *other = calloc(1, sizeof *other);
    sl_assert(other != NULL);
    if (sl_sim_world_is_good(cluster->world)) {
        restore(cluster, other);
    }
    free(other);
}
