/* The payload of a SEND, and the private data of rdma_cm. Little-endian. Both ends speak version
 * SL_RDMA_VERSION. No I/O.
 * A packet is: head; remote_sge_count pieces of the sender's memory, which the receiver reads;
 * reply_buffer_count pieces of it, where the receiver may write the reply; frame_bytes of frames.
 * Kinds:
 * - FRAMES: whole frames (header and payload), each at a multiple of 8.
 * - REPLY_BUFFER: reply buffer pieces, and one whole frame.
 * - LONG: pieces, optional reply buffer pieces, and one frame: its header and the beginning of the
 *   payload (possibly empty). The pieces hold the rest.
 * - WRITTEN: a frame header. The payload has been written to the reply buffer of the request with
 *   that id.
 * - CREDIT_UPDATE: nothing more.
 * - FIN: the last packet of the connection. The sender closes when its frames are consumed.
 * Counts wrap: compare differences. */
#ifndef SL_NET_RDMA_PACKET_H
#define SL_NET_RDMA_PACKET_H

#include <stdint.h>

#include "net/wire/frame.h"

#define SL_RDMA_MAGIC        0x4d52504cU /* in private data */
#define SL_RDMA_VERSION      2
#define SL_RDMA_PACKET_BYTES 8192U /* including the head */
#define SL_RDMA_REMOTE_SGES  8U    /* pieces of each of the two sorts in a packet */

enum sl_rdma_packet_kind {
    SL_RDMA_FRAMES = 1,
    SL_RDMA_REPLY_BUFFER = 2,
    SL_RDMA_LONG = 3,
    SL_RDMA_WRITTEN = 4,
    SL_RDMA_CREDIT_UPDATE = 5,
    SL_RDMA_FIN = 6
};

enum sl_rdma_packet_flag {
    SL_RDMA_STALLED = 1 << 0, /* the sender has more to send than credit: a larger window helps */
    SL_RDMA_PING = 1 << 1     /* answer with CREDIT_UPDATE */
};

/* Kinds up to WRITTEN are counted and use one credit each; the others are uncounted. */
struct sl_rdma_packet {
    uint32_t limit; /* counted packets that the receiver of this head may have sent in all */
    uint32_t done;  /* LONG packets of the receiver of this head that were read, in all */
    uint8_t kind;
    uint8_t flags;
    uint8_t remote_sge_count,
        reply_buffer_count; /* at most SL_RDMA_REMOTE_SGES each; no piece is empty */
    uint32_t frame_bytes;   /* FRAMES: all frames, with the padding between them */
};

/* Memory of the sender's process. */
struct sl_rdma_remote_sge {
    uint64_t at;
    uint32_t key; /* remote */
    uint32_t bytes;
};

/* Why a connect request was rejected: in `limit` of the rejection. */
enum sl_rdma_reason {
    SL_RDMA_NO_REASON = 0,
    SL_RDMA_FULL = 1,        /* connections_max is reached */
    SL_RDMA_DEVICE_FULL = 2, /* the queues of the device have no room for another connection */
    SL_RDMA_NO_MEMORY = 3,
    SL_RDMA_NO_TARGET = 4, /* `target` of the request names no listener */
    SL_RDMA_NOT_SANE = 5   /* the hello makes no sense */
};

/* With connect, accept, and reject. */
struct sl_rdma_hello {
    uint32_t magic;
    uint16_t version;
    uint16_t unused;     /* 0 */
    uint32_t limit;      /* as in a packet */
    uint32_t reads;      /* RDMA reads that this side serves at a time */
    uint32_t target;     /* connect request: the peer's transport that shall own the connection */
    uint32_t unused_too; /* 0 */
};

_Static_assert(sizeof(struct sl_rdma_packet) == 16, "the wire");
_Static_assert(sizeof(struct sl_rdma_remote_sge) == 16, "the wire");
_Static_assert(sizeof(struct sl_rdma_hello) == 24, "fits 56 bytes of private data");

#endif
