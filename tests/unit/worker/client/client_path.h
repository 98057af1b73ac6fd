/* What the tests of preferred paths share: pulls, their path, and the memory that is lent. */
#ifndef SL_TESTS_UNIT_WORKER_CLIENT_CLIENT_PATH_H
#define SL_TESTS_UNIT_WORKER_CLIENT_CLIENT_PATH_H

#include "tests/unit/worker/client/client_peer.h"

#define NEAR_KEYS 5000 /* their rows are longer than the transport's own buffers take */
extern uint64_t path_keys[NEAR_KEYS + 1];
extern float path_rows[NEAR_KEYS + 4]; /* the last ones are not lent */
#define NEAR_LENT_BYTES (NEAR_KEYS * sizeof *path_rows)

/* The connection that a pull goes over is of this kind, and the link's name says so. */
void path_expect_way(struct peer_world *world, bool path);

/* Whether the client has registered the memory with its transport of the preferred path. */
bool path_is_registered(const struct peer_world *world, const void *base);

/* sl_client_buffer_create and its counterpart wait for the client's reactors, which the test steps:
 * their calls are posted here, and answered in turns. */
extern bool path_memory_is_plain; /* no other process can map it */
void path_call_io(struct peer_world *world, void (*run)(struct sl_control_op *call), void *memory,
                  size_t bytes);

struct sl_step *path_submit_pull(struct peer_world *world, float *to, uint32_t key_count);

#endif
