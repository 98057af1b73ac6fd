#include "net/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text_file.h"
#include "net/shm/conn.h"
#include "net/shm/imported_memory.h"
#include "net/shm/listen.h"
#include "net/shm/liveness.h"
#include "net/shm/receive.h"
#include "net/shm/region.h"
#include "net/shm/rma.h"
#include "net/shm/send.h"

#define BUFFER_BYTES_DEFAULT (32U << 10)
#define BUFFER_COUNT_DEFAULT 256
#define SOCKETS_A_TURN       64

/* Includes the user id: processes of other users cannot connect. */
void sl_shm_host(char host[SL_SHM_HOST_BYTES])
{
    char boot[37];
    struct stat network;
    host[0] = '\0';
    const bool known = sl_text_file_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot) &&
                       strlen(boot) == sizeof boot - 1;
    if (known && stat("/proc/self/ns/net", &network) == 0) {
        snprintf(host, SL_SHM_HOST_BYTES, "%s/%llx/%x", boot, (unsigned long long)network.st_ino,
                 (unsigned)geteuid());
    }
}

/* Memory of connections is not freed while the transport is open: an event for an ended one does no
 * harm. */
static void shm_on_readable(struct sl_ring_watch *watch)
{
    struct sl_shm *shm = SL_CONTAINER_OF(watch, struct sl_shm, watch);
    struct epoll_event events[SOCKETS_A_TURN];
    int count = epoll_wait(shm->epoll_fd, events, SOCKETS_A_TURN, 0);
    for (int i = 0; i < count; i++) {
        uintptr_t what = events[i].data.u64;
        if ((what & 1) != 0) {
            sl_shm_listen_accept((struct sl_shm_listener *)(what - 1));
        } else {
            sl_shm_imported_memory_read((struct sl_shm_conn *)what);
        }
    }
}

static struct sl_shm_conn *conn_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_shm_conn, alive);
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
    sl_transport_init(&shm->base, reactor, options);
    shm->ring = ring;
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
    sl_list_init(&shm->dirty);
    sl_list_init(&shm->kept);
    sl_list_init(&shm->rma_regions);
    sl_list_init(&shm->rma_due);
    sl_shm_liveness_init(shm);
    shm->next = &shm->liveness.conns.head;
    sl_ring_watch_level(ring, &shm->watch, shm->epoll_fd, shm_on_readable);
    *out = &shm->base;
    return 0;
}

static void shm_close_transport(struct sl_transport **transport)
{
    struct sl_shm *shm = (struct sl_shm *)*transport;
    sl_shm_listen_close(shm);
    while (!sl_list_empty(&shm->liveness.conns)) {
        sl_shm_conn_cancel(conn_of(sl_list_first(&shm->liveness.conns)));
    }
    sl_shm_rma_free_all(shm);
    sl_liveness_fini(&shm->liveness);
    sl_ring_watch_end(&shm->watch);
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
    SL_LIST_EACH (struct sl_shm_conn, conn, alive, &shm->liveness.conns) {
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

static uint32_t shm_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    struct sl_list_link *head = &shm->liveness.conns.head;
    if (shm->armed) {
        say_sleeping(shm, false);
    }
    sl_shm_rma_report(shm);
    uint32_t work = 0;
    for (uint32_t left = shm->liveness.conn_count; left > 0 && work < budget; left--) {
        struct sl_list_link *link = shm->next != head ? shm->next : head->next;
        if (link == head) {
            break; /* the last connection is gone */
        }
        shm->next = link->next; /* the connection may be gone after the visit */
        if (!is_idle(conn_of(link))) {
            work += sl_shm_conn_visit(conn_of(link), budget - work);
        }
    }
    return work;
}

/* One fence for everything published in the turn. */
static void shm_flush(struct sl_transport *transport)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (sl_list_empty(&shm->dirty)) {
        return;
    }
    SL_LIST_EACH (struct sl_shm_conn, conn, dirty, &shm->dirty) {
        if (conn->receive.published != conn->receive.consumed) {
            conn->receive.published = conn->receive.consumed;
            sl_shm_side_consume(sl_shm_our_side(conn), conn->receive.consumed);
        }
    }
    sl_shm_segment_fence();
    SL_LIST_TAKE (struct sl_shm_conn, conn, dirty, &shm->dirty) {
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
    SL_LIST_EACH (struct sl_shm_conn, conn, alive, &shm->liveness.conns) {
        if (has_work(conn)) {
            return true;
        }
    }
    return false;
}

static bool shm_arm(struct sl_transport *transport)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (!sl_list_empty(&shm->dirty) || !sl_list_empty(&shm->rma_due) || any_has_work(shm)) {
        return false;
    }
    say_sleeping(shm, true);
    sl_shm_segment_fence();
    return !any_has_work(shm);
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
    .release = sl_shm_conn_release,
    .flush = shm_flush,
    .poll = shm_poll,
    .arm = shm_arm,
    .rma = &sl_shm_rma_ops,
};
