/* Pairs of Ethernet devices of the kernel's that lead to each other, in a network of the test's
 * own: it ends with the last process that is in it, whatever that dies of. For root; iproute2 makes
 * them. */
#ifndef TESTS_SUPPORT_VETH_H
#define TESTS_SUPPORT_VETH_H

#include <stdbool.h>
#include <stdint.h>

/* The calling process is in a network of its own from now on. Before it has threads. NULL, or why
 * that cannot be; the string lasts. */
const char *veth_enter(void);

/* NAMEa and NAMEb, which are up, and on which the kernel says nothing of itself. NULL, or why not.
 */
const char *veth_add(const char *name, uint32_t queues, uint32_t mtu);

/* False: the link of both ends goes down. */
bool veth_set_up(const char *name, char end, bool up);

#endif
