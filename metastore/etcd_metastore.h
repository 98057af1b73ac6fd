/* Etcd metastore implements the metastore with etcd clients (metastore/etcd.h) on two offload
 * threads (reactor/offload.h): one only renews leases, so that long writes do not delay renewals;
 * the other does the rest. Owner reactor. */
#ifndef SL_METASTORE_ETCD_METASTORE_H
#define SL_METASTORE_ETCD_METASTORE_H

#include "metastore/etcd.h"
#include "reactor/reactor.h"

struct sl_etcd_metastore;

/* Errors: NO_MEMORY, IO. */
int sl_etcd_metastore_create(struct sl_reactor *reactor, const struct sl_etcd_options *options,
                             struct sl_etcd_metastore **out);

struct sl_metastore *sl_etcd_metastore_base(struct sl_etcd_metastore *metastore);

/* Waits up to timeout_ns per thread for requests in flight, then answers all others with CANCELLED.
 * False: a thread hangs, so the memory of unanswered requests must stay valid until the process
 * exits. Send no requests meanwhile. Owner, or any thread after the reactor was joined. Nulls
 * *metastore. */
bool sl_etcd_metastore_destroy(struct sl_etcd_metastore **metastore, uint64_t timeout_ns);

#endif
