/* HTTP metadata client sends one request to a metadata server over HTTP, as Mooncake has them, and
 * blocks for the answer: GET, PUT and DELETE of URL?key=KEY; 404 means that there is no such key.
 * One thread at a time. Allocates per request.
 *
 * Such a server knows neither leases nor comparisons. So only these requests are possible, and all
 * others are answered UNSUPPORTED without being sent: READ of one key, and WRITE of one change of
 * one key with SL_METASTORE_ALWAYS and without a lease. Its answers have no revisions. A server
 * that cannot be reached is tried once. */
#ifndef SL_METASTORE_HTTP_METADATA_H
#define SL_METASTORE_HTTP_METADATA_H

#include "metastore/metastore.h"

#define SL_HTTP_METADATA_URL_BYTES 512

struct sl_http_metadata_options {
    char url[SL_HTTP_METADATA_URL_BYTES]; /* "http://host:port/path" or https, without a query */
    const char *authority; /* file names; outlive the store; NULL: the system's, or none. Used only
                              with https */
    const char *certificate;
    const char *key;
};

struct sl_http_metadata;

/* Errors: NO_MEMORY. The first call of a process must come before other threads start. */
int sl_http_metadata_create(const struct sl_http_metadata_options *options,
                            struct sl_http_metadata **out);
void sl_http_metadata_destroy(struct sl_http_metadata **store);

/* Fills in ask->answer, within slightly more than ask->timeout_ns. Does not call `done`. */
void sl_http_metadata_perform(struct sl_http_metadata *store, struct sl_metastore_request *ask);

#endif
