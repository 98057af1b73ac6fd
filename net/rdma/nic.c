#include "net/rdma/nic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/end.h"
#include "net/rdma/rma_memory.h"
#include "net/rdma/wake.h"

#define CQ_ENTRIES_FIRST 1024U  /* if it can be resized */
#define CQ_ENTRIES_ONCE  65536U /* if it cannot */
#define SRQ_ENTRIES      32768U /* most entries used of what the device offers */

static uint32_t nic_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Objects of the device */

static int nic_fail(const struct sl_rdma_nic *nic, const char *what)
{
    int reason = errno;
    sl_log_error("rdma: %s: %s: %s", nic->name, what, strerror(reason));
    return sl_rdma_memory_is_short(reason) ? SL_ERR_NO_MEMORY : SL_ERR_IO;
}

static int open_channel(struct sl_rdma_nic *nic)
{
    nic->channel = nic->rdma->library->create_comp_channel(nic->verbs);
    if (nic->channel == NULL) {
        return nic_fail(nic, "no completion channel can be had");
    }
    return sl_rdma_make_non_blocking(nic->channel->fd) != 0 ? nic_fail(nic, "fcntl") : 0;
}

static bool make_completion_queue(struct sl_rdma_nic *nic, uint32_t entries)
{
    const struct sl_rdma_library *library = nic->rdma->library;
    entries = nic_least(entries, nic->caps.cqe_max);
    nic->cq = library->create_cq(nic->verbs, (int)entries, nic, nic->channel, 0);
    nic->cq_entries = nic->cq != NULL ? (uint32_t)nic->cq->cqe : 0;
    return nic->cq != NULL;
}

/* Tries a resize: no device reports whether it can. */
static int open_completion_queue(struct sl_rdma_nic *nic)
{
    const struct sl_rdma_library *library = nic->rdma->library;
    if (!make_completion_queue(nic, CQ_ENTRIES_FIRST)) {
        return nic_fail(nic, "no completion queue can be had");
    }
    uint32_t more = nic_least(2 * CQ_ENTRIES_FIRST, nic->caps.cqe_max);
    nic->caps.resizes = library->resize_cq(nic->cq, (int)more) == 0;
    if (nic->caps.resizes) {
        nic->cq_entries = (uint32_t)nic->cq->cqe;
        return 0;
    }
    (void)library->destroy_cq(nic->cq);
    return make_completion_queue(nic, CQ_ENTRIES_ONCE)
               ? 0
               : nic_fail(nic, "no completion queue can be had");
}

static int open_shared_receive_queue(struct sl_rdma_nic *nic)
{
    uint32_t entries = nic_least(nic->caps.srq_max, SRQ_ENTRIES);
    struct ibv_srq_init_attr attr = {.srq_context = nic, .attr = {.max_wr = entries, .max_sge = 1}};
    nic->srq = nic->rdma->library->create_srq(nic->pd, &attr);
    nic->srq_entries = entries;
    return nic->srq != NULL ? 0 : nic_fail(nic, "no shared receive queue can be had");
}

static int watch_all(struct sl_rdma_nic *nic)
{
    int err = sl_rdma_wake_watch(nic->rdma, nic->channel->fd, nic);
    if (err == 0) {
        err = sl_rdma_wake_watch(nic->rdma, nic->verbs->async_fd, nic);
    }
    return err == 0 ? sl_rdma_wake_watch(nic->rdma, nic->member.wake_fd, nic) : err;
}

static int open_objects(struct sl_rdma_nic *nic)
{
    int err = sl_rdma_caps_ask(nic);
    if (err != 0) {
        return err;
    }
    nic->pd = nic->rdma->library->alloc_pd(nic->verbs);
    if (nic->pd == NULL) {
        return nic_fail(nic, "no protection domain can be had");
    }
    err = open_channel(nic);
    if (err == 0) {
        err = open_completion_queue(nic);
    }
    if (err == 0) {
        err = sl_rdma_caps_try(nic);
    }
    if (err == 0) {
        err = open_shared_receive_queue(nic);
    }
    if (err == 0) {
        err = sl_rdma_memory_open(nic);
    }
    return err == 0 ? sl_rdma_pool_open(nic) : err;
}

/* A removed device refuses these calls, and has released everything. */
static void close_objects(struct sl_rdma_nic *nic)
{
    const struct sl_rdma_library *library = nic->rdma->library;
    if (nic->pd == NULL) {
        return;
    }
    sl_rdma_rma_memory_unpin(nic);
    sl_rdma_memory_close(nic);
    sl_rdma_pool_unpin(nic);
    if (nic->member.wake_fd >= 0) {
        sl_rdma_wake_unwatch(nic->rdma, nic->member.wake_fd);
        sl_rdma_wake_unwatch(nic->rdma, nic->verbs->async_fd);
    }
    if (nic->srq != NULL) {
        (void)library->destroy_srq(nic->srq);
    }
    if (nic->cq != NULL) {
        library->ack_cq_events(nic->cq, nic->events_unacknowledged);
        (void)library->destroy_cq(nic->cq);
    }
    if (nic->channel != NULL) {
        sl_rdma_wake_unwatch(nic->rdma, nic->channel->fd);
        (void)library->destroy_comp_channel(nic->channel);
    }
    (void)library->dealloc_pd(nic->pd);
    sl_rdma_device_leave(&nic->member);
    nic->events_unacknowledged = 0;
    nic->srq = NULL;
    nic->cq = NULL;
    nic->channel = NULL;
    nic->pd = NULL;
    nic->verbs = NULL;
}

/* Open and close */

