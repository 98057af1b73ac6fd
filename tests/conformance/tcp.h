/* The conformance suite's TCP targets: one program each. */
#ifndef TESTS_CONFORMANCE_TCP_H
#define TESTS_CONFORMANCE_TCP_H

#include "conformance.h"

#define SKIPPED 77 /* a program's exit status */

/* A blocking TCP socket connected to the endpoint. */
int tcp_connect_raw(const struct sl_endpoint *endpoint);

/* Whether this machine has the address; programs are skipped where it does not. */
bool tcp_can_listen(const char *endpoint);

/* Runs the suite over an endpoint; the result is the program's exit status. */
int tcp_run(const char *name, const char *endpoint, bool polling,
            void (*cripple)(struct sl_reactor *reactor));

#endif
