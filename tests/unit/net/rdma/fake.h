/* A device that is not there: the library's functions as far as memory and receive buffers need
 * them, counting, and failing where a test wants it. One thread. */
#include "net/rdma/state.h"

#ifndef TESTS_UNIT_NET_RDMA_FAKE_H
#define TESTS_UNIT_NET_RDMA_FAKE_H

#define RDMA_FAKE_REGIONS 4096
#define RDMA_FAKE_POSTED  4096

struct rdma_fake_region {
    struct ibv_mr mr;
    uintptr_t at;
    size_t bytes;
    int access;
    bool live;
};

struct rdma_fake {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_reactor *reactor; /* stepped */
    struct sl_rdma_library library;
    struct sl_rdma rdma;
    struct sl_rdma_nic nic; /* of rdma, in its list */
    struct ibv_device device;
    struct ibv_context verbs;
    struct ibv_cq cq;
    struct ibv_srq srq;
    struct ibv_pd pd;
    struct rdma_fake_region regions[RDMA_FAKE_REGIONS];
    uint32_t registered, deregistered; /* in all */
    size_t live_bytes;
    size_t live_bytes_max; /* ENOMEM beyond; 0: none */
    uintptr_t read_only;   /* memory of this page cannot be registered for writing: EFAULT */
    uint64_t posted[RDMA_FAKE_POSTED]; /* wr_ids that the device has, the oldest first */
    uint32_t posted_count, post_calls;
    uint32_t post_max; /* ENOMEM beyond */
    uint32_t resizes;
};

/* A rail with a shared receive queue. */
void rdma_fake_init(struct rdma_fake *fake);
void rdma_fake_fini(struct rdma_fake *fake); /* asserts that nothing is registered any more */

/* Time goes by, and timers run. */
void rdma_fake_sleep(struct rdma_fake *fake, uint32_t ms);

/* The live registration that a key is of. */
const struct rdma_fake_region *rdma_fake_region_of(const struct rdma_fake *fake, uint32_t key);

/* The device has filled the oldest buffer that was posted: its completion. */
struct ibv_wc rdma_fake_fill(struct rdma_fake *fake, enum ibv_wc_status status);

#endif
