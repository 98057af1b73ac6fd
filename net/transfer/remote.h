/* A remote is the list of a peer's registered buffers, by ascending address. Pure; one owner. */
#ifndef SL_NET_TRANSFER_REMOTE_H
#define SL_NET_TRANSFER_REMOTE_H

#include <starling_transfer.h>

#include "net/session/message.h"
#include "net/transport_rma.h"

/* Names a buffer for one-sided operations on the connections to one device of the peer. */
struct sl_transfer_remote_token {
    uint32_t device; /* sl_rail.remote */
    struct sl_transport_rma_token token;
};

struct sl_transfer_remote_buffer {
    uint64_t address, bytes, key;
    unsigned access; /* sl_transfer_access */
    uint32_t near;   /* rails that are preferred for its location, as bits; 0: all are the same */
    uint32_t token_count;
    struct sl_transfer_remote_token tokens[SL_MESSAGE_TOKENS_MAX];
    char location[SL_TRANSFER_LOCATION_BYTES];
};

struct sl_transfer_remote {
    uint32_t count, capacity;
    struct sl_transfer_remote_buffer buffers[];
};

/* Adds what the peer has sent; *remote: NULL: none yet. A buffer that overlaps another one is
 * ignored. endpoints: of the peer, for the tokens. Errors: TOO_LARGE, NO_MEMORY. */
int sl_transfer_remote_add(struct sl_transfer_remote **remote,
                           const struct sl_message_buffers *buffers,
                           const struct sl_endpoint *endpoints, uint32_t endpoint_count);

void sl_transfer_remote_remove(struct sl_transfer_remote *remote,
                               const struct sl_message_buffer_keys *keys);

/* Returns a copy; NULL: no memory. The caller frees it. */
struct sl_transfer_remote *sl_transfer_remote_copy(const struct sl_transfer_remote *remote);

/* Returns the last buffer that begins at or before the address; NULL: none. remote: may be NULL. */
const struct sl_transfer_remote_buffer *
sl_transfer_remote_find(const struct sl_transfer_remote *remote, uint64_t address);

/* NULL: the buffer has no token for the device. */
const struct sl_transport_rma_token *
sl_transfer_remote_token(const struct sl_transfer_remote_buffer *buffer, uint32_t device);

#endif
