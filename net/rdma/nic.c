#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/rdma/internal.h"

#define CQ_ENTRIES_FIRST 1024U  /* where it can grow */
#define CQ_ENTRIES_ONCE  65536U /* where it cannot */
#define SRQ_ENTRIES      32768U /* the most that is taken of what the device offers */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- What is open on the device ---------------------------------------------------------------
 */

static int fail(const struct sl_rdma_nic *rail, const char *what)
{
    int reason = errno;
    sl_log_error("rdma: %s: %s: %s", rail->name, what, strerror(reason));
    return sl_rdma_memory_is_short(reason) ? SL_ERR_NO_MEMORY : SL_ERR_IO;
}

static int open_channel(struct sl_rdma_nic *rail)
{
    rail->channel = rail->rdma->library->create_comp_channel(rail->verbs);
    if (rail->channel == NULL) {
        return fail(rail, "no completion channel can be had");
    }
    return sl_rdma_make_non_blocking(rail->channel->fd) != 0 ? fail(rail, "fcntl") : 0;
}

static bool make_completion_queue(struct sl_rdma_nic *rail, uint32_t entries)
{
    const struct sl_rdma_library *library = rail->rdma->library;
    entries = least(entries, rail->can.cqe_max);
    rail->cq = library->create_cq(rail->verbs, (int)entries, rail, rail->channel, 0);
    rail->cq_entries = rail->cq != NULL ? (uint32_t)rail->cq->cqe : 0;
    return rail->cq != NULL;
}

/* Whether it can grow is found by having it grow. */
static int open_completion_queue(struct sl_rdma_nic *rail)
{
    const struct sl_rdma_library *library = rail->rdma->library;
    if (!make_completion_queue(rail, CQ_ENTRIES_FIRST)) {
        return fail(rail, "no completion queue can be had");
    }
    uint32_t more = least(2 * CQ_ENTRIES_FIRST, rail->can.cqe_max);
    rail->can.resizes = library->resize_cq(rail->cq, (int)more) == 0;
    if (rail->can.resizes) {
        rail->cq_entries = (uint32_t)rail->cq->cqe;
        return 0;
    }
    (void)library->destroy_cq(rail->cq);
    return make_completion_queue(rail, CQ_ENTRIES_ONCE)
               ? 0
               : fail(rail, "no completion queue can be had");
}

/* Without one, which some devices do not have, each queue pair has buffers of its own. */
static void open_shared_receive_queue(struct sl_rdma_nic *rail)
{
    uint32_t entries = least(rail->can.srq_max, SRQ_ENTRIES);
    struct ibv_srq_init_attr attr = {.srq_context = rail,
                                     .attr = {.max_wr = entries, .max_sge = 1}};
    rail->srq = entries > 0 ? rail->rdma->library->create_srq(rail->pd, &attr) : NULL;
    rail->srq_entries = rail->srq != NULL ? entries : 0;
}

static int watch_all(struct sl_rdma_nic *rail)
{
    int err = sl_rdma_watch(rail->rdma, rail->channel->fd, rail);
    if (err == 0) {
        err = sl_rdma_watch(rail->rdma, rail->verbs->async_fd, rail);
    }
    return err == 0 ? sl_rdma_watch(rail->rdma, rail->member.wake_fd, rail) : err;
}

static int open_objects(struct sl_rdma_nic *rail)
{
    int err = sl_rdma_caps_ask(rail);
    if (err != 0) {
        return err;
    }
    rail->pd = rail->rdma->library->alloc_pd(rail->verbs);
    if (rail->pd == NULL) {
        return fail(rail, "no protection domain can be had");
    }
    err = open_channel(rail);
    if (err == 0) {
        err = open_completion_queue(rail);
    }
    if (err == 0) {
        err = sl_rdma_caps_try(rail);
    }
    if (err == 0) {
        open_shared_receive_queue(rail);
        err = sl_rdma_memory_open(rail);
    }
    return err == 0 ? sl_rdma_pool_open(rail) : err;
}

