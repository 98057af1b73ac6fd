/* The receiving half: what receive.c, park.c and store.c share. Owner reactor. */
#ifndef SL_NET_DPDK_RECEIVE_H
#define SL_NET_DPDK_RECEIVE_H

#include "net/dpdk/internal.h"

/* ---- store.c: memory for what is delivered, and for packets that wait ------------------------ */

#define SL_DPDK_SHORT_BYTES (SL_FRAME_HEADER_BYTES + SL_LIMIT_INLINE_PAYLOAD_BYTES)

/* Is filled from the front, and begun anew when nothing in it is used any more: the token of every
 * message that lies in it. */
struct sl_dpdk_block {
    struct sl_dpdk_store *store; /* NULL: on its way from one reactor to another */
    struct sl_dpdk_block *next, *previous;
    uint32_t refs, used;
    bool lonely;      /* one message's, by malloc */
    bool of_stranger; /* counts in the strangers' share */
    uint8_t *memory;
};

/* A packet that waits, or what it carried in memory of its own. */
struct sl_dpdk_parked {
    struct sl_dpdk_parked *next;
    struct sl_dpdk_netif
        *netif; /* where it came from; NULL: this was made by malloc, with its body */
    struct sl_dpdk_packet packet; /* token NULL: body is a copy of the store's */
    const uint8_t *body;
    uint32_t offset, bytes;
    bool of_stranger; /* counts in the strangers' share */
};

/* Whose memory a short message takes. Of 128 blocks of 64 KiB a reactor, 32 are left for messages
 * at the head, so that messages which wait for others never keep these from coming; at most 16 are
 * used by connections that are not welcome yet (sl_conn.is_welcome), however many these are. */
enum sl_dpdk_share { SL_DPDK_SHARE_HEAD, SL_DPDK_SHARE_AHEAD, SL_DPDK_SHARE_STRANGER };

/* Memory aligned to 8 for at most SL_DPDK_SHORT_BYTES, which is used until its block is put. NULL:
 * the share is used up. */
uint8_t *sl_dpdk_store_get(struct sl_dpdk_store *store, uint32_t bytes, enum sl_dpdk_share share,
                           struct sl_dpdk_block **block);
void sl_dpdk_block_put(struct sl_dpdk_block *block);

/* A copy by itself, of no store yet. NULL: no memory. */
struct sl_dpdk_block *sl_dpdk_block_copy(const uint8_t *from, uint32_t bytes);
void sl_dpdk_store_adopt(struct sl_dpdk_store *store, struct sl_dpdk_block *block);

/* Keeps a packet, or (token NULL: a stray one's memory is not to be kept) a copy of its body. NULL:
 * too many wait: half of the packets that the port lends, an eighth of these for strangers. */
struct sl_dpdk_parked *sl_dpdk_park(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                    const struct sl_dpdk_packet *packet,
                                    const struct sl_dpdk_parsed *parsed, bool of_stranger);
void sl_dpdk_unpark(struct sl_dpdk *dpdk, struct sl_dpdk_parked *parked);

/* ---- receive.c ------------------------------------------------------------------------------- */

enum sl_dpdk_slot_kind {
    SL_DPDK_SLOT_EMPTY,
    SL_DPDK_SLOT_PARKED, /* a long message, or one whose length is not known: packets wait */
    SL_DPDK_SLOT_SHORT,  /* a message that comes into a block */
    SL_DPDK_SLOT_BUNDLE  /* whole */
};

/* A message that has begun to come, or the place for it. */
struct sl_dpdk_slot {
    uint8_t kind;
    uint32_t bytes;   /* of the message, 0: not known; TRAIN: not delivered yet */
    uint32_t missing; /* SHORT: bytes that have not come */
    uint64_t pieces;  /* SHORT: which have */
    uint8_t *memory;  /* SHORT, TRAIN: of `block` */
    struct sl_dpdk_block *block;
    struct sl_dpdk_parked *parked; /* in any order */
};

#define SL_DPDK_PIECES_MAX                                                                         \
    ((SL_FRAME_HEADER_BYTES + SL_LIMIT_FRAME_PAYLOAD_BYTES + SL_DPDK_BODY_MIN - 1) /               \
     SL_DPDK_BODY_MIN)

struct sl_dpdk_receiving {
    uint32_t head;  /* the first message that is not delivered whole */
    uint32_t begun; /* slots that are not empty */
    /* The long message at the head. */
    bool is_known; /* its header is */
    struct sl_frame frame;
    uint8_t *sink;    /* for its payload; NULL: not given yet */
    uint32_t missing; /* bytes that are not there, the header's included */
    uint64_t pieces[SL_DPDK_PIECES_MAX / 64 + 1]; /* which are */
    uint32_t slots_mask;
    struct sl_dpdk_slot *slots; /* ring.h: at most SL_DPDK_MESSAGES */
};

struct sl_dpdk_slot *sl_dpdk_slot_at(struct sl_dpdk_receiving *receive, uint32_t message);
/* With all that it holds. dpdk: NULL when nothing of that is a reactor's. */
void sl_dpdk_receive_free(struct sl_dpdk_receiving *receive, struct sl_dpdk *dpdk);
void sl_dpdk_receive_pass(struct sl_dpdk_receiving *receive); /* the head is delivered */
/* Whether these are the bounds of a piece of a message of so many bytes. */
bool sl_dpdk_receive_is_piece(const struct sl_dpdk_conn *conn, uint32_t offset, uint32_t bytes,
                              uint32_t message_bytes);
/* As sl_frame_decode, but a short frame of another version is one. */
int sl_dpdk_receive_decode_closely(const uint8_t *header, struct sl_frame *out);
static inline int sl_dpdk_receive_decode(const uint8_t *header, struct sl_frame *out)
{
    return sl_frame_decode_plain(header, out) ? 0 : sl_dpdk_receive_decode_closely(header, out);
}
void sl_dpdk_receive_report(struct sl_dpdk_conn *conn, const struct sl_frame *frame,
                            const uint8_t *payload, void *token);
bool sl_dpdk_receive_is_readable(const struct sl_dpdk_conn *conn);

/* ---- long.c: the message at the head whose payload goes to a sink ---------------------------- */

bool sl_dpdk_long_has(const struct sl_dpdk_conn *conn, uint32_t offset); /* the piece there */
/* A piece, counted as arrived, goes to the sink, which is known. False: it does not fit into the
 * message, or has come before; nothing was written. */
bool sl_dpdk_long_place(struct sl_dpdk_conn *conn, uint32_t offset, const uint8_t *body,
                        uint32_t bytes);
/* Asks for the sink, places what waits, delivers; whether any of it. */
bool sl_dpdk_long_deliver(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot);

#endif
