/* Address of a metastore, as a user writes it:
 *
 *     P2PHANDSHAKE                    no store: the name of a process is its address
 *     etcd://host:port,host:port      etcd; /prefix may follow, which keys then begin with
 *     etcds://host:port               the same with TLS
 *     host:port,host:port             as etcd://
 *     http://host:port/path           a metadata server over HTTP, or https://
 *
 * Any thread; no allocation. */
#ifndef SL_METASTORE_ADDRESS_H
#define SL_METASTORE_ADDRESS_H

#include "core/reason.h"
#include "metastore/etcd.h"
#include "metastore/http_metadata.h"

enum sl_metastore_address_kind {
    SL_METASTORE_ADDRESS_NONE, /* P2PHANDSHAKE */
    SL_METASTORE_ADDRESS_ETCD,
    SL_METASTORE_ADDRESS_HTTP
};

struct sl_metastore_address {
    enum sl_metastore_address_kind kind;
    struct sl_etcd_options etcd;          /* ETCD: servers, tls; the rest is 0 */
    struct sl_http_metadata_options http; /* HTTP: url; the rest is 0 */
    char prefix[128];                     /* ETCD: "prefix/", before every key; "": none */
};

/* Errors: INVALID; reason has the cause and what is accepted. */
int sl_metastore_address_parse(const char *text, struct sl_metastore_address *out,
                               struct sl_reason *reason);

#endif
