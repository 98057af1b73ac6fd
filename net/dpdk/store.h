/* Memory of received messages and parked packets. Owner reactor. */
#ifndef SL_NET_DPDK_STORE_H
#define SL_NET_DPDK_STORE_H

#include "net/dpdk/state.h"

int sl_dpdk_store_open(struct sl_dpdk *dpdk); /* called by open when the netifs are known */
/* Frees all memory, also of messages that were not released. */
void sl_dpdk_store_close(struct sl_dpdk *dpdk);

#define SL_DPDK_SHORT_BYTES (SL_FRAME_HEADER_BYTES + SL_LIMIT_INLINE_PAYLOAD_BYTES)

/* A block is filled from the front and reused when `refs` is 0. It is the token of every message in
 * it. */
struct sl_dpdk_block {
    struct sl_dpdk_store *store;
    struct sl_dpdk_block *next;
    uint32_t refs, used;
    bool of_stranger; /* counts in the strangers' share */
    uint8_t *memory;
};

/* A parked packet, or a copy of its body. */
struct sl_dpdk_parked {
    struct sl_dpdk_parked *next;
    struct sl_dpdk_netif *netif;  /* where it arrived */
    struct sl_dpdk_packet packet; /* token NULL: body is a copy in the store */
    const uint8_t *body;
    uint32_t offset, bytes;
    bool of_stranger; /* counts in the strangers' share */
};

/* The share that a short message's memory counts in. Of a reactor's 128 blocks of 64 KiB, 32 are
 * reserved for messages at the head, so that waiting messages cannot block these. All connections
 * that are not yet authenticated (not sl_conn.is_welcome) together use at most 16. */
enum sl_dpdk_share { SL_DPDK_SHARE_HEAD, SL_DPDK_SHARE_AHEAD, SL_DPDK_SHARE_STRANGER };

/* Returns memory aligned to 8 for at most SL_DPDK_SHORT_BYTES, valid until its block is put. NULL:
 * the share is used up. */
uint8_t *sl_dpdk_store_get(struct sl_dpdk_store *store, uint32_t bytes, enum sl_dpdk_share share,
                           struct sl_dpdk_block **block);
void sl_dpdk_block_put(struct sl_dpdk_block *block);

/* Keeps a packet or, if its token is NULL (misrouted), a copy of its body. NULL: too many are
 * parked. The limit is half of the packets that the port lends, and an eighth of that for
 * strangers. */
struct sl_dpdk_parked *sl_dpdk_park(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                    const struct sl_dpdk_packet *packet,
                                    const struct sl_dpdk_parsed *parsed, bool of_stranger);
void sl_dpdk_unpark(struct sl_dpdk *dpdk, struct sl_dpdk_parked *parked);

#endif
