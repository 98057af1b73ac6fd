/* Registered memory, which peers read and write in place. Owner reactor. */
#ifndef SL_NET_SHM_REGION_H
#define SL_NET_SHM_REGION_H

#include "net/shm/state.h"

/* Whether [at, at + bytes) lies in the memory at base. */
static inline bool sl_shm_region_holds(const uint8_t *base, size_t base_bytes, const void *at,
                                       size_t bytes)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)base;
    return base != NULL && (uintptr_t)at >= (uintptr_t)base && offset <= base_bytes &&
           bytes <= base_bytes - offset;
}

/* Returns the address of a piece in the memory at base; NULL: it does not lie there. */
static inline uint8_t *sl_shm_region_within(uint8_t *base, uint64_t base_bytes,
                                            const struct sl_shm_piece *piece)
{
    bool lies_there =
        base != NULL && piece->offset <= base_bytes && piece->bytes <= base_bytes - piece->offset;
    return lies_there ? base + piece->offset : NULL;
}

int sl_shm_region_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_shm_region_unregister(struct sl_transport *transport, void *base);

/* Describes memory as a piece of a registered region, after announcing that to the peer. Returns
 * the region; NULL: none has it, it is revoked, or the peer cannot be notified now. */
const struct sl_shm_region *sl_shm_region_piece(struct sl_shm_conn *conn, const void *at,
                                                uint32_t bytes, struct sl_shm_piece *out);

/* Returns the address at which the peer writes the piece of our memory that it names; NULL:
 * invalid. */
uint8_t *sl_shm_region_resolve(struct sl_shm_conn *conn, const struct sl_shm_piece *piece);

/* Withdraws all regions announced on the connection, before it migrates. Returns false if the peer
 * cannot be notified. */
bool sl_shm_region_recall(struct sl_shm_conn *conn);

#endif
