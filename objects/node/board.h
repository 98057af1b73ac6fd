/* Memory that a node shares with its readers, which map it read-only and poll it with plain loads:
 * no request, no lock. The board has the versions of the names that the node follows. Each view has
 * a table: where its blocks are in the pool. Only this file of the room has atomics.
 *
 * Writer: the node's reactor. Readers: any thread, of processes that got the descriptors. */
#ifndef SL_OBJECTS_NODE_BOARD_H
#define SL_OBJECTS_NODE_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include <starling_objects.h>

#include "core/limits.h"

#define SL_OBJECTS_BOARD_COMMITS 32

/* The board */

/* 0: none. Both are written once for each place of the ring and version: a reader that finds the
 * same version before and after it has read the time has the time of that version. */
struct sl_objects_board_commit {
    _Atomic uint64_t version;
    _Atomic uint64_t time_ns; /* of the commit, on this host's CLOCK_MONOTONIC */
};

struct sl_objects_board_entry {
    _Atomic uint64_t announced; /* the newest version, which goes down if it is removed; 0: none */
    _Atomic uint64_t complete;  /* the newest one that was complete on this host; 0: none */
    /* Of the images of the newest announced version, from the beginning: in the pool. */
    _Atomic uint64_t resident_bytes;
    struct sl_objects_board_commit commits[SL_OBJECTS_BOARD_COMMITS]; /* a ring */
};

struct sl_objects_board {
    _Alignas(4096) struct sl_objects_board_entry entries[SL_LIMIT_OBJECTS_FOLLOWS]; /* pages */
    _Atomic uint64_t read_ns, mib_ns; /* what READs cost of late (cost.h); 0: not known */
};

static inline uint64_t sl_objects_board_announced(const struct sl_objects_board_entry *entry)
{
    return atomic_load_explicit(&entry->announced, memory_order_acquire);
}

static inline uint64_t sl_objects_board_complete(const struct sl_objects_board_entry *entry)
{
    return atomic_load_explicit(&entry->complete, memory_order_acquire);
}

/* Reads a place of the ring. Returns its version; 0: none, or it is just being written. */
static inline uint64_t sl_objects_board_commit(const struct sl_objects_board_entry *entry,
                                               uint32_t place, uint64_t *time_ns)
{
    const struct sl_objects_board_commit *commit = &entry->commits[place];
    const uint64_t version = atomic_load_explicit(&commit->version, memory_order_acquire);
    *time_ns = atomic_load_explicit(&commit->time_ns, memory_order_acquire);
    return atomic_load_explicit(&commit->version, memory_order_relaxed) == version ? version : 0;
}

static inline uint64_t sl_objects_board_resident(const struct sl_objects_board_entry *entry)
{
    return atomic_load_explicit(&entry->resident_bytes, memory_order_relaxed);
}

static inline void sl_objects_board_cost(const struct sl_objects_board *board, uint64_t *read_ns,
                                         uint64_t *mib_ns)
{
    *read_ns = atomic_load_explicit(&board->read_ns, memory_order_relaxed);
    *mib_ns = atomic_load_explicit(&board->mib_ns, memory_order_relaxed);
}

/* How many announced versions are newer than this one; beyond the ring, those of the ring. */
static inline uint32_t sl_objects_board_behind(const struct sl_objects_board_entry *entry,
                                               uint64_t version)
{
    uint32_t behind = 0;
    for (uint32_t i = 0; i < SL_OBJECTS_BOARD_COMMITS; i++) {
        behind += atomic_load_explicit(&entry->commits[i].version, memory_order_relaxed) > version;
    }
    return behind;
}

/* Writer. The version is above all others on the board. number: how many were announced before it.
 */
static inline void sl_objects_board_announce(struct sl_objects_board_entry *entry, uint64_t number,
                                             uint64_t version, uint64_t time_ns)
{
    struct sl_objects_board_commit *commit = &entry->commits[number % SL_OBJECTS_BOARD_COMMITS];
    atomic_store_explicit(&commit->version, 0, memory_order_relaxed);
    atomic_store_explicit(&commit->time_ns, time_ns, memory_order_release);
    atomic_store_explicit(&commit->version, version, memory_order_release);
    atomic_store_explicit(&entry->announced, version, memory_order_release);
}

static inline void sl_objects_board_set_complete(struct sl_objects_board_entry *entry,
                                                 uint64_t version)
{
    atomic_store_explicit(&entry->complete, version, memory_order_release);
}

static inline void sl_objects_board_set_resident(struct sl_objects_board_entry *entry,
                                                 uint64_t bytes)
{
    atomic_store_explicit(&entry->resident_bytes, bytes, memory_order_relaxed);
}

static inline void sl_objects_board_set_cost(struct sl_objects_board *board, uint64_t read_ns,
                                             uint64_t mib_ns)
{
    atomic_store_explicit(&board->read_ns, read_ns, memory_order_relaxed);
    atomic_store_explicit(&board->mib_ns, mib_ns, memory_order_relaxed);
}

/* Writer. All versions from this one on are announced no more; but the newest stays until the next
 * one is announced, if the version is not 0. */
static inline void sl_objects_board_retreat(struct sl_objects_board_entry *entry, uint64_t version)
{
    for (uint32_t i = 0; i < SL_OBJECTS_BOARD_COMMITS; i++) {
        if (atomic_load_explicit(&entry->commits[i].version, memory_order_relaxed) >= version) {
            atomic_store_explicit(&entry->commits[i].version, 0, memory_order_release);
        }
    }
    if (sl_objects_board_complete(entry) > version) {
        atomic_store_explicit(&entry->complete, 0, memory_order_release);
    }
    if (version == 0) {
        atomic_store_explicit(&entry->announced, 0, memory_order_release);
    }
}

/* For another name. No reader has the entry. */
static inline void sl_objects_board_clear(struct sl_objects_board_entry *entry)
{
    atomic_store_explicit(&entry->announced, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->complete, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->resident_bytes, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < SL_OBJECTS_BOARD_COMMITS; i++) {
        atomic_store_explicit(&entry->commits[i].version, 0, memory_order_relaxed);
    }
}

/* Tables of views */

struct sl_objects_table_part {
    uint64_t image_bytes, manifest_bytes;
    /* Of the table's slots: one for each block of the part as it is stored: first those of the
     * manifest, then those of the image. Slot s is the bytes from s * SL_OBJECTS_BLOCK_BYTES on of
     * the pool's memory. */
    uint32_t first_slot, slot_count;
    /* Only without agent, for a part that lies in the application's own memory (slot_count is 0):
     * the address of its struct sl_objects_copy, which the view uses. */
    uint64_t copy;
    _Atomic uint64_t verified_bytes; /* of the image, from its beginning */
};

struct sl_objects_table {
    uint64_t version;
    uint32_t part_count, slot_count;
    struct sl_objects_table_part parts[SL_OBJECTS_PARTS_MAX];
    uint32_t slots[]; /* [slot_count] */
};

static inline uint64_t sl_objects_table_verified(const struct sl_objects_table_part *part)
{
    return atomic_load_explicit(&part->verified_bytes, memory_order_acquire);
}

/* Writer. */
static inline void sl_objects_table_set_verified(struct sl_objects_table_part *part, uint64_t bytes)
{
    atomic_store_explicit(&part->verified_bytes, bytes, memory_order_release);
}

#endif
