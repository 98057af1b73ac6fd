#include "net/shm/region.h"

#include "net/shm/socket.h"

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
        SL_LIST_EACH (struct sl_shm_conn, conn, alive, &shm->liveness.conns) {
            if (conn->announced[index] && !withdraw(conn, index)) {
                sl_shm_fail(conn, SL_ERR_DEADLINE, NULL);
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

const struct sl_shm_region *sl_shm_region_piece(struct sl_shm_conn *conn, const void *at,
                                                uint32_t bytes, struct sl_shm_piece *out)
{
    const struct sl_shm *shm = conn->shm;
    for (uint32_t index = 0; index < shm->region_end; index++) {
        const struct sl_shm_region *region = &shm->regions[index];
        if (!sl_shm_region_holds(region->base, region->bytes, at, bytes)) {
            continue;
        }
        if (sl_shared_is_revoked(&region->shared) || !announce(conn, region, index)) {
            return NULL; /* revoked: the peer has other pages */
        }
        *out = (struct sl_shm_piece){.offset = (uintptr_t)at - (uintptr_t)region->shared.base,
                                     .region = region->name,
                                     .bytes = bytes};
        return region;
    }
    return NULL;
}

/* A region lies within shared memory, which the peer maps as a whole. */
uint8_t *sl_shm_region_resolve(struct sl_shm_conn *conn, const struct sl_shm_piece *piece)
{
    const uint32_t name = piece->region & ~SL_SHM_REGION_YOURS;
    const uint32_t index = name % SL_SHM_REGIONS;
    if (!conn->announced[index] || conn->shm->regions[index].name != name) {
        return NULL;
    }
    const struct sl_shared *shared = &conn->shm->regions[index].shared;
    return shared->access == SL_SHARED_WRITE
               ? sl_shm_region_within(sl_shared_at_peers(shared), shared->bytes, piece)
               : NULL;
}
