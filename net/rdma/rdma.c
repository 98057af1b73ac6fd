#include "net/rdma/rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/list.h"
#include "core/log.h"
#include "net/rdma/address.h"
#include "net/rdma/cm_events.h"
#include "net/rdma/conn.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/connect.h"
#include "net/rdma/end.h"
#include "net/rdma/listen.h"
#include "net/rdma/liveness.h"
#include "net/rdma/receive.h"
#include "net/rdma/rma.h"
#include "net/rdma/rma_memory.h"
#include "net/rdma/send.h"

#define WATCHED_A_TURN 16
#define ACKS_AT_ONCE   64U /* completion events; each acknowledgement takes a lock in libibverbs */

/* Wake-ups */

static void read_channel(struct sl_rdma_nic *nic)
{
    const struct sl_rdma_library *library = nic->rdma->library;
    struct ibv_cq *cq;
    void *user;
    while (nic->channel != NULL && library->get_cq_event(nic->channel, &cq, &user) == 0) {
        nic->armed = false;
        if (++nic->events_unacknowledged == ACKS_AT_ONCE) {
            library->ack_cq_events(nic->cq, ACKS_AT_ONCE);
            nic->events_unacknowledged = 0;
        }
    }
}

static void rdma_on_readable(struct sl_ring_watch *watch)
{
    struct sl_rdma *rdma = SL_CONTAINER_OF(watch, struct sl_rdma, watch);
    struct epoll_event events[WATCHED_A_TURN];
    int count = epoll_wait(rdma->epoll_fd, events, WATCHED_A_TURN, 0);
    for (int i = 0; i < count; i++) {
        struct sl_rdma_nic *nic = events[i].data.ptr;
        if (nic == NULL) {
            rdma->cm_ready = true;
        } else {
            read_channel(nic);
            sl_rdma_nic_read_events(nic);
        }
    }
}

/* Open and close */

static int find_library(const struct sl_transport_options *options,
                        const struct sl_rdma_library **out)
{
    const char *why = NULL;
    *out = options->medium != NULL ? options->medium : sl_rdma_library_get(&why);
    if (*out == NULL) {
        sl_log_error("rdma: %s", why);
        return SL_ERR_UNSUPPORTED;
    }
    return 0;
}

static void set_options(struct sl_rdma *rdma, const struct sl_transport_options *options)
{
    rdma->options = (struct sl_rdma_options){
        .buffers_max = options->buffer_count != 0 ? options->buffer_count : SL_RDMA_BUFFERS,
        .has_gid_index = options->has_rdma_gid_index,
        .gid_index = options->rdma_gid_index,
        .number = options->number};
    rdma->next_nic = sl_reactor_index(rdma->base.reactor);
    if (options->rdma_device != NULL) {
        snprintf(rdma->options.devices, sizeof rdma->options.devices, "%s", options->rdma_device);
    }
}

static int rdma_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    struct sl_ring *ring = sl_reactor_ring(reactor);
    if (ring == NULL) {
        sl_log_error("rdma: reactor %s has no io_uring", sl_reactor_name(reactor));
        return SL_ERR_UNSUPPORTED;
    }
    const struct sl_rdma_library *library;
    int err = find_library(options, &library);
    if (err != 0) {
        return err;
    }
    struct sl_rdma *rdma = calloc(1, sizeof *rdma);
    if (rdma == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_transport_init(&rdma->base, reactor, options);
    rdma->library = library;
    set_options(rdma, options);
    rdma->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (rdma->epoll_fd < 0) {
        sl_log_error("rdma: epoll_create1 failed: %s", strerror(errno));
        free(rdma);
        return SL_ERR_IO;
    }
    err = sl_rdma_address_check(rdma);
    if (err == 0) {
        err = sl_rdma_cm_open(rdma);
    }
    if (err != 0) {
        close(rdma->epoll_fd);
        free(rdma);
        return err;
    }
    sl_rdma_liveness_open(rdma);
    sl_list_init(&rdma->dirty);
    sl_list_init(&rdma->ready);
    sl_ring_watch_level(ring, &rdma->watch, rdma->epoll_fd, rdma_on_readable);
    *out = &rdma->base;
    return 0;
}

