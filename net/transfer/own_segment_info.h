/* Own info is what an engine sends to peers of itself: its endpoints, its NIC priority matrix, and
 * its registered buffers, page by page. First reactor. */
#ifndef SL_NET_TRANSFER_OWN_SEGMENT_INFO_H
#define SL_NET_TRANSFER_OWN_SEGMENT_INFO_H

#include "net/session/message.h"
#include "net/transfer/engine.h"

struct sl_transfer_registration;

struct sl_transfer_own_segment_info {
    /* By device, then by reactor. A peer takes those of one scheme and host for one device. */
    struct sl_message_endpoint endpoints[SL_MESSAGE_ENDPOINTS_MAX];
    uint32_t endpoint_count;
    char host[SL_MESSAGE_NAME_BYTES]; /* where memory can be mapped; "": nowhere */
    struct sl_message_buffer buffers[SL_MESSAGE_BUFFERS_MAX]; /* of the message in the making */
};

/* Makes engine->own_info, when all reactors listen. Errors: NO_MEMORY. */
int sl_transfer_own_segment_info_create(struct sl_transfer *engine);

/* Fills a page: buffers at addresses above this one. The first page, above 0, has all else too. The
 * engine owns what the message points to, until the next message is filled. */
void sl_transfer_own_segment_info_page(const struct sl_transfer *engine, uint64_t above,
                                       struct sl_message_segment *out);

/* Fills a message with the first of these items that peers may access. Returns how many were looked
 * at. */
uint32_t sl_transfer_own_segment_info_added(const struct sl_transfer *engine,
                                            struct sl_transfer_registration *const *items,
                                            uint32_t count, struct sl_message_buffers *out);

#endif
