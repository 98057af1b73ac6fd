/* TLS clients that are no transport of ours. */
#ifndef TESTS_CONFORMANCE_SECURE_RAW_H
#define TESTS_CONFORMANCE_SECURE_RAW_H

#include "net/transport.h"

struct ssl_st;

/* What such a client does, beyond what is right. */
struct secure_raw_manner {
    const struct sl_transport_tls *files; /* NULL: shows no certificate */
    int version_max;                      /* 0: any */
    bool renews_keys;                     /* asks for a new key with each piece it sends */
};

/* A blocking socket behind which a thread speaks TLS with the endpoint; -1 when it cannot connect,
 * or the handshake fails. Closing the socket ends it in an orderly way. */
int secure_raw_open(const struct sl_endpoint *endpoint, const struct secure_raw_manner *manner);

/* As an ordinary node. */
int secure_raw_connect(const struct sl_endpoint *endpoint);

/* Waits for the threads; all sockets are closed. */
void secure_raw_join(void);

#endif
