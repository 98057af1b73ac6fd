/* Two engines in one process, over TCP on loopback: `here` opens the segment of `there`. Memory has
 * guard bytes around it. */
#ifndef SL_TESTS_UNIT_NET_TRANSFER_PAIR_H
#define SL_TESTS_UNIT_NET_TRANSFER_PAIR_H

#include <starling_transfer.h>

#include "tests/support/patience.h"
#include "tests/support/unit.h"

#define PAIR_TIMEOUT_MS SL_TEST_PATIENCE_MS
#define PAIR_GUARD      64
#define PAIR_ALL        (SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE)

struct pair_memory {
    uint8_t *all, *base; /* base: PAIR_GUARD bytes into `all` */
    size_t bytes;
};

struct pair {
    struct sl_transfer *here, *there;
    struct sl_transfer_segment *segment; /* of there */
    struct pair_memory local, remote;    /* registered */
    struct sl_transfer_batch *batch;     /* for up to 4096 requests */
};

/* Fills memory with bytes that depend on their place and the seed. */
void pair_fill(uint8_t *memory, size_t bytes, uint32_t seed);
void pair_expect(const uint8_t *memory, size_t bytes, uint32_t seed);

void pair_memory_init(struct pair_memory *memory, size_t bytes);
/* Checks the guard bytes. */
void pair_memory_fini(struct pair_memory *memory);

/* options: of both engines; NULL: name 127.0.0.1:0, TCP only, or the endpoints of
 * STARLING_TEST_ENDPOINTS in the environment. stall_ms 0: long, since this process may stand still.
 */
void pair_init(struct pair *pair, size_t bytes, const struct sl_transfer_options *options);
void pair_fini(struct pair *pair);

struct sl_transfer_request pair_request(const struct pair *pair, enum sl_transfer_op op,
                                        size_t local, size_t remote, size_t bytes);

/* Submits and waits. */
int pair_run(struct pair *pair, const struct sl_transfer_request *requests, uint32_t count,
             uint32_t timeout_ms);

/* Expects success. */
void pair_move(struct pair *pair, enum sl_transfer_op op, size_t local, size_t remote,
               size_t bytes);

#endif
