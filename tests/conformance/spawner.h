/* Processes for tests to kill. The spawner forks one for each order; it is itself a process that
 * was forked before the test had threads, connections or devices. One spawner in a program. */
#ifndef SL_TESTS_CONFORMANCE_SPAWNER_H
#define SL_TESTS_CONFORMANCE_SPAWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "conformance.h"

/* Starts the spawner; before everything else. live: the work of each process, which does not
 * return; its order has order_bytes. False: the spawner cannot be started. */
bool spawner_open(size_t order_bytes, void (*live)(const void *order));
/* Stops the spawner. Processes that are left are killed with it. */
void spawner_close(void);

/* Forks a process that works by this order. Returns its id. */
pid_t spawner_fork(const void *order);

/* In such a process: connects, again and again, because on a busy machine a connection may miss its
 * deadline. */
struct peer *spawner_connect(struct node *node, const struct sl_endpoint *endpoint);
/* Sends messages, and checks their echoes, until the process is killed; one message in four is
 * long, below long_bytes. */
_Noreturn void spawner_send(struct peer *peer, uint64_t seed, uint32_t long_bytes);

#endif
