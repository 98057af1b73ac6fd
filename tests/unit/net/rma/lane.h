/* An initiator and a target on one connection, stepped by the test. Either end may be played by the
 * test instead, which then sends any frame. */
#ifndef TESTS_UNIT_NET_RMA_LANE_H
#define TESTS_UNIT_NET_RMA_LANE_H

#include "core/hash.h"
#include "net/rma/initiator.h"
#include "net/rma/target.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"

#define LANE_MEMORIES     3
#define LANE_MEMORY_BYTES ((size_t)24 << 20)
#define LANE_GUARD_BYTES  4096
#define LANE_REPLIES_MAX  1024

struct lane_end {
    struct sl_conn *conn; /* NULL: closed */
    struct sl_outbox outbox;
    struct sl_outbox_queue queue;
    const char *violation; /* of the peer; NULL: none */
    int close_err;
};

struct lane_reply {
    uint64_t id;
    int status;
    uint32_t payload_bytes, count; /* count: first word of the payload */
};

struct lane {
    const struct sl_transport_ops *ops; /* the options, before lane_open */
    /* NULL: a loop transport with stepped reactors; else both ends share one reactor of the test's
     * thread, and connect over this endpoint. */
    const char *endpoint;
    uint64_t seed;
    size_t outbox_bytes;  /* 0: 64 MiB */
    bool plays_initiator; /* the test does */
    bool plays_target;
    bool keeps_data_waiting; /* the target has no limit to send, nor does it pump */

    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct lane_end a, b; /* initiator, target */
    struct sl_rma_initiator initiator;
    struct sl_rma_target target;
    uint8_t *discard;

    /* Registered: [0] peers read and write, [1] read, [2] write. A guard follows each. */
    struct sl_rma_memory memories[LANE_MEMORIES];
    uint8_t *local;            /* LANE_MEMORY_BYTES */
    uint64_t send_budget;      /* bytes that the target may send */
    struct sl_rma_slice *next; /* sent from inside the next `done`; NULL: nothing is */
    uint32_t unused_count;

    uint32_t done_count, failed_count;
    int last_err;
    char last_text[128];
    struct lane_reply replies[LANE_REPLIES_MAX]; /* received by the initiator's end, if played */
    uint32_t reply_count;
};

void lane_open(struct lane *lane);
void lane_close(struct lane *lane);

/* Connects again, after both ends have closed. */
void lane_connect(struct lane *lane);

/* Turns of both reactors; the target answers after each. */
void lane_turns(struct lane *lane, uint32_t count);

/* Turns until `count` slices are over, or a connection has closed. */
void lane_until_done(struct lane *lane, uint32_t count);

/* Sends all slices, in portions as the lane takes them, and waits for the end of each. */
void lane_run(struct lane *lane, struct sl_rma_slice *slices, uint32_t count);

/* A frame from an end that the test plays. payload may be NULL: zeros. */
void lane_send(struct lane *lane, struct lane_end *end, struct sl_frame frame, const void *payload);

/* A REQUEST with these slices, from the played initiator. */
void lane_request(struct lane *lane, uint64_t first_id, const struct sl_rma_wire_slice *slices,
                  uint32_t count);

static inline struct sl_rma_wire_slice lane_slice(enum sl_rma_op op, uint64_t key, uint64_t offset,
                                                  uint32_t bytes)
{
    return (struct sl_rma_wire_slice){
        .key = key, .offset = offset, .bytes = bytes, .op = (uint8_t)op};
}

#endif
