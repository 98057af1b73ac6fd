/* The frame header: the first 32 bytes of every frame. Specified in docs/protocol.md. Pure
 * functions; any thread. */
#ifndef SL_NET_WIRE_FRAME_H
#define SL_NET_WIRE_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/err.h"
#include "core/limits.h"

#define SL_FRAME_HEADER_BYTES     32
#define SL_FRAME_PROTOCOL_VERSION 3
#define SL_FRAME_MAGIC            0x534c /* "LS" in memory order: not HTTP, TLS or ps-lite */

/* The shard in the upper 12 bits of the id of a request, a reply or a message on a data connection,
 * and the number in the others. */
#define SL_FRAME_SHARD_SHIFT      52
static_assert(SL_LIMIT_SHARDS == 1 << (64 - SL_FRAME_SHARD_SHIFT), "a shard fits into an id");

static inline uint64_t sl_frame_id(uint32_t shard, uint64_t number)
{
    return (uint64_t)shard << SL_FRAME_SHARD_SHIFT | number;
}

static inline uint32_t sl_frame_shard(uint64_t id)
{
    return (uint32_t)(id >> SL_FRAME_SHARD_SHIFT);
}

static inline uint64_t sl_frame_number(uint64_t id)
{
    return id & ((UINT64_C(1) << SL_FRAME_SHARD_SHIFT) - 1);
}

enum sl_frame_type {
    SL_FRAME_CONTROL = 1, /* payload: a protobuf Control (net/session/control.proto) */
    SL_FRAME_REQUEST = 2, /* payload: net/wire/request.h; transfers: net/rma/wire.h */
    SL_FRAME_REPLY = 3,   /* status 0: data, formats likewise; else a UTF-8 error text */
    SL_FRAME_CREDIT = 4,  /* no payload: credits only */
    SL_FRAME_DATA = 5,    /* transfers: the bytes of a WRITE, net/rma/wire.h */
};

enum sl_frame_flag {
    SL_FRAME_CHECKSUM = 1 << 0, /* crc32c is set: over the header with crc32c 0, then the payload */
};

struct sl_frame {
    uint32_t payload_bytes;   /* after the header; at most SL_LIMIT_FRAME_PAYLOAD_BYTES */
    uint16_t magic;           /* SL_FRAME_MAGIC */
    uint8_t version;          /* SL_FRAME_PROTOCOL_VERSION; at this offset in every version */
    uint8_t type;             /* sl_frame_type */
    uint64_t request_id;      /* request, reply: the shard, and a number from 1 per client and */
                              /* shard; ascends, may skip; data: of its slice */
    uint32_t budget_us;       /* request: time to its deadline, from arrival; > 0 */
                              /* reply: min_clock of the workers when it was made */
    uint32_t crc32c;          /* 0 without SL_FRAME_CHECKSUM */
    uint32_t credit_bytes;    /* granted to the receiver of this frame, added to its credit */
    uint16_t credit_requests; /* likewise */
    uint8_t flags;            /* sl_frame_flag */
    uint8_t status;           /* reply: 0, or the absolute value of an sl_err */
};

static_assert(sizeof(struct sl_frame) == SL_FRAME_HEADER_BYTES, "frame header size");
static_assert(offsetof(struct sl_frame, version) == 6, "version stays at offset 6 for ever");
static_assert(offsetof(struct sl_frame, request_id) == 8, "frame layout");
static_assert(offsetof(struct sl_frame, budget_us) == 16, "frame layout");
static_assert(offsetof(struct sl_frame, credit_bytes) == 24, "frame layout");
static_assert(offsetof(struct sl_frame, status) == 31, "frame layout");

/* Decodes and checks a header from a peer. Errors:
 * - PROTOCOL: magic, type, unknown flags, a status outside replies, a checksum without its flag.
 * - VERSION: *out is filled; only payload_bytes, magic and version mean the same in every version.
 * - TOO_LARGE: payload_bytes exceeds the limit of the type.
 *
 * Higher layers check request_id, budget_us and credits. header: SL_FRAME_HEADER_BYTES bytes, any
 * alignment. */
int sl_frame_decode(const uint8_t *header, struct sl_frame *out);

/* Fast path of sl_frame_decode for valid requests, replies and data without a checksum. False: *out
 * is undefined, call sl_frame_decode. */
static inline bool sl_frame_decode_plain(const uint8_t *header, struct sl_frame *out)
{
    memcpy(out, header, sizeof *out);
    return out->magic == SL_FRAME_MAGIC && out->version == SL_FRAME_PROTOCOL_VERSION &&
           (out->type == SL_FRAME_REPLY ||
            ((out->type == SL_FRAME_REQUEST || out->type == SL_FRAME_DATA) && out->status == 0)) &&
           out->flags == 0 && out->crc32c == 0 &&
           out->payload_bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES;
}

/* For transports: as sl_frame_decode, but accepts a short frame of another version, so that the
 * upper layer can answer a first message with an Error. */
static inline int sl_frame_decode_received(const uint8_t *header, struct sl_frame *out)
{
    int err = sl_frame_decode_plain(header, out) ? 0 : sl_frame_decode(header, out);
    const bool is_other =
        err == SL_ERR_VERSION && out->payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES;
    return is_other ? 0 : err;
}

/* Writes the header with magic and version. Leave crc32c and its flag 0; call sl_frame_seal when
 * the payload is complete. to: SL_FRAME_HEADER_BYTES bytes, any alignment. */
static inline void sl_frame_encode(const struct sl_frame *frame, uint8_t *to)
{
    /* Word by word, from registers: an array of the words would be written to memory and read back
     * by wider loads, which wait for the stores. */
    const uint64_t first = frame->payload_bytes | (uint64_t)SL_FRAME_MAGIC << 32 |
                           (uint64_t)SL_FRAME_PROTOCOL_VERSION << 48 | (uint64_t)frame->type << 56;
    const uint64_t third = frame->budget_us | (uint64_t)frame->crc32c << 32;
    const uint64_t fourth = frame->credit_bytes | (uint64_t)frame->credit_requests << 32 |
                            (uint64_t)frame->flags << 48 | (uint64_t)frame->status << 56;
    memcpy(to, &first, 8);
    memcpy(to + 8, &frame->request_id, 8);
    memcpy(to + 16, &third, 8);
    memcpy(to + 24, &fourth, 8);
}

/* Sets crc32c and its flag in an encoded frame. The payload is in one or two pieces, each of which
 * may be NULL with 0 bytes. */
void sl_frame_seal(uint8_t *header, const void *payload, size_t payload_bytes, const void *tail,
                   size_t tail_bytes);

/* Verifies the checksum, if the frame has one. payload: payload_bytes bytes. Errors: CORRUPT. */
int sl_frame_verify(const struct sl_frame *frame, const uint8_t *payload);

#endif
