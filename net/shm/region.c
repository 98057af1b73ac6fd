#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "net/shm/internal.h"

#define READS_MAX 32U /* of the socket, for one frame */

static bool holds(const uint8_t *base, size_t base_bytes, const void *at, size_t bytes)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)base;
    return base != NULL && (uintptr_t)at >= (uintptr_t)base && offset <= base_bytes &&
           bytes <= base_bytes - offset;
}

/* Registered regions */

/* Memory that cannot be shared is copied, and needs no name. */
int sl_shm_region_register(struct sl_transport *transport, void *base, size_t bytes)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    const struct sl_shared *shared = sl_shared_find(base, bytes);
    if (shared == NULL) {
        return 0;
    }
    uint32_t index = 0;
    while (index < SL_SHM_REGIONS && shm->regions[index].base != NULL) {
        index++;
    }
    if (index == SL_SHM_REGIONS) {
        sl_log_error("shm: more than %u regions cannot be registered", SL_SHM_REGIONS);
        return SL_ERR_NO_MEMORY;
    }
    const bool is_first = index >= shm->region_end;
    const uint32_t next = shm->regions[index].name + SL_SHM_REGIONS;
    shm->regions[index] =
        (struct sl_shm_region){.base = base,
                               .bytes = bytes,
                               .name = is_first ? index : next % SL_SHM_REGION_NAMES,
                               .shared = *shared};
    if (is_first) {
        shm->region_end = index + 1;
    }
    return 0;
}

/* Returns false if the peer does not read its socket: it must not use the memory any more, so the
 * caller ends the connection. */
static bool withdraw(struct sl_shm_conn *conn, uint32_t index)
{
    conn->announced[index] = false;
    struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_WITHDRAW,
                                  .region = conn->shm->regions[index].name};
    return sl_shm_ctrl_msg_send(conn, msg, -1) == 0;
}

void sl_shm_region_unregister(struct sl_transport *transport, void *base)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    for (uint32_t index = 0; index < shm->region_end; index++) {
        if (shm->regions[index].base != base) {
            continue;
        }
        for (uint32_t i = 0; i < shm->conn_count; i++) {
            struct sl_shm_conn *conn = shm->conns[i];
            if (conn->announced[index] && !withdraw(conn, index)) {
                sl_shm_conn_end(conn, SL_ERR_DEADLINE);
            }
        }
        shm->regions[index] = (struct sl_shm_region){.name = shm->regions[index].name};
        return;
    }
}

bool sl_shm_region_recall(struct sl_shm_conn *conn)
{
    bool told = true;
    for (uint32_t index = 0; index < conn->shm->region_end; index++) {
        told = (!conn->announced[index] || withdraw(conn, index)) && told;
    }
    return told;
}

static bool announce(struct sl_shm_conn *conn, const struct sl_shm_region *region, uint32_t index)
{
    if (conn->announced[index]) {
        return true;
    }
    struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_REGION,
                                  .region = region->name,
                                  .access = region->shared.access,
                                  .bytes = region->shared.bytes};
    conn->announced[index] = sl_shm_ctrl_msg_send(conn, msg, region->shared.fd) == 0;
    return conn->announced[index];
}

const struct sl_shm_region *sl_shm_region_find(struct sl_shm_conn *conn, const void *at,
                                               size_t bytes)
{
    const struct sl_shm *shm = conn->shm;
    for (uint32_t index = 0; index < shm->region_end; index++) {
        const struct sl_shm_region *region = &shm->regions[index];
        if (holds(region->base, region->bytes, at, bytes)) {
            if (sl_shared_is_revoked(&region->shared)) {
                return NULL; /* the peer has other pages */
            }
            return announce(conn, region, index) ? region : NULL;
        }
    }
    return NULL;
}

static bool piece_of_ours(struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                          struct sl_shm_piece *out)
{
    const struct sl_shm_region *region = sl_shm_region_find(conn, at, bytes);
    if (region == NULL) {
        return false;
    }
    *out = (struct sl_shm_piece){.offset = (uintptr_t)at - (uintptr_t)region->shared.base,
                                 .region = region->name,
                                 .bytes = bytes};
    return true;
}

static bool piece_of_theirs(const struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                            struct sl_shm_piece *out)
{
    const struct sl_shm_imported *imported = conn->link.imported;
    for (uint32_t i = 0; imported != NULL && imported->writable_count > 0 && i < SL_SHM_REGIONS;
         i++) {
        const struct sl_shared *live = &imported->live[i];
        if (live->access == SL_SHARED_WRITE && holds(live->base, live->bytes, at, bytes)) {
            *out = (struct sl_shm_piece){.offset = (uintptr_t)at - (uintptr_t)live->base,
                                         .region = imported->names[i] | SL_SHM_REGION_YOURS,
                                         .bytes = bytes};
            return true;
        }
    }
    return false;
}

