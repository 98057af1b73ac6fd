#include "net/shm/shm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/list.h"
#include "core/log.h"
#include "net/shm/internal.h"

#define BUFFER_BYTES_DEFAULT (32U << 10)
#define BUFFER_COUNT_DEFAULT 256
#define LOG_INTERVAL_NS      SL_CLOCK_NS_PER_S
#define CLOSE_WAIT_NS        (100 * SL_CLOCK_NS_PER_MS)
#define SOCKETS_A_TURN       64

bool sl_shm_may_log(struct sl_shm *shm)
{
    uint64_t now_ns = sl_reactor_now_ns(shm->base.reactor);
    if (now_ns < shm->log_next_ns) {
        shm->log_dropped++;
        return false;
    }
    shm->log_next_ns = now_ns + LOG_INTERVAL_NS;
    if (shm->log_dropped > 0) {
        sl_log_warn("shm: %u more lines about peers were not logged", shm->log_dropped);
        shm->log_dropped = 0;
    }
    return true;
}

/* Includes the user id: processes of other users cannot connect. */
void sl_shm_host(char host[SL_SHM_HOST_BYTES])
{
    char boot[37] = "";
    struct stat network;
    host[0] = '\0';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL) {
        return;
    }
    bool known = fgets(boot, sizeof boot, file) != NULL && strlen(boot) == sizeof boot - 1;
    fclose(file);
    if (known && stat("/proc/self/ns/net", &network) == 0) {
        snprintf(host, SL_SHM_HOST_BYTES, "%s/%llx/%x", boot, (unsigned long long)network.st_ino,
                 (unsigned)geteuid());
    }
}

/* Sockets: one submission polls the epoll descriptor; it is renewed after each event. */

static void on_readable(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags);

static void watch(struct sl_shm *shm)
{
    shm->op.complete = on_readable;
    shm->watching = true;
    struct io_uring_sqe *sqe = sl_ring_sqe(shm->ring, &shm->op);
    io_uring_prep_poll_add(sqe, shm->epoll_fd, POLLIN);
}

/* Memory of connections is not freed while the transport is open: an event for an ended one does no
 * harm. */
static void on_readable(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    (void)result;
    (void)cqe_flags;
    struct sl_shm *shm = SL_CONTAINER_OF(op, struct sl_shm, op);
    struct epoll_event events[SOCKETS_A_TURN];
    shm->watching = false;
    if (shm->closing) {
        return;
    }
    int count = epoll_wait(shm->epoll_fd, events, SOCKETS_A_TURN, 0);
    for (int i = 0; i < count; i++) {
        uintptr_t what = events[i].data.u64;
        if ((what & 1) != 0) {
            sl_shm_listen_accept((struct sl_shm_listener *)(what - 1));
        } else {
            sl_shm_conn_read((struct sl_shm_conn *)what);
        }
    }
    watch(shm);
}

/* Open and close */

