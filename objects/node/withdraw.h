/* Ends copies: they are not served any more, their fetches are cancelled, and their memory is
 * unregistered, on a thread of the application. */
#ifndef SL_OBJECTS_NODE_WITHDRAW_H
#define SL_OBJECTS_NODE_WITHDRAW_H

#include <stdint.h>

struct sl_objects;
struct sl_objects_copy;

/* On the reactor: sends GONE to the children and DROP to the catalogue, and cancels the fetch. The
 * copy stays in the node's list until its memory is unregistered; one in the pool is freed at once,
 * or after its last use. */
void sl_objects_withdraw(struct sl_objects *node, struct sl_objects_copy *copy, const char *reason);

/* A thread of the application: withdraws the node's copies of the version. For those in memory of
 * callers, waits for the end of their fetches, and unregisters the memory. Errors: NOT_FOUND;
 * DEADLINE: peers still read it. And the same of one copy. */
int sl_objects_withdraw_version(struct sl_objects *node, const char *name, uint64_t version,
                                uint32_t timeout_ms);
int sl_objects_withdraw_copy(struct sl_objects *node, const struct sl_objects_copy *copy,
                             uint32_t timeout_ms);

/* The same for copies that are withdrawn already, as those of a get that failed: this node may have
 * published the version since. */
void sl_objects_withdraw_failed(struct sl_objects *node, const char *name, uint64_t version,
                                uint32_t timeout_ms);

#endif
