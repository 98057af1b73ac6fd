#include "net/dpdk/bundle.h"

#include <string.h>

#include "core/bytes.h"
#include "net/dpdk/checksum.h"

static const uint8_t zeros[8];

void sl_dpdk_body_add(struct sl_dpdk_body *body, const uint8_t *from, uint32_t bytes)
{
    uint8_t *to = body->to + body->bytes;
    if (!body->checksums) {
        memcpy(to, from, bytes);
    } else if (body->bytes % 2 == 0) {
        body->checksum = sl_dpdk_checksum_copy(body->checksum, to, from, bytes);
    } else {
        body->checksum += sl_dpdk_checksum_odd(sl_dpdk_checksum_copy(0, to, from, bytes));
    }
    body->bytes += bytes;
}

static uint32_t bundle_entry_bytes(const struct sl_dpdk_entry *entry)
{
    return entry->head_bytes + entry->payload_bytes;
}

/* The length of the frame at `at`, including its header. */
static inline uint32_t bundle_frame_bytes(const struct sl_dpdk_entry *entry, uint32_t at)
{
    uint32_t payload_bytes;
    sl_assert(entry->head_bytes - at >= SL_FRAME_HEADER_BYTES);
    memcpy(&payload_bytes, entry->head + at, sizeof payload_bytes);
    sl_assert(payload_bytes <= bundle_entry_bytes(entry) - at - SL_FRAME_HEADER_BYTES);
    return SL_FRAME_HEADER_BYTES + payload_bytes;
}

uint32_t sl_dpdk_frame_bytes(struct sl_dpdk_sending *send, const struct sl_dpdk_place *place)
{
    return bundle_frame_bytes(sl_dpdk_entry_at(send, place->entry), place->at);
}

static inline void bundle_pass(const struct sl_dpdk_entry *entry, struct sl_dpdk_place *place,
                               uint32_t bytes)
{
    place->at += bytes;
    if (place->at == bundle_entry_bytes(entry)) {
        place->entry++;
        place->at = 0;
    }
}

void sl_dpdk_place_pass(struct sl_dpdk_sending *send, struct sl_dpdk_place *place, uint32_t bytes)
{
    bundle_pass(sl_dpdk_entry_at(send, place->entry), place, bytes);
}

void sl_dpdk_piece_fill(const struct sl_dpdk_entry *entry, uint32_t at, struct sl_dpdk_body *body,
                        uint32_t bytes)
{
    if (at < entry->head_bytes) {
        uint32_t some = entry->head_bytes - at < bytes ? entry->head_bytes - at : bytes;
        sl_dpdk_body_add(body, entry->head + at, some);
        at += some;
        bytes -= some;
    }
    if (bytes > 0) {
        sl_dpdk_body_add(body, entry->payload + (at - entry->head_bytes), bytes);
    }
}

/* Adjacent frames with lengths that are multiples of 8 are copied at once. */
struct run {
    const uint8_t *from, *end;
};

static inline void end_run(struct run *run, struct sl_dpdk_body *body)
{
    uint32_t bytes = (uint32_t)(run->end - run->from);
    memcpy(body->to + body->bytes, run->from, bytes);
    body->bytes += bytes;
    run->from = run->end;
}

static inline void add_frame(struct run *run, const struct sl_dpdk_entry *entry, uint32_t at,
                             struct sl_dpdk_body *body, uint32_t bytes)
{
    const uint8_t *from = entry->head + at;
    if (bytes % 8 == 0 && bytes <= entry->head_bytes - at) {
        if (run->end != from) {
            end_run(run, body);
            run->from = from;
        }
        run->end = from + bytes;
        return;
    }
    end_run(run, body);
    sl_dpdk_piece_fill(entry, at, body, bytes);
    sl_dpdk_body_add(body, zeros, -bytes % 8);
}

/* The checksum is computed at the end over all frames: checksums of many short copies cost more. */
uint32_t sl_dpdk_bundle_fill(struct sl_dpdk_sending *send, struct sl_dpdk_place *place,
                             struct sl_dpdk_body *body, uint32_t room)
{
    struct sl_dpdk_body bundle = {.to = body->to + body->bytes};
    struct run run = {.from = zeros, .end = zeros};
    struct sl_dpdk_place at = *place;
    uint32_t frames = 0;
    while (at.entry != send->tail) {
        const struct sl_dpdk_entry *entry = sl_dpdk_entry_at(send, at.entry);
        uint32_t bytes = bundle_frame_bytes(entry, at.at);
        uint32_t padded = (uint32_t)sl_bytes_pad8(bytes);
        if (padded > room) {
            break;
        }
        add_frame(&run, entry, at.at, &bundle, bytes);
        bundle_pass(entry, &at, bytes);
        room -= padded;
        frames++;
    }
    end_run(&run, &bundle);
    if (body->checksums) {
        body->checksum = sl_dpdk_checksum(body->checksum, bundle.to, bundle.bytes);
    }
    body->bytes += bundle.bytes;
    *place = at;
    return frames;
}