/* A device that was removed refuses all of it, and has nothing left. */
static void close_objects(struct sl_rdma_nic *rail)
{
    const struct sl_rdma_library *library = rail->rdma->library;
    if (rail->pd == NULL) {
        return;
    }
    sl_rdma_memory_close(rail);
    sl_rdma_pool_unpin(rail);
    if (rail->member.wake_fd >= 0) {
        sl_rdma_unwatch(rail->rdma, rail->member.wake_fd);
        sl_rdma_unwatch(rail->rdma, rail->verbs->async_fd);
    }
    if (rail->srq != NULL) {
        (void)library->destroy_srq(rail->srq);
    }
    if (rail->cq != NULL) {
        library->ack_cq_events(rail->cq, rail->events_unacknowledged);
        (void)library->destroy_cq(rail->cq);
    }
    if (rail->channel != NULL) {
        sl_rdma_unwatch(rail->rdma, rail->channel->fd);
        (void)library->destroy_comp_channel(rail->channel);
    }
    (void)library->dealloc_pd(rail->pd);
    sl_rdma_device_leave(&rail->member);
    rail->events_unacknowledged = 0;
    rail->srq = NULL;
    rail->cq = NULL;
    rail->channel = NULL;
    rail->pd = NULL;
    rail->verbs = NULL;
}

/* ---- Open and close ---------------------------------------------------------------------------
 */

static void tell(const struct sl_rdma_nic *rail, bool is_first)
{
    const struct sl_rdma_caps *can = &rail->can;
    sl_log_write(is_first ? SL_LOG_INFO : SL_LOG_DEBUG,
                 "rdma: %s: %s, %u bytes inline, %u pieces, %u reads at a time, %s shared receive "
                 "queue, completion queues %s, relaxed ordering %s, paging on demand %s",
                 rail->name, can->is_iwarp ? "iWARP" : "InfiniBand or RoCE", can->inline_max,
                 can->sge_max, can->reads_max, rail->srq != NULL ? "a" : "no",
                 can->resizes ? "grow" : "do not grow", can->relaxed_order ? "yes" : "no",
                 can->on_demand ? "yes" : "no");
}

static void rail_destroy(struct sl_rdma_nic **rail)
{
    close_objects(*rail);
    sl_rdma_pool_close(*rail);
    free(*rail);
    *rail = NULL;
}

