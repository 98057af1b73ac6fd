/* The messages that a connection is receiving: a slot each, from the head on. Owner reactor. */
#ifndef SL_NET_DPDK_RECEIVE_SLOTS_H
#define SL_NET_DPDK_RECEIVE_SLOTS_H

#include "net/dpdk/store.h"

enum sl_dpdk_slot_kind {
    SL_DPDK_SLOT_EMPTY,
    SL_DPDK_SLOT_PARKED, /* a long message, or one of unknown length: packets are parked */
    SL_DPDK_SLOT_SHORT,  /* a message that is received into a block */
    SL_DPDK_SLOT_BUNDLE  /* a complete bundle */
};

/* A message that is being received, or a free slot. */
struct sl_dpdk_slot {
    uint8_t kind;
    uint32_t bytes;   /* message length, 0: unknown; BUNDLE: bytes not yet delivered */
    uint32_t missing; /* SHORT: bytes not received yet */
    uint64_t pieces;  /* SHORT: bit set of received pieces */
    uint8_t *memory;  /* SHORT, BUNDLE: in `block` */
    struct sl_dpdk_block *block;
    struct sl_dpdk_parked *parked; /* in any order */
};

#define SL_DPDK_PIECES_MAX                                                                         \
    ((SL_FRAME_HEADER_BYTES + SL_LIMIT_FRAME_PAYLOAD_BYTES + SL_DPDK_BODY_MIN - 1) /               \
     SL_DPDK_BODY_MIN)

struct sl_dpdk_receiving {
    uint32_t head;  /* number of the first message that is not completely delivered */
    uint32_t begun; /* non-empty slots */
    /* The long message at the head. */
    bool is_known; /* `frame` is valid */
    struct sl_frame frame;
    uint8_t *sink;                                /* payload memory; NULL: not returned yet */
    uint32_t missing;                             /* bytes not received yet, including the header */
    uint64_t pieces[SL_DPDK_PIECES_MAX / 64 + 1]; /* bit set of received pieces */
    uint32_t slots_mask;
    struct sl_dpdk_slot *slots; /* ring.h; at most SL_DPDK_MESSAGES */
};

int sl_dpdk_receive_open(struct sl_dpdk_conn *conn);
void sl_dpdk_receive_close(struct sl_dpdk_conn *conn);
/* Frees memory that an idle connection no longer needs. */
void sl_dpdk_receive_shrink(struct sl_dpdk_conn *conn);

/* The number of the message at the head. */
uint32_t sl_dpdk_receive_next(const struct sl_dpdk_conn *conn);
/* Whether `sink` has not yet returned memory for the message at the head. */
bool sl_dpdk_receive_waits_for_sink(const struct sl_dpdk_conn *conn);
/* Whether the peer has begun a message, may send more of it, and does not wait for our `sink`. */
bool sl_dpdk_receive_is_owed(const struct sl_dpdk_conn *conn);

struct sl_dpdk_slot *sl_dpdk_slot_at(struct sl_dpdk_receiving *receive, uint32_t message);
/* Whether there is a slot for the message at this distance from the head. */
bool sl_dpdk_receive_has_slot(struct sl_dpdk_receiving *receive, uint32_t ahead);
void sl_dpdk_receive_begin_slot(struct sl_dpdk_receiving *receive, struct sl_dpdk_slot *slot,
                                enum sl_dpdk_slot_kind kind);
void sl_dpdk_receive_pass(struct sl_dpdk_receiving *receive); /* the head is delivered */
/* Whether these are valid bounds of a piece of a message of this length. */
bool sl_dpdk_receive_is_piece(const struct sl_dpdk_conn *conn, uint32_t offset, uint32_t bytes,
                              uint32_t message_bytes);
void sl_dpdk_receive_report(struct sl_dpdk_conn *conn, const struct sl_frame *frame,
                            const uint8_t *payload, void *token);
bool sl_dpdk_receive_is_readable(const struct sl_dpdk_conn *conn);

#endif
