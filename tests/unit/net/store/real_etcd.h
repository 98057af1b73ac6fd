/* An etcd for tests, where there is one ($STARLING_ETCD, else /usr/bin/etcd): of one server, on
 * ports that no other test is given, in a folder of its own. It dies with the test.
 * Assertions of the test fail when it cannot start. */
#ifndef SL_TESTS_UNIT_PS_METASTORE_REAL_ETCD_H
#define SL_TESTS_UNIT_PS_METASTORE_REAL_ETCD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sl_transport_tls;

struct real_etcd {
    pid_t pid;
    uint16_t port; /* on 127.0.0.1 */
    char directory[64];
};

/* False: there is none, which it says. With tls it shows that certificate, and asks its clients
 * for one of that authority; it may not answer yet. */
bool real_etcd_start(struct real_etcd *etcd, const struct sl_transport_tls *tls);
void real_etcd_stop(struct real_etcd *etcd);

/* A socket that listens on a free port of 127.0.0.1. */
int real_etcd_listen(uint16_t *port);

#endif
