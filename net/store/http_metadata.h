/* HTTP metadata client sends one request to a metadata server over HTTP, as Mooncake has them, and
 * blocks for the answer: GET, PUT and DELETE of URL?key=KEY; 404 means that there is no such key.
 * One thread at a time. Allocates per request.
 *
 * Such a server knows neither leases nor comparisons. So only these requests are possible, and all
 * others are answered UNSUPPORTED without being sent: READ of one key, and WRITE of one change of
 * one key with SL_METASTORE_ALWAYS and without a lease. Its answers have no revisions. A server
 * that cannot be reached is tried once. */
#ifndef SL_NET_STORE_HTTP_METADATA_H
#define SL_NET_STORE_HTTP_METADATA_H

#include "net/store/address.h"
#include "net/store/metastore.h"

struct sl_http_metadata;

/* An address of kind HTTP. Errors: NO_MEMORY. The first call of a process must come before other
 * threads start. */
int sl_http_metadata_create(const struct sl_metastore_address *address,
                            struct sl_http_metadata **out);
void sl_http_metadata_destroy(struct sl_http_metadata **store);

/* Fills in ask->answer, within slightly more than ask->timeout_ns. Does not call `done`. */
void sl_http_metadata_perform(struct sl_http_metadata *store, struct sl_metastore_request *ask);

#endif