static void rdma_close(struct sl_transport **transport)
{
    struct sl_rdma *rdma = (struct sl_rdma *)*transport;
    sl_rdma_listen_close(rdma);
    sl_rdma_conn_cancel_all(rdma);
    sl_rdma_liveness_close(rdma);
    sl_ring_watch_end(&rdma->watch);
    sl_rdma_cm_close(rdma);
    sl_rdma_rma_memory_close(rdma);
    sl_rdma_nic_close_all(rdma);
    sl_rdma_conn_free_all(rdma);
    close(rdma->epoll_fd);
    free(rdma);
    *transport = NULL;
}

/* Completions */

static int err_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return SL_ERR_DEADLINE;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_LOC_LEN_ERR:
        return SL_ERR_PROTOCOL;
    default:
        return SL_ERR_IO;
    }
}

/* Errors after the end of a connection say nothing new. */
static void rdma_fail(struct sl_rdma_conn *conn, enum ibv_wc_status status)
{
    if (conn->phase == SL_RDMA_ENDED || conn->end.is_suspected) {
        return;
    }
    if (conn->link.disconnected || conn->end.fin_received) {
        sl_rdma_conn_disconnected(conn);
        return;
    }
    int err = err_of(status);
    if (err == SL_ERR_PROTOCOL && status != IBV_WC_LOC_LEN_ERR) {
        sl_rdma_conn_suspect(conn);
        return;
    }
    char what[128];
    snprintf(what, sizeof what, "the device says of its queue pair: %s",
             conn->rdma->library->wc_status_str(status));
    sl_rdma_conn_refuse(conn, what, err);
}

static void take_packet(struct sl_rdma_nic *nic, const struct ibv_wc *wc)
{
    struct sl_rdma_block *block = sl_rdma_pool_take(nic, wc);
    struct sl_rdma_conn *conn = sl_rdma_conn_of_queue_pair(nic, wc->qp_num);
    if (wc->status != IBV_WC_SUCCESS || conn == NULL) {
        sl_rdma_pool_put(block);
        if (conn != NULL) {
            rdma_fail(conn, wc->status);
            sl_rdma_mark_ready(conn);
        }
        return;
    }
    conn->watch.heard = true;
    if (conn->phase == SL_RDMA_ACCEPTING) {
        sl_rdma_conn_established(conn); /* rdma_cm reports ESTABLISHED later */
    }
    switch (conn->phase) {
    case SL_RDMA_LIVE:
    case SL_RDMA_DRAINING:
        sl_rdma_receive_block(conn, block, wc->byte_len);
        break;
    default:
        sl_rdma_pool_put(block);
    }
}

static bool wants_completions(const struct sl_rdma_conn *conn)
{
    return conn->phase >= SL_RDMA_DRAINING;
}

static void take_completion(struct sl_rdma *rdma, const struct ibv_wc *wc)
{
    struct sl_rdma_conn *conn = sl_rdma_conn_of(rdma, wc->wr_id);
    if (conn == NULL) {
        return;
    }
    uint32_t number = sl_rdma_wr_number(wc->wr_id);
    bool failed = wc->status != IBV_WC_SUCCESS;
    if (failed) {
        rdma_fail(conn, wc->status);
    }
    if (failed && conn->phase != SL_RDMA_ENDED) {
        return; /* the connection ends: nothing is reported as sent */
    }
    if (!failed && sl_rdma_wr_kind(wc->wr_id) == SL_RDMA_WR_READ) {
        sl_rdma_receive_read_done(conn, number);
    } else {
        sl_rdma_send_completed(conn, number);
    }
    if (wants_completions(conn)) {
        sl_rdma_mark_ready(conn);
    }
}

/* The turn */

static void rdma_fetch(struct sl_rdma_nic *nic)
{
    int count = ibv_poll_cq(nic->cq, SL_RDMA_POLL_BATCH, nic->seen);
    nic->seen_next = 0;
    nic->seen_count = count > 0 ? (uint32_t)count : 0;
}

