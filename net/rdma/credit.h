/* Credit: how many packets each side may send. Owner reactor. */
#ifndef SL_NET_RDMA_CREDIT_H
#define SL_NET_RDMA_CREDIT_H

#include "net/rdma/state.h"

/* Fills limit, done and flags of an outgoing packet. */
void sl_rdma_credit_tell(struct sl_rdma_conn *conn, struct sl_rdma_packet *packet);

/* Takes limit, done and flags of a received packet. Errors: PROTOCOL. */
int sl_rdma_credit_heard(struct sl_rdma_conn *conn, const struct sl_rdma_packet *packet);

/* A counted packet of the peer has returned its buffer. */
void sl_rdma_credit_consumed(struct sl_rdma_conn *conn);

/* Whether the peer needs a CREDIT_UPDATE although nothing is queued. */
bool sl_rdma_credit_owes(const struct sl_rdma_conn *conn);

static inline bool sl_rdma_credit_left(const struct sl_rdma_conn *conn)
{
    return conn->credit.counted_sent != conn->credit.limit_theirs;
}

#endif
