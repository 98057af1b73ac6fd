/* Reply buffers: memory where the peer writes a long reply, by the id of its request. Owner
 * reactor. */
#ifndef SL_NET_RDMA_REPLY_BUFFER_H
#define SL_NET_RDMA_REPLY_BUFFER_H

#include "net/rdma/state.h"

/* Requests of this side */

/* Offers memory of this side as the reply buffer of a request, as pieces for the peer. Returns
 * their count; 0: the request goes without. */
uint8_t sl_rdma_reply_buffer_export(struct sl_rdma_conn *conn, uint64_t request_id, void *at,
                                    uint32_t bytes, struct sl_rdma_remote_sge *remote_sges);

/* The reply has arrived, by whatever path, or the request was not sent. */
void sl_rdma_reply_buffer_unexport(struct sl_rdma_conn *conn, uint64_t request_id);

/* The reply buffer of this side's request, and its size; NULL: none. */
void *sl_rdma_reply_buffer_lent(const struct sl_rdma_conn *conn, uint64_t request_id,
                                uint32_t *bytes);

/* Requests of the peer */

/* Remembers the reply buffer of a request of the peer, until the reply with its id is sent. */
void sl_rdma_reply_buffer_remember(struct sl_rdma_conn *conn, uint64_t request_id,
                                   const struct sl_rdma_remote_sge *remote_sges, uint32_t count);

/* The reply buffer of a request of the peer, with *count pieces; NULL: none of so many bytes. */
const struct sl_rdma_remote_sge *sl_rdma_reply_buffer_find(const struct sl_rdma_conn *conn,
                                                           uint64_t request_id, uint32_t bytes,
                                                           uint32_t *count);

/* The peer's request is answered. */
void sl_rdma_reply_buffer_forget(struct sl_rdma_conn *conn, uint64_t request_id);
void sl_rdma_reply_buffer_close(struct sl_rdma_conn *conn);

#endif