bool sl_shm_region_piece(struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                         struct sl_shm_piece *out)
{
    return piece_of_theirs(conn, at, bytes, out) ||
           (bytes >= SL_SHM_BY_REF_BYTES && piece_of_ours(conn, at, bytes, out));
}

/* Imported regions */

static uint8_t *within(uint8_t *base, uint64_t base_bytes, const struct sl_shm_piece *piece)
{
    bool lies_there =
        base != NULL && piece->offset <= base_bytes && piece->bytes <= base_bytes - piece->offset;
    return lies_there ? base + piece->offset : NULL;
}

/* Returns the imported memory of that name, as far as control messages were read; NULL: none. */
static struct sl_shared *imported_by(struct sl_shm_conn *conn, uint32_t name)
{
    struct sl_shm_imported *imported = conn->link.imported;
    const uint32_t index = name % SL_SHM_REGIONS;
    const bool is_there =
        imported != NULL && imported->live[index].base != NULL && imported->names[index] == name;
    return is_there ? &imported->live[index] : NULL;
}

/* As imported_by, but reads control messages if there is none. The message is sent before the frame
 * that needs it, behind at most as many others as the socket holds. */
static struct sl_shared *await_imported(struct sl_shm_conn *conn, uint32_t name)
{
    struct sl_shared *live = imported_by(conn, name);
    for (uint32_t i = 0; live == NULL && i < READS_MAX; i++) {
        sl_shm_conn_read(conn);
        live = imported_by(conn, name);
    }
    return live;
}

static uint8_t *resolve_imported(struct sl_shm_conn *conn, const struct sl_shm_piece *piece)
{
    const struct sl_shared *live = await_imported(conn, piece->region);
    return live != NULL ? within(live->base, live->bytes, piece) : NULL;
}

/* A region lies within shared memory, which the peer maps as a whole. */
static uint8_t *resolve_ours(struct sl_shm_conn *conn, const struct sl_shm_piece *piece)
{
    const uint32_t name = piece->region & ~SL_SHM_REGION_YOURS;
    const uint32_t index = name % SL_SHM_REGIONS;
    if (!conn->announced[index] || conn->shm->regions[index].name != name) {
        return NULL;
    }
    const struct sl_shared *shared = &conn->shm->regions[index].shared;
    return shared->access == SL_SHARED_WRITE
               ? within(sl_shared_at_peers(shared), shared->bytes, piece)
               : NULL;
}

const uint8_t *sl_shm_region_resolve(struct sl_shm_conn *conn, const struct sl_shm_piece *piece)
{
    if (piece->region == SL_SHM_REGION_ARENA) {
        uint8_t *arena = conn->link.segment->arenas[1 - conn->link.side];
        return within(arena, SL_SHM_ARENA_BYTES, piece);
    }
    if ((piece->region & SL_SHM_REGION_YOURS) != 0) {
        return resolve_ours(conn, piece);
    }
    return resolve_imported(conn, piece);
}

uint8_t *sl_shm_region_reply_buffer(struct sl_shm_conn *conn, const struct sl_shm_piece *piece)
{
    const struct sl_shared *live = await_imported(conn, piece->region);
    return live != NULL && live->access == SL_SHARED_WRITE ? resolve_imported(conn, piece) : NULL;
}

int sl_shm_region_imported(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    struct sl_shm_imported *imported = conn->link.imported;
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
    sl_shm_retired_reuse(imported, &fresh);
    imported->live[index] = fresh;
    imported->names[index] = msg->region;
    imported->bytes += fresh.bytes;
    imported->writable_count += fresh.access == SL_SHARED_WRITE;
    return 0;
}

/* Keeps the address mapped: the upper layer may still have a pointer. */
int sl_shm_region_withdrawn(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg)
{
    struct sl_shm_imported *imported = conn->link.imported;
    struct sl_shared *live = imported_by(conn, msg->region);
    if (live == NULL) {
        return SL_ERR_PROTOCOL;
    }
    if (!sl_shared_unmap_in_place(live)) {
        return SL_ERR_NO_MEMORY;
    }
    const int err = sl_shm_retired_add(imported, live);
    if (err != 0) {
        return err;
    }
    imported->writable_count -= live->access == SL_SHARED_WRITE;
    *live = (struct sl_shared){.fd = -1};
    return 0;
}

void sl_shm_region_drop_imported(struct sl_shm_imported **imported)
{
    if (*imported == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SL_SHM_REGIONS; i++) {
        sl_shared_detach(&(*imported)->live[i]);
    }
    sl_shm_retired_drop(*imported);
    free(*imported);
    *imported = NULL;
}
