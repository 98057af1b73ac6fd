/* RDMA reads of long payloads. Owner reactor. */
#ifndef SL_NET_RDMA_READ_H
#define SL_NET_RDMA_READ_H

#include "net/rdma/receive.h"

/* Reads the payload of the LONG packet at the head. True: it is complete. */
bool sl_rdma_read_next(struct sl_rdma_conn *conn, struct sl_rdma_item *item);

/* Starts reading short payloads of later packets, as far as reads and blocks allow. */
void sl_rdma_read_ahead(struct sl_rdma_conn *conn);

/* Frees what the item holds besides its packet. False: the device still writes there. */
bool sl_rdma_read_drop(struct sl_rdma_conn *conn, struct sl_rdma_item *item);

/* A read that succeeded. */
void sl_rdma_read_complete(struct sl_rdma_conn *conn, uint32_t number);

#endif
