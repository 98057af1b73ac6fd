#include "net/rma/wire.h"

/* Reads a prefix with a count from 1 to the limit. */
static int rma_wire_read_count(struct sl_bytes *cursor, uint32_t *slice_count)
{
    const uint32_t count = sl_bytes_u32(cursor);
    const uint32_t zero = sl_bytes_u32(cursor);
    if (cursor->bad || zero != 0 || count == 0 || count > SL_LIMIT_TRANSFER_SLICES) {
        return SL_ERR_PROTOCOL;
    }
    *slice_count = count;
    return 0;
}

int sl_rma_wire_read_request(struct sl_bytes *cursor, uint64_t first_id, uint32_t *slice_count)
{
    uint32_t count;
    if (rma_wire_read_count(cursor, &count) != 0 ||
        cursor->left != count * sizeof(struct sl_rma_wire_slice) || first_id == 0 ||
        first_id > UINT64_MAX - count) {
        return SL_ERR_PROTOCOL;
    }
    *slice_count = count;
    return 0;
}

int sl_rma_wire_read_slice(struct sl_bytes *cursor, struct sl_rma_wire_slice *out)
{
    struct sl_rma_wire_slice slice;
    sl_bytes_copy(cursor, &slice, sizeof slice);
    if (cursor->bad || (slice.op != SL_RMA_READ && slice.op != SL_RMA_WRITE) || slice.bytes == 0 ||
        slice.bytes > SL_LIMIT_FRAME_PAYLOAD_BYTES ||
        (slice.zeros[0] | slice.zeros[1] | slice.zeros[2]) != 0) {
        return SL_ERR_PROTOCOL;
    }
    *out = slice;
    return 0;
}

int sl_rma_wire_read_applied(struct sl_bytes *cursor, uint32_t *slice_count)
{
    uint32_t count;
    if (rma_wire_read_count(cursor, &count) != 0 || cursor->left != 0) {
        return SL_ERR_PROTOCOL;
    }
    *slice_count = count;
    return 0;
}

const char *sl_rma_wire_error_text(int err)
{
    switch (err) {
    case SL_ERR_NOT_FOUND:
        return "the memory is not registered, or not any more";
    case SL_ERR_REFUSED:
        return "the memory was registered without this access for peers";
    case SL_ERR_INVALID:
        return "the range ends beyond the registered memory";
    case SL_ERR_DEADLINE:
        return "the deadline passed before the target could answer";
    default:
        return "the target refused the slice";
    }
}
