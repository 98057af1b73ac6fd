/* etcd as a cluster store: the client of ps/metastore/etcd.h on threads of its own, beside the
 * reactor (reactor/offload.h): one that only keeps leases, so that no long write delays that, and
 * one for the rest. Owner reactor. */
#ifndef SL_PS_METASTORE_ETCD_METASTORE_H
#define SL_PS_METASTORE_ETCD_METASTORE_H

#include "ps/metastore/etcd.h"
#include "reactor/reactor.h"

struct sl_etcd_metastore;

/* Errors: NO_MEMORY, IO. */
int sl_etcd_metastore_create(struct sl_reactor *reactor, const struct sl_etcd_options *options,
                             struct sl_etcd_metastore **out);

struct sl_metastore *sl_etcd_metastore_base(struct sl_etcd_metastore *metastore);

/* What is under way is waited for, up to timeout_ns on each thread; all that is not answered yet
 * is, CANCELLED. False: something hangs, so that memory of asks that were not answered must stay
 * until the process ends. Nothing is asked meanwhile. Owner, or after the reactor was joined. Nulls
 * *store. */
bool sl_etcd_metastore_destroy(struct sl_etcd_metastore **metastore, uint64_t timeout_ns);

#endif
