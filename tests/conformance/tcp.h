/* Sockets for the tests of TCP. */
#ifndef TESTS_CONFORMANCE_TCP_H
#define TESTS_CONFORMANCE_TCP_H

#include "conformance.h"

/* A blocking TCP socket connected to the endpoint. */
int tcp_connect_raw(const struct sl_endpoint *endpoint);

#endif
