/* The frames of one-sided operations: READs and WRITEs of a peer's registered memory. Specified in
 * docs/protocol.md. Pure functions; any thread.
 *
 *   REQUEST  a prefix, then 1 to SL_LIMIT_TRANSFER_SLICES slices, whose ids count up from
 *            request_id. Then the bytes of its WRITEs, in the order of the slices:
 *   DATA     the bytes of one WRITE; request_id is the id of the slice
 *   REPLY    READ: the bytes; WRITE: how many WRITEs with ids from request_id on are applied. An
 *            error has a status and a text, and answers one slice.
 *
 * A slice spends one request and its bytes of the credit; the frames of the target return it. */
#ifndef SL_NET_RMA_WIRE_H
#define SL_NET_RMA_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"
#include "core/limits.h"

enum sl_rma_op { SL_RMA_READ = 1, SL_RMA_WRITE = 2 };

struct sl_rma_wire_prefix {
    uint32_t slice_count; /* REQUEST: from 1; REPLY to WRITEs: from 1 */
    uint32_t zero;
};
static_assert(sizeof(struct sl_rma_wire_prefix) == 8, "prefix size");

struct sl_rma_wire_slice {
    uint64_t key;    /* names one registration of memory at the target */
    uint64_t offset; /* in that memory */
    uint32_t bytes;  /* 1 to SL_LIMIT_FRAME_PAYLOAD_BYTES */
    uint8_t op;      /* sl_rma_op */
    uint8_t zeros[3];
};
static_assert(sizeof(struct sl_rma_wire_slice) == 24, "slice size");
static_assert(offsetof(struct sl_rma_wire_slice, op) == 20, "slice layout");

/* Payload bytes of a REQUEST. */
static inline uint32_t sl_rma_wire_request_bytes(uint32_t slice_count)
{
    return (uint32_t)(sizeof(struct sl_rma_wire_prefix) +
                      slice_count * sizeof(struct sl_rma_wire_slice));
}
static_assert(sizeof(struct sl_rma_wire_prefix) +
                      SL_LIMIT_TRANSFER_SLICES * sizeof(struct sl_rma_wire_slice) <=
                  SL_LIMIT_INLINE_PAYLOAD_BYTES,
              "a REQUEST is never a long frame");

/* Reads the payload of a REQUEST up to its first slice. first_id: request_id of the frame. Errors:
 * PROTOCOL: the count does not fit the payload or the limit, or the ids do not fit 64 bits. */
int sl_rma_wire_read_request(struct sl_bytes *cursor, uint64_t first_id, uint32_t *slice_count);

/* Reads the next slice. Key and range are for the target to check. Errors: PROTOCOL. */
int sl_rma_wire_read_slice(struct sl_bytes *cursor, struct sl_rma_wire_slice *out);

/* Reads the payload of a REPLY to WRITEs. Errors: PROTOCOL. */
int sl_rma_wire_read_applied(struct sl_bytes *cursor, uint32_t *slice_count);

/* The text of a refused slice: the same for all slices with the error. */
const char *sl_rma_wire_error_text(int err);

#endif
