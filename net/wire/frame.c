#include "net/wire/frame.h"

#include "core/assert.h"
#include "core/hash.h"

#define CRC_OFFSET   offsetof(struct sl_frame, crc32c)
#define FLAGS_OFFSET offsetof(struct sl_frame, flags)

/* The payload limit of a valid type. */
static uint32_t payload_bytes_max(uint8_t type)
{
    switch (type) {
    case SL_FRAME_CONTROL:
        return SL_LIMIT_CONTROL_PAYLOAD_BYTES;
    case SL_FRAME_REQUEST:
    case SL_FRAME_REPLY:
    case SL_FRAME_DATA:
        return SL_LIMIT_FRAME_PAYLOAD_BYTES;
    default:
        return 0;
    }
}

static int check(const struct sl_frame *frame)
{
    if (frame->magic != SL_FRAME_MAGIC) {
        return SL_ERR_PROTOCOL;
    }
    /* In another version the fields after this may have other meanings: stop here. */
    if (frame->version != SL_FRAME_PROTOCOL_VERSION) {
        return SL_ERR_VERSION;
    }
    if (frame->type < SL_FRAME_CONTROL || frame->type > SL_FRAME_DATA) {
        return SL_ERR_PROTOCOL;
    }
    if ((frame->flags & ~SL_FRAME_CHECKSUM) != 0) {
        return SL_ERR_PROTOCOL;
    }
    if ((frame->flags & SL_FRAME_CHECKSUM) == 0 && frame->crc32c != 0) {
        return SL_ERR_PROTOCOL;
    }
    if (frame->status != 0 && frame->type != SL_FRAME_REPLY) {
        return SL_ERR_PROTOCOL;
    }
    if (frame->payload_bytes > payload_bytes_max(frame->type)) {
        return SL_ERR_TOO_LARGE;
    }
    return SL_OK;
}

int sl_frame_decode(const uint8_t *header, struct sl_frame *out)
{
    sl_assert(header != NULL);
    sl_assert(out != NULL);
    struct sl_frame frame;
    memcpy(&frame, header, sizeof frame);
    int err = check(&frame);
    if (err == SL_OK || err == SL_ERR_VERSION) {
        *out = frame;
    }
    return err;
}

void sl_frame_seal(uint8_t *header, const void *payload, size_t payload_bytes, const void *tail,
                   size_t tail_bytes)
{
    sl_assert(header != NULL);
    sl_assert(payload != NULL || payload_bytes == 0);
    sl_assert(tail != NULL || tail_bytes == 0);
    header[FLAGS_OFFSET] |= SL_FRAME_CHECKSUM;
    memset(header + CRC_OFFSET, 0, sizeof(uint32_t));
    uint32_t crc = sl_hash_crc32c(0, header, SL_FRAME_HEADER_BYTES);
    crc = sl_hash_crc32c(crc, payload, payload_bytes);
    crc = sl_hash_crc32c(crc, tail, tail_bytes);
    memcpy(header + CRC_OFFSET, &crc, sizeof crc);
}

int sl_frame_verify(const struct sl_frame *frame, const uint8_t *payload)
{
    sl_assert(frame != NULL);
    sl_assert(payload != NULL || frame->payload_bytes == 0);
    if ((frame->flags & SL_FRAME_CHECKSUM) == 0) {
        return SL_OK;
    }
    struct sl_frame unsummed = *frame;
    unsummed.crc32c = 0;
    uint32_t crc = sl_hash_crc32c(0, &unsummed, sizeof unsummed);
    crc = sl_hash_crc32c(crc, payload, frame->payload_bytes);
    return crc == frame->crc32c ? SL_OK : SL_ERR_CORRUPT;
}
