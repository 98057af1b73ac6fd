/* Processes for tests to kill. They are made, one for each order, by a process that was forked
 * before this one had threads, connections or devices. One nursery in a program. */
#ifndef SL_TESTS_CONFORMANCE_NURSERY_H
#define SL_TESTS_CONFORMANCE_NURSERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "conformance.h"

/* Before everything else. live: what such a process does, which does not return; its order has
 * order_bytes. False: there is none. */
bool nursery_open(size_t order_bytes, void (*live)(const void *order));
/* Returns when the processes that are left have nobody to come to; they may go on. */
void nursery_close(void);

/* The process that lives by this order from now on. */
pid_t nursery_bear(const void *order);

/* For those that live: connects, again and again: on a machine that stands still it may take longer
 * than its deadline. */
struct peer *nursery_connect(struct node *node, const struct sl_endpoint *endpoint);
/* Sends, and checks what is echoed, until the process is killed; one message in four is long, of
 * less than long_bytes. */
_Noreturn void nursery_send(struct peer *peer, uint64_t seed, uint32_t long_bytes);

#endif
