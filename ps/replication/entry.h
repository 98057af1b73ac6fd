/* An entry of a primary's log (internal.h). */
#ifndef SL_PS_REPLICATION_ENTRY_H
#define SL_PS_REPLICATION_ENTRY_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/control/message.h"

struct sl_snapshot_block;
struct sl_server;
struct sl_server_conn;
struct sl_server_request;

enum sl_replication_entry_kind {
    SL_REPLICATION_ENTRY_WRITE = 1, /* a write has ended; body: its request payload, or empty */
    SL_REPLICATION_ENTRY_SESSION,   /* the session's client has confirmed it */
    SL_REPLICATION_ENTRY_TABLE,     /* body: the TableOpen message, padded to 8 bytes */
    SL_REPLICATION_ENTRY_JOIN,      /* body: the Join message, padded likewise */
    SL_REPLICATION_ENTRY_END,       /* a client's session has ended */
    SL_REPLICATION_ENTRY_EXPIRED,   /* a worker without a session has expired */
    /* Body: payload of a block of the snapshot (ps/snapshot/block.h). */
    SL_REPLICATION_ENTRY_SNAPSHOT,
};

/* Start of an entry's frame, little-endian; the body follows. The frame is a REQUEST; its id is the
 * entry's number: 1, 2, 3 ... in an epoch. */
struct sl_replication_entry_head {
    uint8_t kind;
    /* sl_message_role of the client; 0: its session has ended. SNAPSHOT: kind of the block. */
    uint8_t role;
    uint8_t has_clock;   /* WRITE: the client is a worker */
    uint8_t is_expired;  /* END: the client expired */
    uint32_t task_index; /* of the client. SNAPSHOT: table_id */
    uint64_t client_id;
    uint64_t request_id; /* WRITE */
    /* WRITE: sections [first, end) that took effect since the log began. SNAPSHOT: 0 and the
     * block's count. */
    uint32_t first, end;
    uint32_t error;         /* WRITE: failed with this sl_err, as a positive number; 0: done */
    uint32_t message_bytes; /* TABLE, JOIN: size of the body without padding */
    uint32_t body_bytes;
    uint32_t zero;
    uint64_t zeros[2];
};
static_assert(sizeof(struct sl_replication_entry_head) == 64, "entry head size");
static_assert(offsetof(struct sl_replication_entry_head, zeros) == 48, "entry head layout");

struct sl_replication_entry {
    struct sl_replication_entry *next;
    struct sl_server *server;
    struct sl_replication_entry_head head;
    const uint8_t *body;
    uint64_t number;                   /* 0: never sent */
    size_t bytes;                      /* of memory that it holds */
    struct sl_server_request *request; /* contains this entry; NULL: allocated separately */
    uint8_t *buffer;                   /* server buffer of the body, if allocated separately */
    struct sl_snapshot_block *block;   /* owned; is_snapshot: return it to the shard */
    bool is_snapshot;
    bool in_transport; /* which reads the body in place */
    bool is_over;      /* acknowledged, or there is no backup any more */
    /* If allocated separately, the answer that waits for this entry: TABLE_OPENED or JOINED. */
    struct sl_server_conn *conn; /* NULL: no answer, or closed */
    enum sl_message_kind answer_kind;
    uint64_t answer_id;
    uint32_t answer; /* table_id or clock */
};

#endif
