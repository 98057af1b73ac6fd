/* What one SEND carries, and what rdma_cm carries in private data. Little-endian; both ends are of
 * protocol version SL_RDMA_VERSION. No I/O.
 *
 * A packet: head, then remote_sge_count pieces of the sender's memory that its receiver reads, then
 * reply_buffer_count pieces of it where the receiver may write the answer to the frame, then
 * frame_bytes of frames; nothing more. By its kind: FRAMES   whole frames (header and payload),
 * each begun at a multiple of 8 LANDING  landing pieces, one whole frame LONG     pieces, maybe
 * landing pieces, and of the frame the header and the beginning of the payload, maybe none: the
 * rest of it lies in the pieces WRITTEN  a frame's header: its payload has been written to the
 * landing of the request of the same id NOTE     nothing more MOVE     instead of frames a ticket,
 * of 8 bytes: connect once more, and go on there; nothing follows on this queue pair MOVED    the
 * answer to it, and the last packet on this queue pair BYE      the last packet: the sender closes
 * once its frames are consumed Counts run over: they are compared by difference. They belong to the
 * connection, and go on when it moves to another queue pair. */
#ifndef SL_NET_RDMA_PACKET_H
#define SL_NET_RDMA_PACKET_H

#include <stdint.h>

#include "net/wire/frame.h"

#define SL_RDMA_MAGIC        0x4d52504cU /* in private data */
#define SL_RDMA_VERSION      1
#define SL_RDMA_PACKET_BYTES 8192U /* at most, head included */
#define SL_RDMA_REMOTE_SGES  8U    /* of one kind in a packet */

enum sl_rdma_packet_kind {
    SL_RDMA_FRAMES = 1,
    SL_RDMA_REPLY_BUFFER = 2,
    SL_RDMA_LONG = 3,
    SL_RDMA_WRITTEN = 4,
    SL_RDMA_CREDIT_UPDATE = 5,
    SL_RDMA_MOVE = 6,
    SL_RDMA_MOVED = 7,
    SL_RDMA_FIN = 8
};

enum sl_rdma_packet_flag {
    SL_RDMA_STALLED =
        1 << 0,           /* the sender has more to send than its credit: a larger window helps */
    SL_RDMA_PING = 1 << 1 /* answer with a NOTE */
};

/* kinds up to WRITTEN use credit, one each, and are counted; the others none. */
struct sl_rdma_packet {
    uint32_t limit; /* the receiver of this may have sent so many counted packets in all */
    uint32_t done;  /* LONG packets of the receiver of this whose payload has been read, in all */
    uint8_t kind;
    uint8_t flags;
    uint8_t remote_sge_count,
        reply_buffer_count; /* at most SL_RDMA_REMOTE_SGES each; no piece is empty */
    uint32_t frame_bytes;   /* FRAMES: of all, with the padding between them */
};

/* Memory of the sender's process. */
struct sl_rdma_remote_sge {
    uint64_t at;
    uint32_t key; /* remote */
    uint32_t bytes;
};

/* Why it was turned away: in `limit` of who turns away. */
enum sl_rdma_reason {
    SL_RDMA_NO_REASON = 0,
    SL_RDMA_FULL = 1,        /* as many connections are open as may be (connections_max) */
    SL_RDMA_DEVICE_FULL = 2, /* the device's queues have no room for another */
    SL_RDMA_NO_MEMORY = 3,
    SL_RDMA_NO_TICKET = 4,
    SL_RDMA_NOT_SANE = 5 /* the hello of who asked */
};

/* With connect, accept, and reject. */
struct sl_rdma_hello {
    uint32_t magic;
    uint16_t version;
    uint16_t is_move; /* connect: `ticket` says which connection goes on here */
    uint32_t limit;   /* as in a packet; not looked at when is_move */
    uint32_t reads;   /* RDMA reads that this side serves at a time */
    uint64_t ticket;
};

_Static_assert(sizeof(struct sl_rdma_packet) == 16, "the wire");
_Static_assert(sizeof(struct sl_rdma_remote_sge) == 16, "the wire");
_Static_assert(sizeof(struct sl_rdma_hello) == 24, "fits 56 bytes of private data");

#endif
