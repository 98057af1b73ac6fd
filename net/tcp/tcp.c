#include "net/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/tcp/conn.h"
#include "net/tcp/listen.h"
#include "net/tcp/liveness.h"
#include "net/tcp/receive.h"
#include "net/tcp/send.h"
#include "net/tcp/socket.h"

#define BUFFER_BYTES_DEFAULT   (32U << 10)
#define BUFFER_COUNT_DEFAULT   256
#define UNPLACED_BYTES_DEFAULT ((size_t)256 << 20) /* of some thousand frames */
#define CLOSE_WAIT_NS          (100 * SL_CLOCK_NS_PER_MS)
#define ASKS_A_TURN            32 /* takes some microseconds */

/* Open and close */

static int set_congestion(struct sl_tcp *tcp, const char *name)
{
    if (name == NULL || name[0] == '\0') {
        return 0;
    }
    int err = sl_tcp_socket_check_congestion(name);
    if (err == 0) {
        snprintf(tcp->congestion, sizeof tcp->congestion, "%s", name);
    }
    return err;
}

static int init_buffers(struct sl_tcp *tcp, const struct sl_transport_options *options)
{
    uint32_t count = options->buffer_count != 0 ? options->buffer_count : BUFFER_COUNT_DEFAULT;
    uint32_t bytes = options->buffer_bytes != 0 ? options->buffer_bytes : BUFFER_BYTES_DEFAULT;
    const size_t unplaced =
        options->unplaced_bytes != 0 ? options->unplaced_bytes : UNPLACED_BYTES_DEFAULT;
    int err = sl_tcp_buffers_init(&tcp->buffers, tcp->ring, count, bytes, unplaced);
    if (err == SL_ERR_INVALID) {
        sl_log_error("tcp: %u receive buffers of %u bytes cannot be: their number must be a power "
                     "of two up to 32768, their size a multiple of 64",
                     count, bytes);
    } else if (err != 0) {
        sl_log_error("tcp: no memory for %u receive buffers of %u bytes", count, bytes);
    }
    return err;
}

