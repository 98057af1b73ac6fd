/* Etcd client sends one request to etcd over its JSON gateway (libcurl), and blocks for the answer.
 * One thread at a time. Allocates per request.
 *
 * It tries the servers in turn, from the one used last, until one answers or the request times out.
 * A server that does not answer is left after a third of the timeout. So a write may happen twice,
 * or happen although an error is reported: callers must send writes that compare a key and can be
 * repeated. Answers are validated, and limited to SL_ETCD_BODY_BYTES_MAX. */
#ifndef SL_NET_STORE_ETCD_H
#define SL_NET_STORE_ETCD_H

#include "net/store/address.h"
#include "net/store/metastore.h"

#define SL_ETCD_BODY_BYTES_MAX (16U << 20) /* per answer */
#define SL_ETCD_READ_BYTES_MAX (64U << 20) /* all pages of one READ */

struct sl_etcd;

/* An address of kind ETCD. Errors: NO_MEMORY. The first call of a process must come before other
 * threads start. */
int sl_etcd_create(const struct sl_metastore_address *address, struct sl_etcd **out);
void sl_etcd_destroy(struct sl_etcd **etcd);

/* Fills in ask->answer, within slightly more than ask->timeout_ns. Does not call `done`. */
void sl_etcd_perform(struct sl_etcd *etcd, struct sl_metastore_request *ask);

#endif
