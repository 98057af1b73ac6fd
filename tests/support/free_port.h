/* Ports of loopback for tests that listen at a port again, or where nobody must listen. A port of
 * the kernel's choice (:0) is anybody's as soon as its socket is closed. */
#ifndef SL_TESTS_SUPPORT_FREE_PORT_H
#define SL_TESTS_SUPPORT_FREE_PORT_H

#include <stdint.h>

/* A port that nobody listens at, and that no other test is given while this process lives. */
uint16_t free_port(void);

#endif
