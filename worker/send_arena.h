/* Memory that long messages are sent from, which processes of this machine, or a device for RDMA,
 * can read where it lies: steps take what they put their messages together in from here, while
 * there is some. What was used once stays with the process until the end, to be used again. Any
 * thread; takes a lock: for memory that is kept for long. */
#ifndef SL_WORKER_SEND_ARENA_H
#define SL_WORKER_SEND_ARENA_H

#include "core/shared.h"

#define SL_WIRE_MEMORY_UNIT_BYTES (64U << 10)

struct sl_send_arena;

/* bytes: a multiple of the unit. Errors: NO_MEMORY, IO. */
int sl_send_arena_create(size_t bytes, struct sl_send_arena **out);

/* All must have been put back. Nulls *memory; NULL is fine. */
void sl_send_arena_destroy(struct sl_send_arena **memory);

/* At least `bytes` bytes, > 0, aligned to a page; as many as there are go to *taken_bytes. NULL:
 * there is no such piece left. */
void *sl_send_arena_take(struct sl_send_arena *memory, size_t bytes, size_t *taken_bytes);

/* As take has returned it, with *taken_bytes. */
void sl_send_arena_put(struct sl_send_arena *memory, void *piece, size_t taken_bytes);

const struct sl_shared *sl_send_arena_shared(const struct sl_send_arena *memory);

#endif
