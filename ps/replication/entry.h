/* An entry of a primary's log (log.h). */
#ifndef SL_PS_REPLICATION_ENTRY_H
#define SL_PS_REPLICATION_ENTRY_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"
#include "net/session/message.h"

struct sl_snapshot_block;
struct sl_server;
struct sl_server_channel;
struct sl_server_request;

enum sl_replication_entry_kind {
    /* A write has ended. Body: its sections from body_first on, behind a prefix; or empty. */
    SL_REPLICATION_ENTRY_WRITE = 1,
    SL_REPLICATION_ENTRY_SESSION, /* the session's client has confirmed it */
    SL_REPLICATION_ENTRY_TABLE,   /* body: the TableOpen message, padded to 8 bytes */
    SL_REPLICATION_ENTRY_JOIN,    /* body: the Join message, padded to 8 bytes */
    SL_REPLICATION_ENTRY_END,     /* a client's session has ended */
    SL_REPLICATION_ENTRY_EXPIRED, /* a worker without a session has expired */
    /* Body: payload of a block of the snapshot (ps/snapshot/block.h). */
    SL_REPLICATION_ENTRY_SNAPSHOT,
    SL_REPLICATION_ENTRY_PART, /* sections of a write that has not ended; body as of WRITE */
    SL_REPLICATION_ENTRY_DROP, /* the table was dropped */
};

/* Start of an entry's frame, little-endian; the body follows. The frame is a REQUEST; its id is the
 * entry's number: 1, 2, 3 ... in an epoch. */
struct sl_replication_entry_head {
    uint8_t kind;
    union {
        uint8_t role;       /* sl_message_role of the client; 0: its session has ended */
        uint8_t block_kind; /* SNAPSHOT */
    };
    uint8_t has_clock;  /* WRITE, PART: the client is a worker */
    uint8_t is_expired; /* END: the client expired */
    union {
        uint32_t task_index; /* of the client */
        uint32_t table_id;   /* SNAPSHOT, DROP */
    };
    uint64_t client_id;
    uint64_t request_id; /* WRITE, PART */
    uint32_t first;      /* WRITE, PART: sections [first, end) took effect since the log began */
    union {
        uint32_t end;
        uint32_t record_count; /* SNAPSHOT */
    };
    uint32_t error;         /* WRITE: failed with this sl_err, as a positive number; 0: done */
    uint32_t message_bytes; /* TABLE, JOIN: size of the body without padding */
    uint32_t body_bytes;
    uint32_t body_first; /* WRITE, PART: the body's first section */
    uint64_t zeros[2];
};
static_assert(sizeof(struct sl_replication_entry_head) == 64, "entry head size");
static_assert(offsetof(struct sl_replication_entry_head, zeros) == 48, "entry head layout");

/* Memory that an entry owns until it ends. */
enum sl_replication_entry_owned {
    SL_REPLICATION_OWNS_NOTHING,
    SL_REPLICATION_OWNS_REQUEST, /* the entry lies behind it, in its memory; else on the heap */
    SL_REPLICATION_OWNS_BUFFER,
    SL_REPLICATION_OWNS_BLOCK,
    SL_REPLICATION_OWNS_ANSWER,
};

/* The answer TABLE_OPENED or JOINED, to be sent when the entry ends. */
struct sl_replication_answer {
    struct sl_server_channel *channel; /* NULL: none, or closed */
    enum sl_message_kind kind;
    uint64_t id;
    uint32_t value;        /* table_id or clock */
    bool reject_nonfinite; /* TABLE_OPENED */
};

struct sl_replication_entry {
    struct sl_list_link link;
    struct sl_server *server;
    struct sl_replication_entry_head head;
    const uint8_t *body;
    uint64_t number;   /* 0: never sent */
    size_t bytes;      /* of memory that it holds */
    bool in_transport; /* which reads the body in place */
    bool is_over;      /* acknowledged, or there is no backup any more */
    enum sl_replication_entry_owned owned;
    union {
        struct sl_server_request *request;
        uint8_t *buffer; /* of the server: the body */
        struct sl_snapshot_block *block;
        struct sl_replication_answer answer;
    };
};

#endif
