#include "tests/sim/disks.h"

#include <string.h>

#include "core/assert.h"
#include "ps/checkpoint/directory.h"
#include "tests/sim/random.h"

#define FAILURES_MAX 3     /* until who starts it gives the checkpoints up */
#define FULL_BYTES   20000 /* that a disk which is about to be full still takes, at most */

static uint64_t after(struct sl_sim_disk *disk, uint32_t every)
{
    return every == 0 || disk->is_calm
               ? MEMORY_DISK_NEVER
               : disk->memory.operations + sl_sim_below(&disk->random, every);
}

void sl_sim_disk_init(struct sl_sim_disk *disk, const struct sl_sim_disk_plan *plan, uint64_t seed)
{
    disk->plan = *plan;
    disk->random = seed;
    memory_disk_init(&disk->memory);
}

void sl_sim_disk_fini(struct sl_sim_disk *disk)
{
    memory_disk_fini(&disk->memory);
}

bool sl_sim_disk_look(struct sl_sim_disk *disk)
{
    struct memory_disk *memory = &disk->memory;
    if (memory->stopped) {
        return true;
    }
    if (memory->fail_at < memory->operations) {
        memory->fail_at = after(disk, disk->plan.fail_every);
    }
    if (!disk->is_calm && disk->plan.full_permille > 0 &&
        sl_sim_chance(&disk->random, disk->plan.full_permille)) {
        memory->bytes_left =
            memory->bytes_left == UINT64_MAX ? sl_sim_below(&disk->random, FULL_BYTES) : UINT64_MAX;
    }
    return false;
}

void sl_sim_disk_crashed(struct sl_sim_disk *disk, bool machine)
{
    if (disk->is_shared) {
        return;
    }
    if (machine || sl_sim_chance(&disk->random, disk->plan.crash_permille)) {
        memory_disk_restart(&disk->memory, sl_hash_random(&disk->random));
    } else {
        memory_disk_reopen(&disk->memory);
    }
}

/* One bit of some file; a second one in it might undo the first. */
static void flip(struct sl_sim_disk *disk)
{
    struct memory_disk *memory = &disk->memory;
    const uint32_t from = sl_sim_below(&disk->random, MEMORY_DISK_NODES);
    for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
        const char *path = memory->names[(from + i) % MEMORY_DISK_NODES].path;
        struct memory_disk_node *node = path[0] == '\0' ? NULL : memory_disk_find(memory, path);
        if (node == NULL || node->is_folder || node->count == 0 || node->is_damaged) {
            continue;
        }
        const uint64_t bit = sl_hash_random(&disk->random) % (node->count * 8);
        node->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        node->is_damaged = disk->was_damaged = true;
        return;
    }
}

void sl_sim_disk_start(struct sl_sim_disk *disk)
{
    if (!disk->is_calm && sl_sim_chance(&disk->random, disk->plan.flip_permille)) {
        flip(disk);
    }
    /* Not each time: a process that has much to read would never get through. */
    const bool is_armed = sl_sim_chance(&disk->random, 500);
    disk->memory.fail_at = is_armed ? after(disk, disk->plan.fail_every) : MEMORY_DISK_NEVER;
    disk->memory.stop_at = is_armed ? after(disk, disk->plan.stop_every) : MEMORY_DISK_NEVER;
}

void sl_sim_disk_failed(struct sl_sim_disk *disk, int err)
{
    disk->failures += !disk->is_shared && err != SL_ERR_IO && err != SL_ERR_DEADLINE;
}

bool sl_sim_disk_falls_back(const struct sl_sim_disk *disk)
{
    return disk->plan.falls_back || disk->failures > 0;
}

bool sl_sim_disk_restores(const struct sl_sim_disk *disk)
{
    return disk->failures < FAILURES_MAX;
}

bool sl_sim_disk_is_hopeless(const struct sl_sim_disk *disk)
{
    return disk->was_damaged && disk->failures >= 2 * FAILURES_MAX;
}

void sl_sim_disk_give_up(struct sl_sim_disk *disk)
{
    disk->failures = FAILURES_MAX;
}

void sl_sim_disk_spare(struct sl_sim_disk *disk, struct sl_sim_disk_troubles *out)
{
    struct memory_disk *memory = &disk->memory;
    *out = (struct sl_sim_disk_troubles){
        .operations = memory->operations, .fail_at = memory->fail_at, .stop_at = memory->stop_at};
    memory->fail_at = memory->stop_at = MEMORY_DISK_NEVER;
}

void sl_sim_disk_go_on(struct sl_sim_disk *disk, const struct sl_sim_disk_troubles *troubles)
{
    disk->memory.operations = troubles->operations;
    disk->memory.fail_at = troubles->fail_at;
    disk->memory.stop_at = troubles->stop_at;
}

void sl_sim_disk_calm(struct sl_sim_disk *disk)
{
    disk->is_calm = true;
    disk->memory.fail_at = disk->memory.stop_at = MEMORY_DISK_NEVER;
    disk->memory.bytes_left = UINT64_MAX;
}

const char *sl_sim_disk_damage(struct sl_sim_disk *disk, uint64_t number)
{
    char folder[SL_DISK_PATH_BYTES];
    int err = sl_checkpoint_directory_path(SL_SIM_DISK_FOLDER, number, NULL, folder, NULL);
    sl_assert(err == 0);
    const size_t bytes = strlen(folder);
    for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
        const char *path = disk->memory.names[i].path;
        if (strncmp(path, folder, bytes) == 0 && path[bytes] == '/' &&
            strstr(path + bytes, ".part") == NULL &&
            disk->memory.nodes[disk->memory.names[i].node].is_damaged) {
            return path;
        }
    }
    return NULL;
}