static void tell(const struct sl_rdma_nic *nic, bool is_first)
{
    const struct sl_rdma_caps *can = &nic->caps;
    sl_log_write(is_first ? SL_LOG_INFO : SL_LOG_DEBUG,
                 "rdma: %s: %u bytes inline, %u pieces, %u reads at a time, completion queues %s, "
                 "relaxed ordering %s, paging on demand %s",
                 nic->name, can->inline_max, can->sge_max, can->reads_max,
                 can->resizes ? "grow" : "do not grow", can->relaxed_order ? "yes" : "no",
                 can->on_demand ? "yes" : "no");
}

static void nic_destroy(struct sl_rdma_nic **nic)
{
    close_objects(*nic);
    sl_rdma_pool_close(*nic);
    free(*nic);
    *nic = NULL;
}

static int nic_create(struct sl_rdma *rdma, struct ibv_context *verbs, struct sl_rdma_nic **out)
{
    struct sl_rdma_nic *nic = calloc(1, sizeof *nic);
    if (nic == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    nic->rdma = rdma;
    nic->verbs = verbs;
    nic->member.wake_fd = -1;
    snprintf(nic->name, sizeof nic->name, "%s", rdma->library->get_device_name(verbs->device));
    bool is_first = false;
    int err = open_objects(nic);
    if (err == 0) {
        err = sl_rdma_device_join(nic, &nic->member, &is_first);
    }
    if (err == 0) {
        err = watch_all(nic);
    }
    if (err != 0) {
        nic_destroy(&nic);
        return err;
    }
    tell(nic, is_first);
    *out = nic;
    return 0;
}

int sl_rdma_nic_get(struct sl_rdma *rdma, struct ibv_context *verbs, struct sl_rdma_nic **out)
{
    for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
        if (nic->verbs == verbs) {
            *out = nic;
            return nic->gone ? SL_ERR_IO : 0;
        }
    }
    struct sl_rdma_nic *nic = NULL;
    int err = nic_create(rdma, verbs, &nic);
    if (err != 0) {
        return err;
    }
    nic->next = rdma->nics;
    rdma->nics = nic;
    sl_rdma_rma_memory_pin_again(nic);
    sl_rdma_wake_sweep(rdma);
    *out = nic;
    return 0;
}

static void destroy_list(struct sl_rdma_nic **list)
{
    while (*list != NULL) {
        struct sl_rdma_nic *nic = *list;
        *list = nic->next;
        nic_destroy(&nic);
    }
}

void sl_rdma_nic_close_all(struct sl_rdma *rdma)
{
    destroy_list(&rdma->nics);
    destroy_list(&rdma->lost);
}

static bool is_named(const struct sl_rdma_nic *nic)
{
    const struct sl_rdma *rdma = nic->rdma;
    for (uint32_t i = 0; i < rdma->conns.capacity; i++) {
        if (rdma->conns.by_index[i] != NULL && rdma->conns.by_index[i]->nic == nic) {
            return true;
        }
    }
    return false;
}

void sl_rdma_nic_close_gone(struct sl_rdma *rdma)
{
    struct sl_rdma_nic **link = &rdma->nics;
    while (*link != NULL) {
        struct sl_rdma_nic *nic = *link;
        if (!nic->gone || nic->promises > 0 || is_named(nic) || sl_rdma_rma_memory_is_busy(rdma)) {
            link = &nic->next;
            continue;
        }
        *link = nic->next;
        nic->next = rdma->lost;
        rdma->lost = nic;
        close_objects(nic);
    }
}

/* Events */

void sl_rdma_nic_lose(struct sl_rdma_nic *nic, const char *why)
{
    if (nic->gone) {
        return;
    }
    nic->gone = true;
    sl_log_warn("rdma: %s: %s: its connections end", nic->name, why);
    struct sl_rdma *rdma = nic->rdma;
    for (uint32_t i = 0; i < rdma->conns.capacity; i++) {
        if (rdma->conns.by_index[i] != NULL && rdma->conns.by_index[i]->nic == nic) {
            sl_rdma_conn_end(rdma->conns.by_index[i], SL_ERR_IO);
        }
    }
    rdma->awake = true; /* closes the NIC if it has no connections */
}

void sl_rdma_nic_remove(struct sl_rdma *rdma, const struct ibv_context *verbs)
{
    for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
        if (nic->verbs == verbs) {
            sl_rdma_nic_lose(nic, "the device was removed");
            sl_rdma_device_remove(&nic->member);
        }
    }
}

static void on_queue_pair_event(struct sl_rdma_nic *nic, struct sl_rdma_device_event event)
{
    struct sl_rdma_conn *conn = sl_rdma_conn_of_queue_pair(nic, event.queue_pair);
    if (conn == NULL) {
        return;
    }
    if (event.type == IBV_EVENT_QP_LAST_WQE_REACHED) {
        conn->link.last_wqe = true;
        sl_rdma_mark_ready(conn);
        return;
    }
    sl_transport_warn(&nic->rdma->base, "rdma: %s: a connection fails: %s", nic->name,
                      nic->rdma->library->event_type_str(event.type));
    sl_rdma_conn_end(conn, SL_ERR_IO);
}

static void on_event(struct sl_rdma_nic *nic, struct sl_rdma_device_event event)
{
    const char *name = nic->rdma->library->event_type_str(event.type);
    switch (event.type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        on_queue_pair_event(nic, event);
        break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
        sl_rdma_nic_lose(nic, name);
        break;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
        sl_log_info("rdma: %s: %s", nic->name, name);
        break;
    default: /* failures are reported by other means */
        sl_log_debug("rdma: %s: %s", nic->name, name);
        break;
    }
}

void sl_rdma_nic_read_events(struct sl_rdma_nic *nic)
{
    struct sl_rdma_device_event event;
    while (sl_rdma_device_next(&nic->member, &event)) {
        on_event(nic, event);
    }
}