/* `empties` advances when the queue was found empty: all completions from before the end of a
 * connection are handled then. */
static uint32_t poll_nic(struct sl_rdma_nic *nic, uint32_t budget)
{
    uint32_t work = 0;
    do {
        if (nic->seen_next == nic->seen_count) {
            rdma_fetch(nic);
        }
        for (; nic->seen_next < nic->seen_count && work < budget; work++) {
            const struct ibv_wc *wc = &nic->seen[nic->seen_next++];
            if ((wc->wr_id & 1) != 0) {
                take_packet(nic, wc);
            } else {
                take_completion(nic->rdma, wc);
            }
        }
    } while (nic->seen_count == SL_RDMA_POLL_BATCH && work < budget);
    if (nic->seen_next == nic->seen_count && nic->seen_count < SL_RDMA_POLL_BATCH) {
        nic->empties++;
    }
    return work;
}

static bool visit(struct sl_rdma_conn *conn)
{
    return conn->phase == SL_RDMA_RESOLVING ? sl_rdma_connect_visit(conn)
                                            : sl_rdma_conn_visit(conn);
}

static uint32_t visit_ready(struct sl_rdma *rdma)
{
    uint32_t work = 0;
    struct sl_list visits; /* a connection that is marked again waits for the next poll */
    sl_list_init(&visits);
    sl_list_append_all(&visits, &rdma->ready);
    rdma->awake = false;
    SL_LIST_TAKE (struct sl_rdma_conn, conn, ready, &visits) {
        work += visit(conn) ? 1 : 0;
    }
    return work;
}

static uint32_t rdma_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    uint32_t work = 0;
    for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
        work += poll_nic(nic, budget - (work < budget ? work : budget));
    }
    if (rdma->cm_ready) {
        work += sl_rdma_cm_events_poll(rdma);
    }
    work += visit_ready(rdma);
    sl_rdma_nic_close_gone(rdma);
    return work;
}

static void rdma_flush(struct sl_transport *transport)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
        if (nic->pool.again != NULL) {
            sl_rdma_pool_flush(nic);
        }
    }
    SL_LIST_TAKE (struct sl_rdma_conn, conn, dirty, &rdma->dirty) {
        if (conn->phase == SL_RDMA_LIVE || conn->phase == SL_RDMA_DRAINING) {
            sl_rdma_send_flush(conn);
        }
    }
}

/* A completion that came before arming wakes nobody: poll once more. */
static bool arm_nic(struct sl_rdma_nic *nic)
{
    if (nic->seen_next < nic->seen_count) {
        return false;
    }
    if (nic->armed) {
        return true;
    }
    if (ibv_req_notify_cq(nic->cq, 0) != 0) {
        return nic->gone;
    }
    nic->armed = true;
    rdma_fetch(nic);
    return nic->seen_count == 0;
}

static bool rdma_arm(struct sl_transport *transport)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    if (!sl_list_empty(&rdma->dirty) || rdma->awake || rdma->cm_ready) {
        return false;
    }
    for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
        if (!arm_nic(nic)) {
            return false;
        }
    }
    return true;
}

static const struct sl_transport_ops ops = {
    .scheme = "rdma",
    .capabilities = SL_TRANSPORT_DIRECT_REPLIES | SL_TRANSPORT_REGISTERS |
                    SL_TRANSPORT_MULTI_FRAME | SL_TRANSPORT_COALESCES | SL_TRANSPORT_CHECKSUMS,
    .open = rdma_open,
    .close = rdma_close,
    .memory_register = sl_rdma_memory_register,
    .memory_unregister = sl_rdma_memory_unregister,
    .listen = sl_rdma_listen,
    .connect = sl_rdma_connect,
    .disconnect = sl_rdma_conn_disconnect,
    .send_burst = sl_rdma_send_burst,
    .release = sl_rdma_receive_release,
    .flush = rdma_flush,
    .poll = rdma_poll,
    .arm = rdma_arm,
    .rma = &sl_rdma_rma_ops,
};

const struct sl_transport_ops *sl_rdma_find(const char **why)
{
    return sl_rdma_library_get(why) != NULL ? &ops : NULL;
}
