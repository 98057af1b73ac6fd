#include "tests/sim/inspect.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/limits.h"
#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/reader.h"
#include "ps/shard/load.h"
#include "tests/sim/evictions.h"
#include "tests/sim/windows.h"

#define EACH_RUN_MAX 6

/* One shard's part of a checkpoint. */
struct part {
    struct sl_sim_cluster *cluster;
    const struct sl_sim_checkpoint *checkpoint;
    struct sl_sim_disk *disk;
    struct sl_checkpoint_chain chain;
    struct sl_shard *shard;
    struct sl_sim_windows windows; /* of the checkpoint itself, not of what it adds to */
    struct sl_reason reason;
};

static bool was_pushed_to(const struct sl_sim_oracle *oracle,
                          const struct sl_sim_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->shard == checkpoint->shard && unit->begun_ns <= checkpoint->cut_ns &&
            unit->ended_ns >= checkpoint->begun_ns) {
            return true;
        }
    }
    return false;
}

static struct sl_sim_disk *disk_of(const struct sl_sim_cluster *cluster,
                                   const struct sl_sim_checkpoint *checkpoint)
{
    return sl_sim_cluster_disk(cluster, checkpoint->shard / cluster->plan->shards_of_ps);
}

/* All ps have their parts, which can be read, and some push may have come during a snapshot. */
static bool is_wanted(const struct sl_sim_cluster *cluster, uint64_t number)
{
    const struct sl_sim_oracle *oracle = &cluster->oracle;
    uint32_t parts = 0, pushed = 0;
    for (uint32_t i = 0; i < oracle->checkpoint_count; i++) {
        const struct sl_sim_checkpoint *checkpoint = &oracle->checkpoints[i];
        const struct sl_sim_disk *disk = disk_of(cluster, checkpoint);
        if (checkpoint->number == number && checkpoint->cut_ns != SL_CLOCK_NEVER &&
            !disk->was_damaged && !disk->memory.stopped) {
            parts++;
            pushed += was_pushed_to(oracle, checkpoint);
        }
    }
    return parts == cluster->plan->shard_count && pushed > 0;
}

static int load_block(struct part *part, struct sl_shard_load *load,
                      const struct sl_snapshot_block *block)
{
    int result = SL_SHARD_AGAIN;
    while (result == SL_SHARD_AGAIN) {
        result = sl_shard_load_block(load, block, SL_LIMIT_TURN_COST, &part->reason);
    }
    return result;
}

static int load_blocks(struct part *part, struct sl_checkpoint_reader *reader,
                       struct sl_shard_load *load, uint32_t index, bool is_newest)
{
    const struct sl_snapshot_block *block;
    int err = sl_checkpoint_reader_next(reader, &block, &part->reason);
    while (err == 0 && block != NULL) {
        int result = load_block(part, load, block);
        if (result >= 0 && block->kind == SL_SNAPSHOT_SESSIONS && is_newest &&
            !sl_sim_windows_of_block(&part->windows, index, block)) {
            sl_reason_set(&part->reason, "a block of sessions is none");
            result = SL_ERR_CORRUPT;
        }
        err = result < 0 ? result : sl_checkpoint_reader_next(reader, &block, &part->reason);
    }
    return err != 0 ? err : sl_shard_load_end(load, &part->reason);
}

static int load_shard(struct part *part, uint32_t index)
{
    uint32_t first = 0;
    int err = sl_checkpoint_reader_first(&part->disk->memory.disk, SL_SIM_DISK_FOLDER, &part->chain,
                                         index, &first, &part->reason);
    for (uint32_t i = first; i < part->chain.count && err == 0; i++) {
        struct sl_checkpoint_reader *reader = NULL;
        struct sl_shard_load load;
        err = sl_shard_load_begin(&load, part->shard, index, part->cluster->plan->shard_count,
                                  &part->reason);
        if (err == 0) {
            err = sl_checkpoint_reader_open(&part->disk->memory.disk, SL_SIM_DISK_FOLDER,
                                            &part->chain.items[i], index, SL_CHECKPOINT_ALL_KINDS,
                                            &reader, &part->reason);
        }
        if (err == 0) {
            err = load_blocks(part, reader, &load, index, i + 1 == part->chain.count);
        }
        sl_checkpoint_reader_close(&reader);
    }
    return err;
}

static int load_part(struct part *part)
{
    const uint32_t shard = part->checkpoint->shard;
    const struct sl_checkpoint_shard_range scope = {.first = shard, .count = 1};
    int err = sl_checkpoint_directory_chain(&part->disk->memory.disk, SL_SIM_DISK_FOLDER,
                                            part->checkpoint->number, scope, NULL, &part->chain,
                                            &part->reason);
    if (err != 0) {
        return err;
    }
    err = load_shard(part, shard);
    sl_checkpoint_chain_fini(&part->chain);
    return err;
}

static void inspect_part(struct sl_sim_cluster *cluster, const struct sl_sim_checkpoint *checkpoint)
{
    struct part part = {
        .cluster = cluster, .checkpoint = checkpoint, .disk = disk_of(cluster, checkpoint)};
    const struct sl_shard_options options = {.index = checkpoint->shard,
                                             .count = cluster->plan->shard_count};
    struct sl_sim_disk_troubles troubles;
    char who[64];
    (void)snprintf(who, sizeof who, "shard %u in checkpoint %u", checkpoint->shard,
                   (uint32_t)checkpoint->number);
    int err = sl_shard_create(&options, &part.shard);
    sl_assert(err == 0);
    sl_sim_disk_spare(part.disk, &troubles);
    err = load_part(&part);
    sl_sim_disk_go_on(part.disk, &troubles);
    if (err != 0) {
        sl_sim_fail(&cluster->oracle.breach, "durability", "%s cannot be read: %s", who,
                    part.reason.text);
    } else {
        struct sl_shard *const shards[] = {part.shard};
        sl_sim_oracle_rows(&cluster->oracle, who, shards, 1, checkpoint->begun_ns, &part.windows);
        sl_sim_evictions_check(&cluster->oracle, who, shards, 1, checkpoint);
    }
    sl_sim_windows_fini(&part.windows);
    sl_shard_destroy(&part.shard);
}

void sl_sim_inspect(struct sl_sim_cluster *cluster, uint64_t number)
{
    const struct sl_sim_oracle *oracle = &cluster->oracle;
    if (cluster->inspected_count == EACH_RUN_MAX || !is_wanted(cluster, number)) {
        return;
    }
    cluster->inspected_count++;
    sl_sim_cluster_note_requests(cluster);
    for (uint32_t i = 0; i < oracle->checkpoint_count; i++) {
        if (oracle->checkpoints[i].number == number) {
            inspect_part(cluster, &oracle->checkpoints[i]);
        }
    }
}
