/* Address of a metastore, as a user writes it:
 *
 *     P2PHANDSHAKE                    no store: the name of a process is its address; any case
 *     etcd://host:port,host:port      etcd; /prefix may follow, which keys then begin with; ";" for
 * "," etcds://host:port               the same with TLS host:port,host:port             as etcd://
 *     http://host:port/path           a metadata server over HTTP, or https://
 *
 * Any thread; no allocation. */
#ifndef SL_NET_STORE_ADDRESS_H
#define SL_NET_STORE_ADDRESS_H

#include "core/etcd_url.h"
#include "net/store/metastore.h"

#define SL_METASTORE_URL_BYTES        512
#define SL_METASTORE_CREDENTIAL_BYTES 128

enum sl_metastore_address_kind {
    SL_METASTORE_ADDRESS_NONE, /* P2PHANDSHAKE */
    SL_METASTORE_ADDRESS_ETCD,
    SL_METASTORE_ADDRESS_HTTP
};

struct sl_metastore_address {
    enum sl_metastore_address_kind kind;
    struct sl_etcd_url etcd;          /* ETCD; the caller puts the prefix before its keys */
    char url[SL_METASTORE_URL_BYTES]; /* HTTP: "http://host:port/path" or https, without a query */

    /* Credentials, which the text does not contain. File names for TLS outlive the client; NULL:
     * the system's, or none. */
    const char *authority, *certificate, *key;
    char user[SL_METASTORE_CREDENTIAL_BYTES]; /* ETCD; "": none */
    char password[SL_METASTORE_CREDENTIAL_BYTES];
};

/* Errors: INVALID; reason has the cause and what is accepted. */
int sl_metastore_address_parse(const char *text, struct sl_metastore_address *out,
                               struct sl_reason *reason);

/* Makes the key `room``name` below the prefix of the address. False: it is too long. */
bool sl_metastore_address_key(const struct sl_metastore_address *address, const char *room,
                              const char *name, char key[SL_METASTORE_KEY_BYTES]);

/* Whether only processes of this host reach the store's first server. */
bool sl_metastore_address_is_loopback(const struct sl_metastore_address *address);

#endif
