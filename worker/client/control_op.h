/* A control operation is a request of an application thread to one client_io: posted to its
 * reactor, executed there, answered by a mail to the thread. Never on the data path. */
#ifndef SL_WORKER_CLIENT_CONTROL_OP_H
#define SL_WORKER_CLIENT_CONTROL_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"
#include "net/session/message.h"
#include "reactor/port.h"

#define SL_CONTROL_OP_TEXT_BYTES 1024

struct sl_client_io;
struct sl_shard_conn;

struct sl_control_op {
    struct sl_client_io *io;
    void (*run)(struct sl_control_op *op); /* on the reactor; ends in sl_control_op_answer */
    uint64_t deadline_ns;

    /* Arguments and results; each run function names those it uses. The caller's memory. */
    struct sl_message_cluster *cluster;
    uint32_t task_index;        /* out: assigned by the coordinator */
    struct sl_table_spec *spec; /* in, out: a coordinator may keep another policy */
    struct {
        uint32_t id;
        uint32_t knows; /* out: the least of the answers' */
    } table;
    struct sl_table_spec *found; /* out */
    const char *name;
    uint32_t count;
    union {
        struct {
            uint32_t groups;          /* SL_MESSAGE_GROUP_...; 0: none */
            struct sl_list_link link; /* the reactor's: of the barriers of groups that wait */
        } barrier;
        uint64_t number; /* out: of a checkpoint */
        struct {
            const struct sl_message_placement_change *change;
            struct sl_message_move *moves; /* out: [count]; room for SL_LIMIT_SHARDS */
        } placement;
    };
    struct sl_table_info *sum; /* out: the shards' statistics of a table are added */
    struct sl_shard_conn *conns;
    uint32_t shard_count;
    uint32_t payload_bytes_max; /* out: smallest limit of the shards */
    bool uses_tcp;              /* out: some shard is reached over TCP */
    struct {
        void *memory;
        size_t bytes;
        bool is_shared;
    } buffer;
    struct {
        uint32_t asked;
        uint32_t largest; /* out: of the shards' answers */
        bool counts;      /* out: on every shard */
    } clock;

    /* The reactor's, while running. */
    struct sl_mailbox_lane *answers;
    uint32_t left;        /* outstanding answers of peers */
    struct sl_list asked; /* requests to shards: client_io.c */

    /* The result: the first error. */
    int err;
    char text[SL_CONTROL_OP_TEXT_BYTES]; /* names peer and cause */
    bool done, returned; /* set on the caller's thread; returned: after a cancellation */
};

/* Records an error unless one is recorded. On the reactor, or on the caller's thread before
 * posting. */
void sl_control_op_fail(struct sl_control_op *op, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Merges one shard's answer about this worker's clock. Reactor. */
void sl_control_op_take_clock(struct sl_control_op *op, bool counts, uint32_t clock);

/* Completes the operation. Reactor. */
void sl_control_op_answer(struct sl_control_op *op);

/* Counts one of the `left` answers; completes the operation with the last. Reactor. */
void sl_control_op_answer_one(struct sl_control_op *op);

/* Returns AGAIN until all operations are done; then 0, or the first error with *failed. The
 * caller's thread. */
int sl_control_op_results(const struct sl_control_op *ops, uint32_t count,
                          const struct sl_control_op **failed);

/* Returns a session's reason without the peer's name, if it begins with it. Any thread. */
const char *sl_control_op_reason(const char *name, const char *reason);

/* Posts the operation to its client_io's reactor; run waits until it is done. The port's thread. */
void sl_control_op_post(struct sl_control_op *op, struct sl_port *port);
void sl_control_op_run(struct sl_control_op *op, struct sl_port *port);

#endif
