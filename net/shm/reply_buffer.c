#include "net/shm/reply_buffer.h"

#include <stdlib.h>

#include "net/shm/region.h"

/* Reply buffers that a connection remembers, in slot request_id % SLOTS; a power of two. */
#define SLOTS 512U

struct reply_buffer {
    uint64_t request_id;
    uint8_t *at;
    uint32_t bytes; /* 0: the slot is free */
};

struct sl_shm_reply_buffers {
    uint32_t count;
    struct reply_buffer items[SLOTS];
};

static struct reply_buffer *place_of(struct sl_shm_conn *conn, uint64_t request_id)
{
    if (conn->reply_buffers == NULL) {
        conn->reply_buffers = calloc(1, sizeof *conn->reply_buffers);
    }
    return conn->reply_buffers == NULL ? NULL : &conn->reply_buffers->items[request_id % SLOTS];
}

static uint64_t id_of(const struct sl_transport_frame *frame)
{
    struct sl_frame header;
    return sl_frame_decode(frame->head, &header) == 0 ? header.request_id : 0;
}

bool sl_shm_reply_buffer_export(struct sl_shm_conn *conn, const struct sl_transport_frame *frame,
                                struct sl_shm_piece *out)
{
    if (frame->reply_buffer == NULL || frame->reply_buffer_bytes == 0 ||
        (uintptr_t)frame->reply_buffer % 8 != 0) {
        return false;
    }
    const uint64_t request_id = id_of(frame);
    struct reply_buffer *reply_buffer = place_of(conn, request_id);
    if (reply_buffer == NULL ||
        (reply_buffer->bytes != 0 &&
         (reply_buffer->request_id != request_id || reply_buffer->at != frame->reply_buffer ||
          reply_buffer->bytes != frame->reply_buffer_bytes))) {
        return false; /* another request uses the slot: the reply is sent through the ring */
    }
    const struct sl_shm_region *region =
        sl_shm_region_piece(conn, frame->reply_buffer, frame->reply_buffer_bytes, out);
    if (region == NULL || !sl_shared_may_land(&region->shared)) {
        return false;
    }
    conn->reply_buffers->count += reply_buffer->bytes == 0;
    *reply_buffer = (struct reply_buffer){
        .request_id = request_id, .at = frame->reply_buffer, .bytes = frame->reply_buffer_bytes};
    return true;
}

void sl_shm_reply_buffer_unexport(struct sl_shm_conn *conn, uint64_t request_id)
{
    if (!sl_shm_reply_buffer_is_exported(conn)) {
        return;
    }
    struct reply_buffer *reply_buffer = &conn->reply_buffers->items[request_id % SLOTS];
    if (reply_buffer->bytes != 0 && reply_buffer->request_id == request_id) {
        reply_buffer->bytes = 0;
        conn->reply_buffers->count--;
    }
}

bool sl_shm_reply_buffer_is_exported(const struct sl_shm_conn *conn)
{
    return conn->reply_buffers != NULL && conn->reply_buffers->count > 0;
}

static void take_from_peer(struct sl_shm_conn *conn, const struct reply_buffer *reply_buffer)
{
    for (uint32_t index = 0; index < conn->shm->region_end; index++) {
        const struct sl_shm_region *region = &conn->shm->regions[index];
        if (!sl_shm_region_holds(region->base, region->bytes, reply_buffer->at,
                                 reply_buffer->bytes)) {
            continue;
        }
        const bool is_first = !sl_shared_is_revoked(&region->shared);
        const int err = sl_shared_revoke(&region->shared, reply_buffer->at, reply_buffer->bytes);
        if (err != 0) {
            sl_log_error(
                "%s: connection closed while the peer may still write a reply into a buffer "
                "of this process; revoking its access failed: %s",
                conn->base.peer, sl_err_name(err));
        } else if (is_first) {
            sl_log_warn(
                "%s: connection closed with a reply outstanding: the buffer of %zu bytes was "
                "mapped to new pages, and later replies into it are copied",
                conn->base.peer, region->shared.bytes);
        }
        return;
    }
}

void sl_shm_reply_buffer_close(struct sl_shm_conn *conn)
{
    const bool writes = sl_shm_reply_buffer_is_exported(conn) && !conn->end.eof &&
                        sl_shm_side_stays(sl_shm_peer_side(conn));
    for (uint32_t i = 0; writes && i < SLOTS; i++) {
        if (conn->reply_buffers->items[i].bytes != 0) {
            take_from_peer(conn, &conn->reply_buffers->items[i]);
        }
    }
    free(conn->reply_buffers);
    conn->reply_buffers = NULL;
}
