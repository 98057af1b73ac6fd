/* Remote metastore implements the metastore with blocking clients, of etcd (net/store/etcd.h) or of
 * an HTTP server (net/store/http_metadata.h), on two offload threads (reactor/offload.h): one only
 * renews leases, so that long writes do not delay renewals; the other does the rest. Owner reactor.
 */
#ifndef SL_NET_STORE_REMOTE_METASTORE_H
#define SL_NET_STORE_REMOTE_METASTORE_H

#include "net/store/address.h"
#include "net/store/metastore.h"
#include "reactor/reactor.h"

struct sl_remote_metastore;

/* The kind of the address is not NONE. Errors: NO_MEMORY, IO. */
int sl_remote_metastore_create(struct sl_reactor *reactor,
                               const struct sl_metastore_address *address,
                               struct sl_remote_metastore **out);

struct sl_metastore *sl_remote_metastore_base(struct sl_remote_metastore *metastore);

/* Waits up to timeout_ns per thread for requests in flight, then answers all others with CANCELLED.
 * False: a thread hangs, so the memory of unanswered requests must stay valid until the process
 * exits. Send no requests meanwhile. Owner, or any thread after the reactor was joined. Nulls
 * *metastore. */
bool sl_remote_metastore_destroy(struct sl_remote_metastore **metastore, uint64_t timeout_ns);

#endif
