/* Queue pairs between two processes of this machine, made by rdma_cm one after the other, with one
 * completion queue and one registered piece of memory for all. One thread. */
#ifndef SL_BENCH_BARE_VERBS_LINK_H
#define SL_BENCH_BARE_VERBS_LINK_H

#include <stdint.h>

#include "bench/bare_verbs.h"
#include "net/rdma/library.h"

#define SL_BENCH_VERBS_MESSAGE_BYTES 64U
#define SL_BENCH_VERBS_MESSAGES      64U  /* receive buffers of a connection */
#define SL_BENCH_VERBS_SENDS         256U /* work requests of a send queue */

struct sl_bench_verbs_side {
    const struct sl_rdma_library *library;
    struct rdma_event_channel *events;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr, *messages_mr;
    uint32_t count;
    uint64_t bytes; /* of memory */
    uint8_t *memory;
    uint8_t *messages; /* [count][SL_BENCH_VERBS_MESSAGES][SL_BENCH_VERBS_MESSAGE_BYTES] */
    struct rdma_cm_id *listener;
    struct rdma_cm_id *ids[SL_BENCH_BARE_VERBS_CONNECTIONS_MAX];
};

/* For `count` connections and so many bytes of memory. Nothing is closed: the process ends. Errors,
 * logged: UNSUPPORTED, NO_MEMORY, IO. */
int sl_bench_verbs_open(struct sl_bench_verbs_side *side, uint32_t count, uint64_t bytes);

/* Listens; *port is whatever was free. Errors, logged: IO. */
int sl_bench_verbs_listen(struct sl_bench_verbs_side *side, const char *address, uint16_t *port);

/* Until all connections are made. Errors, logged: IO. */
int sl_bench_verbs_accept(struct sl_bench_verbs_side *side);
int sl_bench_verbs_connect(struct sl_bench_verbs_side *side, const char *address, uint16_t port);

/* Posts the receive buffer of this number, of count * MESSAGES: completions say it as wr_id.
 * Errors, logged: IO. */
int sl_bench_verbs_post_receive(struct sl_bench_verbs_side *side, uint32_t number);

#endif
