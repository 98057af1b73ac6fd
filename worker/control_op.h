/* A control operation of an application thread on one worker reactor: posted to the hub, carried
 * out there, answered by a mail to the thread's port. Never on the data path. */
#ifndef SL_WORKER_CONTROL_OP_H
#define SL_WORKER_CONTROL_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "net/control/message.h"
#include "reactor/mailbox.h"

#define SL_CONTROL_OP_TEXT_BYTES 1024

struct sl_client_io;
struct sl_shard_conn;

struct sl_control_op {
    struct sl_client_io *io;
    void (*run)(struct sl_control_op *op); /* on the hub's reactor; ends in sl_control_op_answer */
    uint64_t deadline_ns;

    /* What it is about; each run function says which it reads and writes. The caller's memory. */
    struct sl_message_cluster *cluster;
    uint32_t task_index; /* out: of this client, as the coordinator says */
    const struct sl_table_spec *spec;
    uint32_t table_id;
    const char *name;
    uint32_t count;
    uint64_t number; /* out: of a checkpoint */
    struct sl_client_stats *stats;
    struct sl_shard_conn *conns;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* out: the least that a shard takes */
    void *memory;               /* of a buffer */
    size_t memory_bytes;
    bool memory_is_shared; /* it is shared memory */
    uint32_t clock_asked;
    uint32_t clock; /* out: the greatest that a shard told */
    bool counts;    /* out: on every shard */

    /* The reactor's, while it runs. */
    struct sl_mailbox_lane *answers;
    uint32_t left; /* answers of peers that it waits for */

    /* The result; first error wins. */
    int err;
    char text[SL_CONTROL_OP_TEXT_BYTES]; /* of the error: who and why */
    bool done;                           /* set on the caller's thread */
};

/* Records an error unless there is one. Hub's reactor, or the caller's thread before posting. */
void sl_control_op_fail(struct sl_control_op *op, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes in what one shard told of this worker's clock. Hub's reactor. */
void sl_control_op_take_clock(struct sl_control_op *op, bool counts, uint32_t clock);

/* Gives the call back to its thread. Hub's reactor. */
void sl_control_op_answer(struct sl_control_op *op);

/* One of the `left` answers has come; gives the call back with the last. Hub's reactor. */
void sl_control_op_answer_one(struct sl_control_op *op);

/* A session's reason without the peer's name that it may begin with. Any thread. */
const char *sl_control_op_reason(const char *name, const char *reason);

/* Mail on the hub's reactor: ctx is the call. */
void sl_control_op_deliver(void *ctx, uint64_t a, uint64_t b);

#endif
