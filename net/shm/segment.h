/* The segment is the memory shared by the two sides of a connection; the connecting side creates
 * it. Each direction has a ring of slots, and an arena for payloads that the peer cannot read
 * elsewhere. Layout: docs/shm-protocol.md. The only file of net/shm with atomics.
 *
 * The peer may write anything here at any time: read each value once, into private memory, and
 * validate the copy. */
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
#define SL_SHM_REGION_ARENA UINT32_MAX /* the sender's arena */
/* flag: in a region exported by the receiver of the frame */
#define SL_SHM_REGION_YOURS (1U << 31)
#define SL_SHM_APART        128 /* two cache lines: they are prefetched in pairs */

/* Location of a part of a payload. Offsets in the arena are relative to its start. */
struct sl_shm_piece {
    uint64_t offset;
    uint32_t region;
    uint32_t bytes;
};

enum sl_shm_kind {
    SL_SHM_INLINE = 1, /* the payload is in the slot */
    SL_SHM_PIECES = 2  /* the payload is the concatenation of the pieces */
};

/* One frame. Frame n of a direction, from 0, is in slot n % SL_SHM_SLOTS with sequence n + 1, which
 * is written last. */
struct sl_shm_slot {
    _Atomic uint32_t sequence;
    uint8_t kind;
    uint8_t piece_count;      /* PIECES: 1 or 2, none empty */
    uint8_t has_reply_buffer; /* 0 or 1 */
    uint8_t zero;
    uint8_t header[SL_FRAME_HEADER_BYTES];
    union {
        uint8_t inlined[SL_SHM_INLINE_BYTES]; /* 16 bytes less with a reply buffer */
        struct sl_shm_piece pieces[2];
        struct {
            uint8_t before[SL_SHM_INLINE_BYTES - sizeof(struct sl_shm_piece)];
            struct sl_shm_piece reply_buffer; /* in a region exported by the sender */
        };
    };
};
static_assert(sizeof(struct sl_shm_slot) == 128, "slot size");
static_assert(offsetof(struct sl_shm_slot, header) == 8, "slot layout");
static_assert(offsetof(struct sl_shm_slot, inlined) == 40, "slot layout");
static_assert(offsetof(struct sl_shm_slot, reply_buffer) == 112, "slot layout");

enum sl_shm_sleep {
    SL_SHM_AWAKE = 0,
    SL_SHM_SLEEPS = 1 << 0,     /* wake for a frame */
    SL_SHM_SLEEPS_FULL = 1 << 1 /* also wake when frames are consumed */
};

/* State that one side writes and the other reads, besides the ring. */
struct sl_shm_side {
    _Alignas(SL_SHM_APART) _Atomic uint32_t consumed; /* received frames that are done with */
    _Alignas(SL_SHM_APART) _Atomic uint32_t sleeping; /* sl_shm_sleep; the waking side clears it */
    /* 1: memory that the side exported may be in other use. Set before its owner gets it back. */
    _Atomic uint32_t gone;
};

struct sl_shm_segment {
    struct sl_shm_side sides[2];                              /* connecting side, accepting side */
    _Alignas(4096) struct sl_shm_slot rings[2][SL_SHM_SLOTS]; /* by sending side */
    _Alignas(4096) uint8_t arenas[2][SL_SHM_ARENA_BYTES];
};
static_assert(offsetof(struct sl_shm_segment, rings) == 4096, "segment layout");
static_assert(offsetof(struct sl_shm_segment, arenas) == 69632, "segment layout");
static_assert(sizeof(struct sl_shm_segment) == 69632 + 2 * SL_SHM_ARENA_BYTES, "segment size");
static_assert(SL_SHM_ARENA_BYTES >= SL_LIMIT_FRAME_PAYLOAD_BYTES, "any payload fits");

/* Whether the slot contains the frame of this number. */
static inline bool sl_shm_slot_ready(const struct sl_shm_slot *slot, uint32_t number)
{
    return atomic_load_explicit(&slot->sequence, memory_order_acquire) == number + 1;
}

/* Copies the slot. The fence keeps the compiler from reading the slot again. */
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

/* Whether everything read before this from the side's exported memory was still valid. */
static inline bool sl_shm_side_stays(const struct sl_shm_side *side)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&side->gone, memory_order_relaxed) == 0;
}

/* Between writing one's own state and reading the peer's: so a side that goes to sleep and a side
 * that sends cannot miss each other. */
static inline void sl_shm_segment_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Whether to wake the peer, for one of `reasons`. True once per sleep. */
static inline bool sl_shm_side_must_wake(struct sl_shm_side *side, uint32_t reasons)
{
    return (atomic_load_explicit(&side->sleeping, memory_order_relaxed) & reasons) != 0 &&
           atomic_exchange(&side->sleeping, SL_SHM_AWAKE) != SL_SHM_AWAKE;
}

#endif
