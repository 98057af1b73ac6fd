/* The body of a packet: pieces, and bundles of frames. Owner reactor. */
#ifndef SL_NET_DPDK_BUNDLE_H
#define SL_NET_DPDK_BUNDLE_H

#include "net/dpdk/send_queue.h"

/* A body that is being written, and its checksum unless the device computes it. */
struct sl_dpdk_body {
    uint8_t *to;
    uint32_t bytes;
    bool checksums;
    uint64_t checksum;
};

void sl_dpdk_body_add(struct sl_dpdk_body *body, const uint8_t *from, uint32_t bytes);

/* The length of the frame at `place`, including its header. */
uint32_t sl_dpdk_frame_bytes(struct sl_dpdk_sending *send, const struct sl_dpdk_place *place);

/* Copies whole frames from *place on, as many as fit into `room`, and advances *place. Returns
 * their number. */
uint32_t sl_dpdk_bundle_fill(struct sl_dpdk_sending *send, struct sl_dpdk_place *place,
                             struct sl_dpdk_body *body, uint32_t room);

/* Copies `bytes` of an entry from `at` on. */
void sl_dpdk_piece_fill(const struct sl_dpdk_entry *entry, uint32_t at, struct sl_dpdk_body *body,
                        uint32_t bytes);

/* Advances `place` behind a frame of this length. */
void sl_dpdk_place_pass(struct sl_dpdk_sending *send, struct sl_dpdk_place *place, uint32_t bytes);

#endif