static int shm_open_transport(struct sl_reactor *reactor,
                              const struct sl_transport_options *options, struct sl_transport **out)
{
    struct sl_ring *ring = sl_reactor_ring(reactor);
    if (ring == NULL) {
        sl_log_error("shm: reactor %s has no io_uring", sl_reactor_name(reactor));
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_shm *shm = calloc(1, sizeof *shm);
    if (shm == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    shm->base.ops = &sl_shm_ops;
    shm->base.reactor = reactor;
    shm->ring = ring;
    shm->connections_max =
        options->connections_max != 0 ? options->connections_max : SL_LIMIT_CONNECTIONS;
    shm->peer_timeout_ms =
        options->peer_timeout_ms != 0 ? options->peer_timeout_ms : SL_SHM_PEER_TIMEOUT_MS;
    uint32_t count = options->buffer_count != 0 ? options->buffer_count : BUFFER_COUNT_DEFAULT;
    uint32_t bytes = options->buffer_bytes != 0 ? options->buffer_bytes : BUFFER_BYTES_DEFAULT;
    int err = sl_shm_staging_init(&shm->staging, count, bytes);
    if (err != 0) {
        free(shm);
        return err;
    }
    shm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (shm->epoll_fd < 0) {
        sl_log_error("shm: epoll_create1 failed: %s", strerror(errno));
        sl_shm_staging_fini(&shm->staging);
        free(shm);
        return SL_ERR_IO;
    }
    sl_shm_liveness_open(shm);
    watch(shm);
    *out = &shm->base;
    return 0;
}

static void cancel_connections(struct sl_shm *shm)
{
    (void)sl_shm_conn_close_lost(shm, SL_ERR_CANCELLED);
    while (shm->conn_count > 0) {
        struct sl_shm_conn *conn = shm->conns[shm->conn_count - 1];
        sl_shm_conn_end(conn, SL_ERR_CANCELLED);
        conn->end_err = SL_ERR_CANCELLED;
        sl_shm_conn_finish(conn);
    }
}

static void shm_close_transport(struct sl_transport **transport)
{
    struct sl_shm *shm = (struct sl_shm *)*transport;
    shm->closing = true;
    sl_shm_listen_close(shm);
    cancel_connections(shm);
    sl_shm_liveness_close(shm);
    if (shm->watching) {
        io_uring_prep_cancel(sl_ring_sqe(shm->ring, NULL), &shm->op, 0);
    }
    while (shm->watching) {
        if (sl_ring_reap(shm->ring, SL_LIMIT_TURN_EVENTS) == 0) {
            sl_ring_wait(shm->ring, CLOSE_WAIT_NS);
        }
    }
    sl_shm_conn_free_all(shm);
    close(shm->epoll_fd);
    sl_shm_staging_fini(&shm->staging);
    free(shm);
    *transport = NULL;
}

/* Turn */

static bool has_segment(const struct sl_shm_conn *conn)
{
    return conn->phase == SL_SHM_LIVE || conn->phase == SL_SHM_DRAINING;
}

static void say_sleeping(struct sl_shm *shm, bool sleeping)
{
    for (uint32_t i = 0; i < shm->conn_count; i++) {
        struct sl_shm_conn *conn = shm->conns[i];
        if (!has_segment(conn)) {
            continue;
        }
        uint32_t waits = sl_shm_send_waits(conn) ? SL_SHM_SLEEPS_FULL : 0;
        sl_shm_side_set_sleeping(sl_shm_our_side(conn),
                                 sleeping ? SL_SHM_SLEEPS | waits : SL_SHM_AWAKE);
    }
    shm->armed = sleeping;
}

static bool is_idle(const struct sl_shm_conn *conn)
{
    return !conn->busy && !sl_shm_receive_pending(conn);
}

/* An ended connection is replaced by the last one in conns. */
static uint32_t shm_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (shm->armed) {
        say_sleeping(shm, false);
    }
    uint32_t work = sl_shm_conn_close_lost(shm, SL_ERR_NO_MEMORY);
    for (uint32_t left = shm->conn_count; left > 0 && work < budget; left--) {
        shm->next = shm->next < shm->conn_count ? shm->next : 0;
        if (shm->conn_count == 0) {
            break;
        }
        struct sl_shm_conn *conn = shm->conns[shm->next];
        if (!is_idle(conn)) {
            work += sl_shm_conn_visit(conn, budget - work);
        }
        if (shm->next < shm->conn_count && shm->conns[shm->next] == conn) {
            shm->next++;
        }
    }
    return work;
}

/* One fence for everything published in the turn. */
static void shm_flush(struct sl_transport *transport)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (shm->dirty == NULL) {
        return;
    }
    for (struct sl_shm_conn *conn = shm->dirty; conn != NULL; conn = conn->dirty_next) {
        if (conn->receive.published != conn->receive.consumed) {
            conn->receive.published = conn->receive.consumed;
            sl_shm_side_consume(sl_shm_our_side(conn), conn->receive.consumed);
        }
    }
    sl_shm_segment_fence();
    while (shm->dirty != NULL) {
        struct sl_shm_conn *conn = shm->dirty;
        shm->dirty = conn->dirty_next;
        conn->dirty = false;
        sl_shm_conn_wake(conn);
    }
}

/* Whether the next poll would find work. */
static bool has_work(const struct sl_shm_conn *conn)
{
    const struct sl_shm_receive *receive = &conn->receive;
    if (conn->ready) {
        return true;
    }
    if (!has_segment(conn)) {
        return false;
    }
    if (receive->phase == SL_SHM_PHASE_HELD) {
        return receive->wait_buffer &&
               sl_shm_staging_has(&conn->shm->staging, receive->frame.payload_bytes);
    }
    return sl_shm_receive_pending(conn) ||
           (sl_shm_send_waits(conn) &&
            sl_shm_side_consumed(sl_shm_peer_side(conn)) != conn->send.consumed);
}

static bool any_has_work(const struct sl_shm *shm)
{
    for (uint32_t i = 0; i < shm->conn_count; i++) {
        if (has_work(shm->conns[i])) {
            return true;
        }
    }
    return false;
}

static bool shm_arm(struct sl_transport *transport)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (shm->dirty != NULL || shm->lost != NULL || any_has_work(shm)) {
        return false;
    }
    say_sleeping(shm, true);
    sl_shm_segment_fence();
    return !any_has_work(shm);
}

static void shm_stats(const struct sl_transport *transport, struct sl_transport_stats *out)
{
    *out = ((const struct sl_shm *)transport)->stats;
}

const struct sl_transport_ops sl_shm_ops = {
    .scheme = "shm",
    .capabilities = SL_TRANSPORT_MAPS_MEMORY | SL_TRANSPORT_DIRECT_REPLIES | SL_TRANSPORT_MIGRATES |
                    SL_TRANSPORT_COALESCES | SL_TRANSPORT_CHECKSUMS,
    .open = shm_open_transport,
    .close = shm_close_transport,
    .memory_register = sl_shm_region_register,
    .memory_unregister = sl_shm_region_unregister,
    .listen = sl_shm_listen_open,
    .connect = sl_shm_conn_connect,
    .disconnect = sl_shm_conn_disconnect,
    .migrate = sl_shm_conn_migrate,
    .send_burst = sl_shm_send_burst,
    .release = sl_shm_receive_release,
    .flush = shm_flush,
    .poll = shm_poll,
    .arm = shm_arm,
    .stats = shm_stats,
};
