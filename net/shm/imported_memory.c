#include "net/shm/imported_memory.h"

#include <stdlib.h>
#include <unistd.h>

#include "net/shm/handshake.h"
#include "net/shm/region.h"
#include "net/shm/retired_ranges.h"
#include "net/shm/rma.h"
#include "net/shm/socket.h"

#define MESSAGES_A_TURN 32
#define READS_MAX       32U /* of the socket, for one frame */

/* Returns the imported memory of that name, as far as control messages were read; NULL: none. */
static struct sl_shared *imported_by(struct sl_shm_conn *conn, uint32_t name)
{
    struct sl_shm_imported_memory *imported = conn->link.imported;
    const uint32_t index = name % SL_SHM_REGIONS;
    const bool is_there =
        imported != NULL && imported->live[index].base != NULL && imported->names[index] == name;
    return is_there ? &imported->live[index] : NULL;
}

/* Control messages */

static int import(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    struct sl_shm_imported_memory *imported = conn->link.imported;
    if (imported == NULL) {
        imported = conn->link.imported = calloc(1, sizeof *imported);
    }
    const uint32_t index = msg->region % SL_SHM_REGIONS;
    int err = 0;
    if (imported == NULL) {
        err = SL_ERR_NO_MEMORY;
    } else if (msg->region >= SL_SHM_REGION_NAMES || imported->live[index].base != NULL ||
               msg->access > SL_SHARED_WRITE) {
        err = SL_ERR_PROTOCOL;
    }
    struct sl_shared fresh;
    if (err == 0) {
        err = sl_shared_attach(fd, msg->bytes, SL_SHM_IMPORTED_BYTES - imported->bytes,
                               (enum sl_shared_access)msg->access, &fresh);
    }
    if (err != 0) {
        close(fd);
        return err == SL_ERR_INVALID ? SL_ERR_PROTOCOL : err;
    }
    sl_shm_retired_ranges_reuse(imported, &fresh);
    imported->live[index] = fresh;
    imported->names[index] = msg->region;
    imported->bytes += fresh.bytes;
    imported->writable_count += fresh.access == SL_SHARED_WRITE;
    return 0;
}

/* Keeps the address mapped: the upper layer may still have a pointer. */
static int retire(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg)
{
    struct sl_shm_imported_memory *imported = conn->link.imported;
    struct sl_shared *live = imported_by(conn, msg->region);
    if (live == NULL) {
        return SL_ERR_PROTOCOL;
    }
    if (!sl_shared_unmap_in_place(live)) {
        return SL_ERR_NO_MEMORY;
    }
    const int err = sl_shm_retired_ranges_add(imported, live);
    if (err != 0) {
        return err;
    }
    imported->writable_count -= live->access == SL_SHARED_WRITE;
    *live = (struct sl_shared){.fd = -1};
    return 0;
}

static void see_end(struct sl_shm_conn *conn)
{
    if (conn->phase == SL_SHM_HANDSHAKE) {
        sl_shm_fail(conn, SL_ERR_REFUSED, NULL);
        return;
    }
    conn->end.eof = conn->busy = conn->ready = true;
    conn->end.eof_head = conn->receive.head;
    sl_shm_socket_unwatch(conn->shm, conn->link.fd); /* else it would stay readable */
}

static void take_msg(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    int err = 0;
    switch (msg->kind) {
    case SL_SHM_CTRL_MSG_REGION:
        err = import(conn, msg, fd);
        break;
    case SL_SHM_CTRL_MSG_WITHDRAW:
        err = retire(conn, msg);
        break;
    case SL_SHM_CTRL_MSG_PING:
        (void)sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_PONG},
                                   -1);
        break;
    case SL_SHM_CTRL_MSG_RMA_ASK:
    case SL_SHM_CTRL_MSG_RMA_GIVE:
    case SL_SHM_CTRL_MSG_RMA_WITHDRAW:
    case SL_SHM_CTRL_MSG_RMA_UNMAPPED:
        err = sl_shm_rma_take(conn, msg, fd);
        break;
    case SL_SHM_CTRL_MSG_WAKE:
    case SL_SHM_CTRL_MSG_PONG:
        break;
    default:
        if (fd >= 0) {
            close(fd);
        }
        err = SL_ERR_PROTOCOL;
    }
    if (err != 0) {
        sl_shm_fail(conn, err, "its control message is invalid");
    }
}

