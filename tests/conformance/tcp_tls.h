/* The conformance suite over TCP with TLS. */
#ifndef TESTS_CONFORMANCE_TCP_TLS_H
#define TESTS_CONFORMANCE_TCP_TLS_H

#include "tcp.h"

int tcp_tls_run(const char *name, const char *endpoint, bool polling);

#endif
