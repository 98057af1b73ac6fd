/* The send arena is memory from which long messages are sent without a copy: processes on this
 * machine, or an RDMA device, can read it. Steps take their scratch chunks from it while it lasts.
 * Pages once used stay with the process until the end. Any thread; takes a lock, so not per
 * message. */
#ifndef SL_WORKER_CLIENT_SEND_ARENA_H
#define SL_WORKER_CLIENT_SEND_ARENA_H

#include "core/shared.h"

#define SL_SEND_ARENA_UNIT_BYTES (64U << 10)

struct sl_send_arena;

/* bytes: a multiple of the unit. Errors: NO_MEMORY, IO. */
int sl_send_arena_create(size_t bytes, struct sl_send_arena **out);

/* All pieces must have been put back. Sets *arena to NULL; accepts NULL. */
void sl_send_arena_destroy(struct sl_send_arena **arena);

/* Takes at least `bytes` > 0 bytes, page-aligned; writes the actual size to *taken_bytes. NULL: no
 * such piece is free. */
void *sl_send_arena_take(struct sl_send_arena *arena, size_t bytes, size_t *taken_bytes);

/* Returns a piece, with its *taken_bytes. */
void sl_send_arena_put(struct sl_send_arena *arena, void *piece, size_t taken_bytes);

const struct sl_shared *sl_send_arena_shared(const struct sl_send_arena *arena);

#endif