static bool is_read(const struct sl_shm_conn *conn)
{
    return !conn->end.eof && conn->base.failure == 0 && conn->phase >= SL_SHM_HANDSHAKE &&
           conn->phase <= SL_SHM_DRAINING;
}

void sl_shm_imported_memory_read(struct sl_shm_conn *conn)
{
    for (uint32_t i = 0; i < MESSAGES_A_TURN && is_read(conn); i++) {
        struct sl_shm_ctrl_msg msg;
        int fd;
        int err = sl_shm_ctrl_msg_receive(conn->link.fd, &msg, &fd);
        if (err == SL_ERR_AGAIN) {
            return;
        }
        conn->watch.heard = true;
        sl_cell_add(&conn->shm->base.cells->receive_calls, 1);
        if (err == SL_ERR_CLOSED) {
            see_end(conn);
        } else if (err != 0) {
            sl_shm_fail(conn, err, "it sent no control message");
        } else if (conn->phase == SL_SHM_HANDSHAKE) {
            sl_shm_handshake_take(conn, &msg, fd);
        } else {
            take_msg(conn, &msg, fd);
        }
    }
}

/* Pieces */

bool sl_shm_imported_memory_piece(const struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                                  struct sl_shm_piece *out)
{
    const struct sl_shm_imported_memory *imported = conn->link.imported;
    for (uint32_t i = 0; imported != NULL && imported->writable_count > 0 && i < SL_SHM_REGIONS;
         i++) {
        const struct sl_shared *live = &imported->live[i];
        if (live->access == SL_SHARED_WRITE &&
            sl_shm_region_holds(live->base, live->bytes, at, bytes)) {
            *out = (struct sl_shm_piece){.offset = (uintptr_t)at - (uintptr_t)live->base,
                                         .region = imported->names[i] | SL_SHM_REGION_YOURS,
                                         .bytes = bytes};
            return true;
        }
    }
    return false;
}

/* As imported_by, but reads control messages if there is none. The message is sent before the frame
 * that needs it, behind at most as many others as the socket holds. */
static struct sl_shared *await_imported(struct sl_shm_conn *conn, uint32_t name)
{
    struct sl_shared *live = imported_by(conn, name);
    for (uint32_t i = 0; live == NULL && i < READS_MAX; i++) {
        sl_shm_imported_memory_read(conn);
        live = imported_by(conn, name);
    }
    return live;
}

static uint8_t *resolve_imported(struct sl_shm_conn *conn, const struct sl_shm_piece *piece)
{
    const struct sl_shared *live = await_imported(conn, piece->region);
    return live != NULL ? sl_shm_region_within(live->base, live->bytes, piece) : NULL;
}

const uint8_t *sl_shm_imported_memory_resolve(struct sl_shm_conn *conn,
                                              const struct sl_shm_piece *piece)
{
    if (piece->region == SL_SHM_REGION_ARENA) {
        uint8_t *arena = conn->link.segment->arenas[1 - conn->link.side];
        return sl_shm_region_within(arena, SL_SHM_ARENA_BYTES, piece);
    }
    if ((piece->region & SL_SHM_REGION_YOURS) != 0) {
        return sl_shm_region_resolve(conn, piece);
    }
    return resolve_imported(conn, piece);
}

uint8_t *sl_shm_imported_memory_reply_buffer(struct sl_shm_conn *conn,
                                             const struct sl_shm_piece *piece)
{
    const struct sl_shared *live = await_imported(conn, piece->region);
    return live != NULL && live->access == SL_SHARED_WRITE ? resolve_imported(conn, piece) : NULL;
}

void sl_shm_imported_memory_drop(struct sl_shm_imported_memory **imported)
{
    if (*imported == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SL_SHM_REGIONS; i++) {
        sl_shared_detach(&(*imported)->live[i]);
    }
    sl_shm_retired_ranges_drop(*imported);
    free(*imported);
    *imported = NULL;
}
