/* One entry of a primary's log: server_replica.h. */
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
    SL_REPLICATION_ENTRY_WRITE =
        1, /* a request that writes has ended; body: its payload, or nothing */
    SL_REPLICATION_ENTRY_SESSION,  /* the client is one that a session remembers */
    SL_REPLICATION_ENTRY_TABLE,    /* body: the TableOpen, a control message, padded to 8 bytes */
    SL_REPLICATION_ENTRY_JOIN,     /* body: the Join, likewise */
    SL_REPLICATION_ENTRY_END,      /* of a client's session */
    SL_REPLICATION_ENTRY_EXPIRED,  /* a worker that has no session */
    SL_REPLICATION_ENTRY_SNAPSHOT, /* body: the payload of a block of the shard's image
                                      (ps/snapshot/block.h) */
};

/* What an entry's frame begins with, little-endian; its body follows. The frame is a REQUEST, whose
 * id is the entry's number: 1, 2, 3 in an epoch. */
struct sl_replication_entry_head {
    uint8_t kind;
    uint8_t role; /* of the client: sl_message_role; 0: there is no session any more. IMAGE: the
                   * block's kind */
    uint8_t has_clock;   /* WRITE: the caller is a worker */
    uint8_t is_expired;  /* END: it has not left in good order */
    uint32_t task_index; /* IMAGE: table_id */
    uint64_t client_id;
    uint64_t request_id;    /* WRITE */
    uint32_t first, end;    /* WRITE: sections that have had an effect, since the log began; IMAGE:
                             * 0, and the block's count */
    uint32_t error;         /* WRITE: it has failed, with this sl_err, as a positive number */
    uint32_t message_bytes; /* TABLE, JOIN: of the body, without padding */
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
    uint64_t number;                   /* 0: it was never sent */
    size_t bytes;                      /* of memory that it holds */
    struct sl_server_request *request; /* that it is part of; NULL: it is allocated */
    uint8_t *buffer;                   /* of the server: the body's memory, of an allocated one */
    struct sl_snapshot_block
        *block; /* likewise; is_snapshot: it is to be given back to the shard */
    bool is_snapshot;
    bool in_transport; /* which reads the body from its place */
    bool is_over;      /* the backup has it, or there is none any more */
    /* Of an allocated one: the answer that waits for it, TABLE_OPENED or JOINED. */
    struct sl_server_conn *conn; /* NULL: nobody waits, or it has closed */
    enum sl_message_kind answer_kind;
    uint64_t answer_id;
    uint32_t answer; /* table_id, clock */
};

#endif
