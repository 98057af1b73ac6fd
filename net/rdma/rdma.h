/* The RDMA transport: reliable connected queue pairs, made by rdma_cm, on InfiniBand and RoCE.
 * - Short frames are sent by SEND, several to a packet, into buffers shared by all connections of a
 *   reactor and a device. Credit keeps senders within the receiver's buffers.
 * - A long reply to a request with a reply buffer is written there by RDMA WRITE.
 * - Any other long payload is read by its receiver, from the sender's memory to where `sink` says.
 * libibverbs and librdmacm are loaded at first use (library.h). Owner reactor, which must have a
 * ring. Wire format: docs/rdma-protocol.md. */
#ifndef SL_NET_RDMA_RDMA_H
#define SL_NET_RDMA_RDMA_H

#include "net/transport.h"

/* The operations of the transport. NULL: not built in, or a library is missing; *why says which
 * (static string). Option `medium`: a struct sl_rdma_library in place of the system's, or NULL.
 * Any thread. */
const struct sl_transport_ops *sl_rdma_find(const char **why);

#endif
