/* Two connections of one fake device, and the wire between them, which carries what their work
 * requests say when the test wants it. One thread. */
#ifndef TESTS_UNIT_NET_RDMA_WIRE_H
#define TESTS_UNIT_NET_RDMA_WIRE_H

#include "net/rdma/state.h"
#include "tests/unit/net/rdma/fake.h"

#define RDMA_WIRE_REQUESTS 1024
#define RDMA_WIRE_MESSAGES 1024
#define RDMA_WIRE_INLINE   256U

/* A work request as it was posted. */
struct rdma_wire_request {
    enum ibv_wr_opcode opcode;
    unsigned flags;
    uint64_t id;
    uint32_t remote_sge_count, bytes;
    struct ibv_sge remote_sges[SL_RDMA_REMOTE_SGES + 2];
    uint64_t remote_at;
    uint32_t remote_key;
    uint8_t inlined[RDMA_WIRE_INLINE];
};

struct rdma_wire_end {
    struct rdma_wire *wire;
    struct sl_rdma_conn *conn;
    struct rdma_cm_id id;
    struct ibv_qp queue_pair;
    int post_error;                                        /* what ibv_post_send returns */
    uint32_t post_calls;                                   /* that took something */
    struct rdma_wire_request requests[RDMA_WIRE_REQUESTS]; /* posted; the oldest not carried out */
    uint32_t posted, done;
    /* The layer above. */
    bool hold;     /* keeps messages */
    uint8_t *sink; /* what it says when it is asked */
    uint32_t asked;
    struct sl_transport_message messages[RDMA_WIRE_MESSAGES];
    int fills[RDMA_WIRE_MESSAGES]; /* what all bytes of the payload were then; -1: not alike */
    uint32_t received, released;
    uintptr_t sent[RDMA_WIRE_MESSAGES]; /* cookies */
    uint32_t sent_count, writable_count;
};

struct rdma_wire {
    struct rdma_fake fake;
    struct rdma_wire_end ends[2];
};

/* Both connections are open, with the least window. */
void rdma_wire_init(struct rdma_wire *wire);
void rdma_wire_fini(struct rdma_wire *wire);

static inline struct rdma_wire_end *rdma_wire_other(struct rdma_wire_end *end)
{
    return &end->wire->ends[end == &end->wire->ends[0]];
}

/* What one turn of the reactor does beside the completion queue: reports, and flushes. */
void rdma_wire_turn(struct rdma_wire *wire);

/* Carries out up to `count` work requests of the end, in order; returns how many there were. */
uint32_t rdma_wire_carry(struct rdma_wire_end *end, uint32_t count);

/* Turns and carries until nothing moves. */
void rdma_wire_settle(struct rdma_wire *wire);

/* A packet comes to the end that its other side never sent. */
void rdma_wire_inject(struct rdma_wire_end *end, const void *packet, uint32_t bytes);

/* Makes a frame in memory of SL_FRAME_HEADER_BYTES + payload_bytes, its payload bytes of `fill`. */
void rdma_wire_frame(uint8_t *memory, enum sl_frame_type type, uint64_t request_id,
                     uint32_t payload_bytes, uint8_t fill);

/* Queues it in one part. */
void rdma_wire_send(struct rdma_wire_end *end, const uint8_t *memory, void *cookie);

/* Message `number` is a frame of rdma_wire_frame. */
void rdma_wire_expect(const struct rdma_wire_end *end, uint32_t number, uint64_t request_id,
                      uint32_t payload_bytes, uint8_t fill);

/* Releases message `number`. */
void rdma_wire_release(struct rdma_wire_end *end, uint32_t number);

/* Of a request that was posted: the head of its packet. */
struct sl_rdma_packet rdma_wire_head(const struct rdma_wire_request *request);

#endif
