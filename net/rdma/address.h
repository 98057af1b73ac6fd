/* The choice of device and local address. Owner reactor. */
#ifndef SL_NET_RDMA_ADDRESS_H
#define SL_NET_RDMA_ADDRESS_H

#include "net/rdma/state.h"

/* Root of sysfs, for tests. Before any transport is opened. */
void sl_rdma_address_set_root(const char *root);

/* Checks the names of option rdma_device. Errors, logged: INVALID (no such device), UNSUPPORTED
 * (iWARP). */
int sl_rdma_address_check(const struct sl_rdma *rdma);

/* 0.0.0.0 or :: */
bool sl_rdma_address_is_any(const struct sockaddr_storage *address);

/* Chooses the local address for connecting to or listening on `endpoint`: by the options
 * rdma_device and rdma_gid_index; among several NICs those near the reactor's NUMA node, in turn.
 * AF_UNSPEC: the system decides. Errors, logged: NOT_FOUND (no such device), INVALID (no such
 * GID). */
int sl_rdma_address_choose(struct sl_rdma *rdma, const struct sl_endpoint *endpoint,
                           const struct sockaddr_storage *to, struct sockaddr_storage *from);

#endif