static int tcp_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                    struct sl_transport **out)
{
    struct sl_ring *ring = sl_reactor_ring(reactor);
    if (ring == NULL) {
        sl_log_error("tcp: reactor %s has no io_uring", sl_reactor_name(reactor));
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_tcp *tcp = calloc(1, sizeof *tcp);
    if (tcp == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_transport_init(&tcp->base, reactor, options);
    tcp->ring = ring;
    sl_list_init(&tcp->sending);
    sl_list_init(&tcp->pending);
    sl_list_init(&tcp->wait_memory);
    sl_list_init(&tcp->wait_memory_asked);
    sl_list_init(&tcp->wait_buffer);
    sl_list_init(&tcp->sliced);
    sl_list_init(&tcp->ended);
    int err = set_congestion(tcp, options->congestion_control);
    if (err == 0 && options->tls != NULL) {
        err = sl_tcp_tls_context_open(options->tls, &tcp->tls);
    }
    err = err != 0 ? err : init_buffers(tcp, options);
    if (err != 0) {
        sl_tcp_tls_context_close(&tcp->tls);
        free(tcp);
        return err;
    }
    sl_tcp_liveness_init(tcp);
    *out = &tcp->base;
    return 0;
}

static uint32_t finish_ended(struct sl_tcp *tcp, uint32_t budget)
{
    uint32_t work = 0;
    struct sl_list_link *link;
    while (work < budget && (link = sl_list_pop(&tcp->ended)) != NULL) {
        sl_tcp_conn_finish(SL_CONTAINER_OF(link, struct sl_tcp_conn, waiting));
        work++;
    }
    return work;
}

/* Ends all connections, except migrating ones, which arrive. */
static void tcp_close(struct sl_transport **transport)
{
    struct sl_tcp *tcp = (struct sl_tcp *)*transport;
    sl_tcp_listen_stop(tcp);
    sl_liveness_fini(&tcp->liveness);
    SL_LIST_EACH (struct sl_tcp_conn, conn, alive, &tcp->liveness.conns) {
        sl_tcp_conn_abort(conn);
    }
    while (finish_ended(tcp, UINT32_MAX) > 0 || tcp->ops_in_flight > 0) {
        if (sl_ring_reap(tcp->ring, SL_LIMIT_TURN_EVENTS) == 0 && tcp->ops_in_flight > 0) {
            sl_ring_wait(tcp->ring, CLOSE_WAIT_NS);
        }
    }
    sl_assert(sl_list_empty(&tcp->liveness.conns));
    sl_tcp_listen_free(tcp);
    sl_tcp_conn_free_spares(tcp);
    sl_tcp_buffers_fini(&tcp->buffers);
    sl_tcp_tls_context_close(&tcp->tls);
    free(tcp);
    *transport = NULL;
}

/* Turn */

/* Advances connections that wait for memory, from `sink` or for staging, in order, a few per turn,
 * since there may be thousands. After an idle turn no memory was freed: connections that were asked
 * before it are not asked again. Asking alone does not count as work, so that the reactor can
 * sleep. */
static uint32_t retry_wait_memory(struct sl_tcp *tcp)
{
    if (!tcp->armed) {
        sl_list_append_all(&tcp->wait_memory, &tcp->wait_memory_asked);
    }
    tcp->armed = false;
    uint32_t work = 0;
    struct sl_list_link *link;
    for (uint32_t i = 0; i < ASKS_A_TURN && (link = sl_list_pop(&tcp->wait_memory)) != NULL; i++) {
        struct sl_tcp_conn *conn = SL_CONTAINER_OF(link, struct sl_tcp_conn, waiting);
        uint64_t frames_before = sl_cell_get(&tcp->base.cells->frames_received);
        sl_tcp_conn_advance(conn);
        if (!conn->receive.wait_memory ||
            sl_cell_get(&tcp->base.cells->frames_received) != frames_before) {
            work++;
        }
    }
    return work;
}

static uint32_t tcp_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_tcp *tcp = (struct sl_tcp *)transport;
    if (sl_list_empty(&tcp->pending) && sl_list_empty(&tcp->wait_memory) &&
        sl_list_empty(&tcp->wait_memory_asked) && sl_list_empty(&tcp->ended) && !tcp->spares_grew) {
        return 0;
    }
    uint32_t work = 0;
    struct sl_list_link *link;
    while (work < budget && (link = sl_list_pop(&tcp->pending)) != NULL) {
        sl_tcp_conn_resume(SL_CONTAINER_OF(link, struct sl_tcp_conn, waiting));
        work++;
    }
    work += retry_wait_memory(tcp);
    work += finish_ended(tcp, budget);
    if (tcp->spares_grew) {
        sl_tcp_conn_trim_spares(tcp);
    }
    return work;
}

/* Short frames go first: they would wait for the long ones, which hardly wait for them. */
static void tcp_flush(struct sl_transport *transport)
{
    struct sl_tcp *tcp = (struct sl_tcp *)transport;
    if (sl_list_empty(&tcp->wait_buffer) && sl_list_empty(&tcp->sending) &&
        sl_list_empty(&tcp->sliced)) {
        return;
    }
    sl_tcp_receive_feed(tcp);
    struct sl_list behind;
    sl_list_init(&behind);
    SL_LIST_TAKE (struct sl_tcp_conn, conn, sending, &tcp->sending) {
        if (sl_tcp_has_long(conn)) {
            sl_list_append(&behind, &conn->sending);
        } else {
            sl_tcp_conn_send(conn);
        }
    }
    SL_LIST_TAKE (struct sl_tcp_conn, conn, sending, &behind) {
        sl_tcp_conn_send(conn);
    }
    sl_tcp_receive_slices(tcp);
}

static bool tcp_arm(struct sl_transport *transport)
{
    struct sl_tcp *tcp = (struct sl_tcp *)transport;
    bool fed = tcp->buffers.offered > 0 && !sl_list_empty(&tcp->wait_buffer);
    tcp->armed = true;
    return sl_list_empty(&tcp->pending) && sl_list_empty(&tcp->wait_memory) &&
           sl_list_empty(&tcp->ended) && sl_list_empty(&tcp->sending) && !fed;
}

const struct sl_transport_ops sl_tcp_ops = {
    .scheme = "tcp",
    .capabilities = SL_TRANSPORT_MIGRATES | SL_TRANSPORT_MULTI_FRAME | SL_TRANSPORT_COALESCES |
                    SL_TRANSPORT_CHUNKS,
    .open = tcp_open,
    .close = tcp_close,
    .listen = sl_tcp_listen_open,
    .connect = sl_tcp_conn_connect,
    .disconnect = sl_tcp_conn_disconnect,
    .migrate = sl_tcp_conn_migrate,
    .send_burst = sl_tcp_send_burst,
    .send_now = sl_tcp_send_now,
    .release = sl_tcp_receive_release,
    .flush = tcp_flush,
    .poll = tcp_poll,
    .arm = tcp_arm,
};
