/* A client of etcd, over libcurl and the JSON gateway: asks, and waits for the answer. One thread
 * at a time, which may wait; allocates as it asks. The servers of one etcd are tried in turn,
 * beginning with the one that answered last, until one answers or the ask's timeout has passed. So
 * a write may happen twice, or though an error is reported; that is for the asker to bear: every
 * write of ours is the same when it happens again, and compares. A server that does not answer is
 * left after a third of the timeout. What comes is checked, and read up to SL_ETCD_BODY_BYTES_MAX.
 */
#ifndef SL_PS_METASTORE_ETCD_H
#define SL_PS_METASTORE_ETCD_H

#include "core/limits.h"
#include "ps/metastore/metastore.h"

#define SL_ETCD_SERVERS_MAX      9
#define SL_ETCD_BODY_BYTES_MAX   (16U << 20) /* of one answer */
#define SL_ETCD_READ_BYTES_MAX   (64U << 20) /* of all pages of a READ */
#define SL_ETCD_CREDENTIAL_BYTES 128

struct sl_etcd_options {
    uint32_t server_count;
    char servers[SL_ETCD_SERVERS_MAX][SL_LIMIT_ENDPOINT_BYTES]; /* "host:port" */
    bool tls;                                                   /* by https */
    const char *authority; /* files; outlive the client; NULL: the system's, or none. Without tls
                            * nothing counts */
    const char *certificate;
    const char *key;
    char user[SL_ETCD_CREDENTIAL_BYTES]; /* "": none */
    char password[SL_ETCD_CREDENTIAL_BYTES];
};

struct sl_etcd;

/* Errors: NO_MEMORY. Before other threads are there, the first time in a process. */
int sl_etcd_create(const struct sl_etcd_options *options, struct sl_etcd **out);
void sl_etcd_destroy(struct sl_etcd **etcd);

/* Fills ask->answer, within ask->timeout_ns and a little more. Does not call `done`. */
void sl_etcd_perform(struct sl_etcd *etcd, struct sl_metastore_request *ask);

#endif
