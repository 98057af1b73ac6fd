/* The control messages between transfer engines, as part of message.h.
 *
 * An engine that opens a segment (the initiator) requests the target's buffers page by page, by
 * ascending address: SEGMENT_GET with the last address of the previous page. From the first
 * SEGMENT_GET on, the target notifies it of each change with BUFFER_ADDED and BUFFER_GONE. */
#ifndef SL_NET_SESSION_MESSAGE_TRANSFER_H
#define SL_NET_SESSION_MESSAGE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"
#include "net/session/message_sizes.h"

#define SL_MESSAGE_BUFFERS_MAX    256 /* in one message; also keys */
#define SL_MESSAGE_TOKENS_MAX     16
#define SL_MESSAGE_TOKEN_BYTES    32
#define SL_MESSAGE_LOCATION_BYTES 32
#define SL_MESSAGE_DEVICE_BYTES   32
#define SL_MESSAGE_ENDPOINTS_MAX  256
#define SL_MESSAGE_MATRIX_BYTES   (16U << 10)
#define SL_MESSAGE_SENDER_BYTES   256
#define SL_MESSAGE_NOTICE_BYTES   4096 /* without NUL */
#define SL_MESSAGE_ATTACHED_BYTES (72U << 10)

enum sl_message_buffer_access { /* bits */
                                SL_MESSAGE_BUFFER_READ = 1,
                                SL_MESSAGE_BUFFER_WRITE = 2
};

/* Keys with which a transport reaches the buffer without the target's processor. */
struct sl_message_token {
    uint32_t endpoint; /* index of the first endpoint, in `endpoints`, that it is valid for */
    uint32_t byte_count;
    uint8_t bytes[SL_MESSAGE_TOKEN_BYTES];
};

struct sl_message_buffer {
    uint64_t key;     /* random, of this registration */
    uint64_t address; /* at the target; > 0 */
    uint64_t bytes;   /* > 0; address + bytes does not overflow */
    uint32_t access;  /* sl_message_buffer_access, of peers */
    char location[SL_MESSAGE_LOCATION_BYTES];
    struct sl_message_token tokens[SL_MESSAGE_TOKENS_MAX];
    uint32_t token_count;
};

struct sl_message_buffers {
    struct sl_message_buffer *items; /* owned by the message; by ascending address, no overlap */
    uint32_t count;                  /* up to SL_MESSAGE_BUFFERS_MAX */
};

struct sl_message_endpoint {
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char device[SL_MESSAGE_DEVICE_BYTES]; /* its name in the matrix; "": none */
};

struct sl_message_segment {
    uint64_t incarnation;
    /* Peers with the same host reach it over shared memory; "": none do. */
    char host[SL_MESSAGE_NAME_BYTES];
    struct sl_message_endpoint *endpoints; /* owned by the message; only in the first page */
    uint32_t endpoint_count;
    /* JSON, printable ASCII; owned by the message; NULL: none. Only in the first page. */
    char *matrix;
    struct sl_message_buffers buffers;
    bool more; /* buffers follow: request those above the last one */
};

struct sl_message_buffer_keys {
    uint64_t items[SL_MESSAGE_BUFFERS_MAX];
    uint32_t count; /* from 1 */
};

/* NOTICE; NOTICE_TAKEN: only its bytes, if the notice asked */
struct sl_message_notice {
    uint64_t sequence;                    /* from 1, ascending, of the sender's client_id */
    char sender[SL_MESSAGE_SENDER_BYTES]; /* its segment's name */
    char name[SL_MESSAGE_NAME_BYTES];
    bool asks;         /* it is answered by the receiver's application */
    uint64_t answered; /* answers to lower sequences are not needed any more */
    uint32_t byte_count;
    uint8_t bytes[SL_MESSAGE_NOTICE_BYTES];
    const uint8_t *attached; /* decoded: in the encoded message; NULL: none, as from older peers */
    uint32_t attached_bytes;
    uint8_t *memory; /* net/transfer: of that message; not encoded */
};

/* FENCE */
struct sl_message_fence {
    uint32_t lane;  /* from 1 */
    uint64_t epoch; /* hellos of this lane with this lane_epoch, or less, are refused */
};

#endif
