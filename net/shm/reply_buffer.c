#include <stdlib.h>

#include "core/log.h"
#include "net/shm/internal.h"

/* A landing is a buffer of the caller into which the peer writes a reply. A connection remembers
 * this many of them, each in the slot request_id % LANDINGS; a power of two. */
#define LANDINGS 512U

struct landing {
    uint64_t request_id;
    uint8_t *at;
    uint32_t bytes; /* 0: the slot is free */
};

struct sl_shm_reply_buffers {
    uint32_t count;
    struct landing items[LANDINGS];
};

static struct landing *place_of(struct sl_shm_conn *conn, uint64_t request_id)
{
    if (conn->landings == NULL) {
        conn->landings = calloc(1, sizeof *conn->landings);
    }
    return conn->landings == NULL ? NULL : &conn->landings->items[request_id % LANDINGS];
}

static uint64_t id_of(const struct sl_transport_frame *frame)
{
    struct sl_frame header;
    return sl_frame_decode(frame->head, &header) == 0 ? header.request_id : 0;
}

bool sl_shm_reply_buffer_export(struct sl_shm_conn *conn, const struct sl_transport_frame *frame,
                                struct sl_shm_piece *out)
{
    if (frame->landing == NULL || frame->landing_bytes == 0 || (uintptr_t)frame->landing % 8 != 0) {
        return false;
    }
    const uint64_t request_id = id_of(frame);
    struct landing *landing = place_of(conn, request_id);
    if (landing == NULL || (landing->bytes != 0 &&
                            (landing->request_id != request_id || landing->at != frame->landing ||
                             landing->bytes != frame->landing_bytes))) {
        return false; /* another request has the slot: the reply comes through the ring */
    }
    const struct sl_shm_region *region =
        sl_shm_region_find(conn, frame->landing, frame->landing_bytes);
    if (region == NULL || !sl_shared_may_land(&region->shared)) {
        return false;
    }
    conn->landings->count += landing->bytes == 0;
    *landing = (struct landing){
        .request_id = request_id, .at = frame->landing, .bytes = frame->landing_bytes};
    *out =
        (struct sl_shm_piece){.offset = (uintptr_t)frame->landing - (uintptr_t)region->shared.base,
                              .region = region->name,
                              .bytes = frame->landing_bytes};
    return true;
}

void sl_shm_reply_buffer_unexport(struct sl_shm_conn *conn, uint64_t request_id)
{
    if (!sl_shm_reply_buffer_is_exported(conn)) {
        return;
    }
    struct landing *landing = &conn->landings->items[request_id % LANDINGS];
    if (landing->bytes != 0 && landing->request_id == request_id) {
        landing->bytes = 0;
        conn->landings->count--;
    }
}

bool sl_shm_reply_buffer_is_exported(const struct sl_shm_conn *conn)
{
    return conn->landings != NULL && conn->landings->count > 0;
}

static void take_from_peer(struct sl_shm_conn *conn, const struct landing *landing)
{
    for (uint32_t index = 0; index < conn->shm->region_end; index++) {
        const struct sl_shm_region *region = &conn->shm->regions[index];
        const uintptr_t offset = (uintptr_t)landing->at - (uintptr_t)region->base;
        if (region->base == NULL || offset >= region->bytes ||
            landing->bytes > region->bytes - offset) {
            continue;
        }
        const bool is_first = !sl_shared_is_revoked(&region->shared);
        const int err = sl_shared_revoke(&region->shared, landing->at, landing->bytes);
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
    const bool writes = sl_shm_reply_buffer_is_exported(conn) && !conn->eof &&
                        sl_shm_side_stays(sl_shm_peer_side(conn));
    for (uint32_t i = 0; writes && i < LANDINGS; i++) {
        if (conn->landings->items[i].bytes != 0) {
            take_from_peer(conn, &conn->landings->items[i]);
        }
    }
    free(conn->landings);
    conn->landings = NULL;
}
