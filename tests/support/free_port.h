/* Ports of loopback for tests that listen at a port again, or where nobody must listen. When a
 * socket is closed whose port the kernel has chosen (:0), another process may get that port. */
#ifndef SL_TESTS_SUPPORT_FREE_PORT_H
#define SL_TESTS_SUPPORT_FREE_PORT_H

#include <stdint.h>

/* A port that nobody listens at, and that no other test is given while this process lives. */
uint16_t free_port(void);

#endif