static int rail_create(struct sl_rdma *rdma, struct ibv_context *verbs, struct sl_rdma_nic **out)
{
    struct sl_rdma_nic *rail = calloc(1, sizeof *rail);
    if (rail == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    rail->rdma = rdma;
    rail->verbs = verbs;
    rail->member.wake_fd = -1;
    snprintf(rail->name, sizeof rail->name, "%s", rdma->library->get_device_name(verbs->device));
    bool is_first = false;
    int err = open_objects(rail);
    if (err == 0) {
        err = sl_rdma_device_join(rail, &rail->member, &is_first);
    }
    if (err == 0) {
        err = watch_all(rail);
    }
    if (err != 0) {
        rail_destroy(&rail);
        return err;
    }
    tell(rail, is_first);
    *out = rail;
    return 0;
}

int sl_rdma_nic_get(struct sl_rdma *rdma, struct ibv_context *verbs, struct sl_rdma_nic **out)
{
    for (struct sl_rdma_nic *rail = rdma->rails; rail != NULL; rail = rail->next) {
        if (rail->verbs == verbs) {
            *out = rail;
            return rail->gone ? SL_ERR_IO : 0;
        }
    }
    struct sl_rdma_nic *rail = NULL;
    int err = rail_create(rdma, verbs, &rail);
    if (err != 0) {
        return err;
    }
    rail->next = rdma->rails;
    rdma->rails = rail;
    sl_rdma_liveness_start(rdma);
    *out = rail;
    return 0;
}

static void destroy_list(struct sl_rdma_nic **list)
{
    while (*list != NULL) {
        struct sl_rdma_nic *rail = *list;
        *list = rail->next;
        rail_destroy(&rail);
    }
}

void sl_rdma_nic_close_all(struct sl_rdma *rdma)
{
    destroy_list(&rdma->rails);
    destroy_list(&rdma->lost);
}

static bool is_named(const struct sl_rdma_nic *rail)
{
    const struct sl_rdma *rdma = rail->rdma;
    for (uint32_t i = 0; i < rdma->conn_capacity; i++) {
        if (rdma->conns[i] != NULL && rdma->conns[i]->rail == rail) {
            return true;
        }
    }
    return false;
}

void sl_rdma_nic_close_gone(struct sl_rdma *rdma)
{
    struct sl_rdma_nic **link = &rdma->rails;
    while (*link != NULL) {
        struct sl_rdma_nic *rail = *link;
        if (!rail->gone || rail->promises > 0 || is_named(rail)) {
            link = &rail->next;
            continue;
        }
        *link = rail->next;
        rail->next = rdma->lost;
        rdma->lost = rail;
        close_objects(rail);
    }
}

/* ---- Events -----------------------------------------------------------------------------------
 */

void sl_rdma_nic_lose(struct sl_rdma_nic *rail, const char *why)
{
    if (rail->gone) {
        return;
    }
    rail->gone = true;
    sl_log_warn("rdma: %s: %s: its connections end", rail->name, why);
    struct sl_rdma *rdma = rail->rdma;
    for (uint32_t i = 0; i < rdma->conn_capacity; i++) {
        if (rdma->conns[i] != NULL && rdma->conns[i]->rail == rail) {
            sl_rdma_conn_end(rdma->conns[i], SL_ERR_IO);
        }
    }
    rdma->awake = true; /* to close it, if it has none */
}

void sl_rdma_nic_remove(struct sl_rdma *rdma, const struct ibv_context *verbs)
{
    for (struct sl_rdma_nic *rail = rdma->rails; rail != NULL; rail = rail->next) {
        if (rail->verbs == verbs) {
            sl_rdma_nic_lose(rail, "the device was removed");
            sl_rdma_device_remove(&rail->member);
        }
    }
}

static void on_queue_pair_event(struct sl_rdma_nic *rail, struct sl_rdma_device_event event)
{
    struct sl_rdma_conn *conn = sl_rdma_conn_of_queue_pair(rail, event.queue_pair);
    if (conn == NULL) {
        return;
    }
    if (event.type == IBV_EVENT_QP_LAST_WQE_REACHED) {
        conn->link.last_wqe = true;
        sl_rdma_mark_ready(conn);
        return;
    }
    if (rail->can.is_iwarp) {
        if (conn->suspect_err == 0) {
            sl_rdma_conn_suspect(conn, SL_ERR_IO);
        }
        return;
    }
    if (sl_rdma_may_log(rail->rdma)) {
        sl_log_warn("rdma: %s: a connection fails: %s", rail->name,
                    rail->rdma->library->event_type_str(event.type));
    }
    sl_rdma_conn_end(conn, SL_ERR_IO);
}

static void on_event(struct sl_rdma_nic *rail, struct sl_rdma_device_event event)
{
    const char *name = rail->rdma->library->event_type_str(event.type);
    switch (event.type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        on_queue_pair_event(rail, event);
        break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
        sl_rdma_nic_lose(rail, name);
        break;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
        sl_log_info("rdma: %s: %s", rail->name, name);
        break;
    default: /* what fails for it says so by itself */
        sl_log_debug("rdma: %s: %s", rail->name, name);
        break;
    }
}

void sl_rdma_nic_read_events(struct sl_rdma_nic *rail)
{
    struct sl_rdma_device_event event;
    while (sl_rdma_device_next(&rail->member, &event)) {
        on_event(rail, event);
    }
}
