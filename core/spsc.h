/* A bounded queue of fixed-size items from one producer thread to one consumer thread: Lamport's
 * ring. Each side caches the other's index, so that a cache line moves only when the cached index
 * is exhausted. The caller owns the storage: item_bytes * capacity bytes, capacity a power of
 * two. */
#ifndef SL_CORE_SPSC_H
#define SL_CORE_SPSC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SL_SPSC_CACHE_LINE 64

struct sl_spsc {
    uint8_t *items;
    uint32_t item_bytes;
    uint32_t mask; /* capacity - 1 */

    _Alignas(SL_SPSC_CACHE_LINE) _Atomic uint32_t tail; /* written by the producer */
    uint32_t head_seen;                                 /* the producer's cached head */

    _Alignas(SL_SPSC_CACHE_LINE) _Atomic uint32_t head; /* written by the consumer */
    uint32_t tail_seen;                                 /* the consumer's cached tail */
};

static inline void sl_spsc_init(struct sl_spsc *ring, void *items, uint32_t item_bytes,
                                uint32_t capacity)
{
    memset(ring, 0, sizeof *ring);
    ring->items = items;
    ring->item_bytes = item_bytes;
    ring->mask = capacity - 1;
}

/* Producer. False when full. */
static inline bool sl_spsc_push(struct sl_spsc *ring, const void *item)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_seen > ring->mask) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_seen > ring->mask) {
            return false;
        }
    }
    memcpy(ring->items + (size_t)(tail & ring->mask) * ring->item_bytes, item, ring->item_bytes);
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

/* Consumer. False when empty. */
static inline bool sl_spsc_pop(struct sl_spsc *ring, void *item)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->tail_seen) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head == ring->tail_seen) {
            return false;
        }
    }
    memcpy(item, ring->items + (size_t)(head & ring->mask) * ring->item_bytes, ring->item_bytes);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}

/* Consumer. Takes nothing. */
static inline bool sl_spsc_empty(struct sl_spsc *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    return head == atomic_load_explicit(&ring->tail, memory_order_acquire);
}

#endif
