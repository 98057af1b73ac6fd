/* The target of one-sided operations on one connection: checks each slice, answers READs from the
 * named memory and receives WRITEs into it, both in place. The peer is hostile: key, access, offset
 * and length of every slice, and order and length of every DATA, are checked here. Owner reactor;
 * no allocation. */
#ifndef SL_NET_RMA_TARGET_H
#define SL_NET_RMA_TARGET_H

#include "net/credit.h"
#include "net/outbox.h"
#include "net/rma/wire.h"

/* Memory that peers may name by its key. The owner may free it when it is not found any more and
 * `uses` is 0. */
struct sl_rma_memory {
    uint64_t key;
    uint8_t *base;
    uint64_t bytes;
    bool peers_read, peers_write;
    uint32_t uses; /* slices of this reactor's targets that are not over, or not sent */
};

struct sl_rma_target_events {
    /* Returns the memory with the key; NULL: there is none, or not any more. */
    struct sl_rma_memory *(*find)(void *ctx, uint64_t key);
    /* The uses of the memory fell to 0. Must not close the target. */
    void (*unused)(void *ctx, struct sl_rma_memory *memory);
    /* Takes `bytes` from the limit on sent bytes; false: not now, the READ waits for a later pump.
     * NULL: there is no limit. */
    bool (*may_send)(void *ctx, uint32_t bytes);
};

struct sl_rma_target;

/* More than the credit: the reply to a READ returns its credit, and may be sent for some time. */
#define SL_RMA_TARGET_SLICES (2 * SL_LIMIT_TRANSFER_SLICES)

/* A slice from its REQUEST until its memory is no longer used. */
struct sl_rma_target_slice {
    struct sl_rma_target_slice *next;
    struct sl_rma_target *target;
    struct sl_rma_memory *memory; /* NULL: refused with `err` */
    uint8_t *at;                  /* in the memory */
    uint64_t id, deadline_ns;
    uint32_t bytes;
    int err;
};

struct sl_rma_target_queue {
    struct sl_rma_target_slice *first, *last;
};

/* Some 32 KiB. Storage of the owner. */
struct sl_rma_target {
    const struct sl_rma_target_events *events;
    void *ctx;
    struct sl_conn *conn; /* NULL: not open */
    struct sl_outbox *outbox;
    struct sl_outbox_queue *queue;
    bool checksum; /* the peer requested checksums; set after open */
    /* Memory of SL_LIMIT_FRAME_PAYLOAD_BYTES into which the DATA of refused WRITEs is received; it
     * may be shared by all targets of a reactor, since nobody reads it. */
    void *discard;
    /* What the peer may still spend, never more requests than there are free slices; and what is to
     * be returned with the next frames. */
    struct sl_credit credit, due;
    uint64_t next_id; /* the least that the next REQUEST may begin with */
    struct sl_rma_target_slice slices[SL_RMA_TARGET_SLICES];
    struct sl_rma_target_queue free;
    uint32_t free_count;
    struct sl_rma_target_queue reads;   /* wait for an answer */
    struct sl_rma_target_queue writes;  /* wait for their DATA */
    struct sl_rma_target_queue applied; /* WRITEs that are over and wait for an answer */
};

/* Grants the credit that the welcome announces: SL_LIMIT_TRANSFER_SLICES requests and
 * SL_LIMIT_TRANSFER_CREDIT_BYTES. */
void sl_rma_target_init(struct sl_rma_target *target, const struct sl_rma_target_events *events,
                        void *ctx, struct sl_conn *conn, struct sl_outbox *outbox,
                        struct sl_outbox_queue *queue, void *discard);

/* Takes a REQUEST or DATA frame, and releases it. Returns 0, or PROTOCOL with *text: the caller
 * ends the connection. */
int sl_rma_target_received(struct sl_rma_target *target, const struct sl_transport_message *message,
                           const char **text);

/* The memory for a long DATA. NULL: it was not announced: the caller ends the connection. */
void *sl_rma_target_sink(struct sl_rma_target *target, const struct sl_frame *header);

/* Answers slices, and returns credit. Call it once in every turn in which the connection had a
 * `received` or `sent`, before the transports flush: WRITEs of the turn are acknowledged together.
 * Returns true if answers wait for room in the outbox or for the limit: call it in later turns. */
bool sl_rma_target_pump(struct sl_rma_target *target);

/* Whether slices of this connection use the memory. */
bool sl_rma_target_uses(const struct sl_rma_target *target, const struct sl_rma_memory *memory);

/* The connection has closed, and sl_outbox_closed was called: no slice uses memory any more. */
void sl_rma_target_closed(struct sl_rma_target *target);

#endif
