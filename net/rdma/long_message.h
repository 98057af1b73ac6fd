/* Frames that need a packet other than FRAMES: long payloads, and requests with a reply buffer.
 * Owner reactor. */
#ifndef SL_NET_RDMA_LONG_MESSAGE_H
#define SL_NET_RDMA_LONG_MESSAGE_H

#include "net/rdma/send_batch.h"

/* One frame of an entry. */
struct sl_rdma_view {
    struct sl_rdma_entry *entry;
    const uint8_t *head; /* header, and payload behind it */
    const uint8_t *tail; /* rest of the payload */
    uint32_t head_bytes, tail_bytes;
    uint32_t head_left; /* bytes left of the entry's head, including this frame */
};

/* Whether the frame needs a packet other than FRAMES. */
bool sl_rdma_long_is(const struct sl_rdma_conn *conn, const struct sl_rdma_view *view);

/* Makes the packet, and the work requests in front of it. False: not now, or the connection has
 * ended. */
bool sl_rdma_long_pack(struct sl_rdma_send_batch *batch, const struct sl_rdma_view *view,
                       bool more);

/* Frees what the frames of the entry needed. */
void sl_rdma_long_drop(struct sl_rdma_entry *entry);

#endif
