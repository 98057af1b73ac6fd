/* The receiving half of a connection: what receive.c, long_message.c and store.c share.
 * Owner reactor. */
#ifndef SL_NET_DPDK_RECEIVE_H
#define SL_NET_DPDK_RECEIVE_H

#include "net/dpdk/internal.h"

/* store.c: memory of received messages and parked packets */

#define SL_DPDK_SHORT_BYTES (SL_FRAME_HEADER_BYTES + SL_LIMIT_INLINE_PAYLOAD_BYTES)

/* A block is filled from the front and reused when `refs` is 0. It is the token of every message in
 * it. */
struct sl_dpdk_block {
    struct sl_dpdk_store *store;
    struct sl_dpdk_block *next;
    uint32_t refs, used;
    bool of_stranger; /* counts in the strangers' share */
    uint8_t *memory;
};

/* A parked packet, or a copy of its body. */
struct sl_dpdk_parked {
    struct sl_dpdk_parked *next;
    struct sl_dpdk_netif *netif;  /* where it arrived */
    struct sl_dpdk_packet packet; /* token NULL: body is a copy in the store */
    const uint8_t *body;
    uint32_t offset, bytes;
    bool of_stranger; /* counts in the strangers' share */
};

/* The share that a short message's memory counts in. Of a reactor's 128 blocks of 64 KiB, 32 are
 * reserved for messages at the head, so that waiting messages cannot block these. All connections
 * that are not yet authenticated (not sl_conn.is_welcome) together use at most 16. */
enum sl_dpdk_share { SL_DPDK_SHARE_HEAD, SL_DPDK_SHARE_AHEAD, SL_DPDK_SHARE_STRANGER };

/* Returns memory aligned to 8 for at most SL_DPDK_SHORT_BYTES, valid until its block is put. NULL:
 * the share is used up. */
uint8_t *sl_dpdk_store_get(struct sl_dpdk_store *store, uint32_t bytes, enum sl_dpdk_share share,
                           struct sl_dpdk_block **block);
void sl_dpdk_block_put(struct sl_dpdk_block *block);

/* Keeps a packet or, if its token is NULL (misrouted), a copy of its body. NULL: too many are
 * parked. The limit is half of the packets that the port lends, and an eighth of that for
 * strangers. */
struct sl_dpdk_parked *sl_dpdk_park(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                    const struct sl_dpdk_packet *packet,
                                    const struct sl_dpdk_parsed *parsed, bool of_stranger);
void sl_dpdk_unpark(struct sl_dpdk *dpdk, struct sl_dpdk_parked *parked);

/* receive.c */

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

struct sl_dpdk_slot *sl_dpdk_slot_at(struct sl_dpdk_receiving *receive, uint32_t message);
void sl_dpdk_receive_pass(struct sl_dpdk_receiving *receive); /* the head is delivered */
/* Whether these are valid bounds of a piece of a message of this length. */
bool sl_dpdk_receive_is_piece(const struct sl_dpdk_conn *conn, uint32_t offset, uint32_t bytes,
                              uint32_t message_bytes);
void sl_dpdk_receive_report(struct sl_dpdk_conn *conn, const struct sl_frame *frame,
                            const uint8_t *payload, void *token);
bool sl_dpdk_receive_is_readable(const struct sl_dpdk_conn *conn);

/* long_message.c: the message at the head whose payload goes to a sink */

bool sl_dpdk_long_has(const struct sl_dpdk_conn *conn,
                      uint32_t offset); /* whether the piece at `offset` was received */
/* Copies a piece, already counted as arrived, to the sink. False: it does not fit into the message
 * or was received before; nothing was written. */
bool sl_dpdk_long_place(struct sl_dpdk_conn *conn, uint32_t offset, const uint8_t *body,
                        uint32_t bytes);
/* Asks for the sink, copies parked pieces, delivers. Returns whether the message was delivered. */
bool sl_dpdk_long_deliver(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot);

#endif
