/* The memory that the two sides of a connection share, made by the one that connects: for each
 * direction a ring of slots, and an arena for payloads that lie nowhere else where the peer can
 * read. docs/shm.md has the layout. The only place of net/shm with atomics.
 *
 * Whatever is read here was written by the peer, at any moment: it is read once, into memory of
 * this process alone, and checked there. */
#ifndef SL_NET_SHM_SEGMENT_H
#define SL_NET_SHM_SEGMENT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "net/wire/frame.h"

#define SL_SHM_SLOTS        256U /* of one ring; a power of two */
#define SL_SHM_ARENA_BYTES  (8U << 20)
#define SL_SHM_INLINE_BYTES 88U
#define SL_SHM_REGION_ARENA UINT32_MAX /* of who sent the frame */
#define SL_SHM_REGION_YOURS (1U << 31) /* in a region of who receives it, who lent it */
#define SL_SHM_APART        128        /* two cache lines: they are fetched in pairs */

/* Where a part of a payload lies. Offsets of the arena are within it. */
struct sl_shm_piece {
    uint64_t offset;
    uint32_t region;
    uint32_t bytes;
};

enum sl_shm_kind {
    SL_SHM_INLINE = 1, /* the payload is in the slot */
    SL_SHM_PIECES = 2  /* it is the pieces, one behind the other */
};

/* One frame. The n-th of a direction, from 0, is in slot n % SL_SHM_SLOTS, with n + 1 as its
 * sequence, which is written last. */
struct sl_shm_slot {
    _Atomic uint32_t sequence;
    uint8_t kind;
    uint8_t piece_count;      /* PIECES: 1 or 2, none of them empty */
    uint8_t has_reply_buffer; /* 0 or 1 */
    uint8_t zero;
    uint8_t header[SL_FRAME_HEADER_BYTES];
    union {
        uint8_t inlined[SL_SHM_INLINE_BYTES]; /* 16 less when it has a landing */
        struct sl_shm_piece pieces[2];
        struct {
            uint8_t before[SL_SHM_INLINE_BYTES - sizeof(struct sl_shm_piece)];
            struct sl_shm_piece reply_buffer; /* in a region of the sender's */
        };
    };
};
static_assert(sizeof(struct sl_shm_slot) == 128, "slot size");
static_assert(offsetof(struct sl_shm_slot, header) == 8, "slot layout");
static_assert(offsetof(struct sl_shm_slot, inlined) == 40, "slot layout");
static_assert(offsetof(struct sl_shm_slot, reply_buffer) == 112, "slot layout");

enum sl_shm_sleep {
    SL_SHM_AWAKE = 0,
    SL_SHM_SLEEPS = 1 << 0,     /* to be woken for a frame */
    SL_SHM_SLEEPS_FULL = 1 << 1 /* and when frames were consumed */
};

/* What one side writes, and the other reads, beside its ring. */
struct sl_shm_side {
    _Alignas(SL_SHM_APART) _Atomic uint32_t consumed; /* frames received that need nothing more */
    _Alignas(SL_SHM_APART) _Atomic uint32_t sleeping; /* sl_shm_sleep; who wakes it clears it */
    /* 1: what it lent may be something else by now. Set before its owner has it back. */
    _Atomic uint32_t gone;
};

struct sl_shm_segment {
    struct sl_shm_side sides[2]; /* of who connected; of who accepted */
    _Alignas(4096) struct sl_shm_slot rings[2][SL_SHM_SLOTS]; /* that the side sends by */
    _Alignas(4096) uint8_t arenas[2][SL_SHM_ARENA_BYTES];
};
static_assert(offsetof(struct sl_shm_segment, rings) == 4096, "segment layout");
static_assert(offsetof(struct sl_shm_segment, arenas) == 69632, "segment layout");
static_assert(sizeof(struct sl_shm_segment) == 69632 + 2 * SL_SHM_ARENA_BYTES, "segment size");
static_assert(SL_SHM_ARENA_BYTES >= SL_LIMIT_FRAME_PAYLOAD_BYTES, "any payload fits");

/* Whether the slot has the frame of this number. */
static inline bool sl_shm_slot_ready(const struct sl_shm_slot *slot, uint32_t number)
{
    return atomic_load_explicit(&slot->sequence, memory_order_acquire) == number + 1;
}

/* A copy of it, which the compiler takes for nothing else: it must not look again. */
static inline void sl_shm_slot_read(const struct sl_shm_slot *slot, struct sl_shm_slot *out)
{
    memcpy((uint8_t *)out + sizeof out->sequence, (const uint8_t *)slot + sizeof slot->sequence,
           sizeof *slot - sizeof slot->sequence);
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void sl_shm_slot_publish(struct sl_shm_slot *slot, uint32_t number)
{
    atomic_store_explicit(&slot->sequence, number + 1, memory_order_release);
}

static inline uint32_t sl_shm_side_consumed(const struct sl_shm_side *side)
{
    return atomic_load_explicit(&side->consumed, memory_order_acquire);
}

static inline void sl_shm_side_consume(struct sl_shm_side *side, uint32_t consumed)
{
    atomic_store_explicit(&side->consumed, consumed, memory_order_release);
}

static inline void sl_shm_side_set_sleeping(struct sl_shm_side *side, uint32_t sleeping)
{
    atomic_store_explicit(&side->sleeping, sleeping, memory_order_relaxed);
}

static inline void sl_shm_side_leave(struct sl_shm_side *side)
{
    atomic_store(&side->gone, 1);
}

/* Whether all that was read in what the side lent, before this, was what it lent it for. */
static inline bool sl_shm_side_stays(const struct sl_shm_side *side)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&side->gone, memory_order_relaxed) == 0;
}

/* Between what was written and the look at what the other side wrote meanwhile: who goes to sleep
 * and who sends cannot both miss the other. */
static inline void sl_shm_segment_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Whether the peer is to be woken, for one of `reasons`. True once for each time that it sleeps. */
static inline bool sl_shm_side_must_wake(struct sl_shm_side *side, uint32_t reasons)
{
    return (atomic_load_explicit(&side->sleeping, memory_order_relaxed) & reasons) != 0 &&
           atomic_exchange(&side->sleeping, SL_SHM_AWAKE) != SL_SHM_AWAKE;
}

#endif
