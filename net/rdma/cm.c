#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/log.h"
#include "net/rdma/internal.h"
#include "net/rdma/wake.h"

#define EVENTS_A_TURN 64

/* The event channel */

struct sl_rdma_channel {
    struct rdma_event_channel *cm;
    const struct sl_rdma_library *library;
    uint32_t users; /* the transport, and connect requests on their way from it */
};

/* Protects all users counts, and is_first_open. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct sl_rdma_channel *sl_rdma_cm_keep(struct sl_rdma *rdma)
{
    pthread_mutex_lock(&lock);
    rdma->channel->users++;
    pthread_mutex_unlock(&lock);
    return rdma->channel;
}

void sl_rdma_cm_let_go(struct sl_rdma_channel **channel)
{
    struct sl_rdma_channel *gone = *channel;
    *channel = NULL;
    pthread_mutex_lock(&lock);
    bool is_last = --gone->users == 0;
    pthread_mutex_unlock(&lock);
    if (is_last) {
        gone->library->destroy_event_channel(gone->cm);
        free(gone);
    }
}

/* On failure see errno. */
static bool open_channel(struct sl_rdma *rdma)
{
    struct sl_rdma_channel *channel = malloc(sizeof *channel);
    if (channel == NULL) {
        return false;
    }
    channel->cm = rdma->library->create_event_channel();
    if (channel->cm == NULL) {
        free(channel);
        return false;
    }
    channel->library = rdma->library;
    channel->users = 1;
    rdma->channel = channel;
    rdma->cm = channel->cm;
    return true;
}

/* True for the first transport that this process opens. */
static bool is_first_open(void)
{
    static bool was_open;
    pthread_mutex_lock(&lock);
    const bool is_first = !was_open;
    was_open = true;
    pthread_mutex_unlock(&lock);
    return is_first;
}

/* Whether a device can be used. Logs each iWARP device, once in a process. */
static bool has_device(const struct sl_rdma_library *library)
{
    const bool logs = is_first_open();
    int count = 0;
    bool found = false;
    struct ibv_context **list = library->get_devices(&count);
    for (int i = 0; list != NULL && i < count; i++) {
        const bool is_iwarp = sl_rdma_device_is_iwarp(list[i]->device);
        found = found || !is_iwarp;
        if (is_iwarp && logs) {
            sl_log_warn("rdma: %s: " SL_RDMA_NO_IWARP, library->get_device_name(list[i]->device));
        }
    }
    if (list != NULL) {
        library->free_devices(list);
    }
    return found;
}

int sl_rdma_cm_open(struct sl_rdma *rdma)
{
    if (!has_device(rdma->library)) {
        sl_log_debug("rdma: this machine has no RDMA device that can be used");
        return SL_ERR_UNSUPPORTED;
    }
    if (!open_channel(rdma)) {
        sl_log_warn("rdma: rdma_cm cannot be used: %s; is the module rdma_ucm loaded?",
                    strerror(errno));
        return SL_ERR_UNSUPPORTED;
    }
    int err = sl_rdma_make_non_blocking(rdma->cm->fd);
    if (err == 0) {
        err = sl_rdma_wake_watch(rdma, rdma->cm->fd, NULL);
    }
    if (err != 0) {
        sl_rdma_cm_let_go(&rdma->channel);
    }
    return err;
}

void sl_rdma_cm_close(struct sl_rdma *rdma)
{
    sl_rdma_wake_unwatch(rdma, rdma->cm->fd);
    sl_rdma_cm_let_go(&rdma->channel);
}

enum sl_rdma_reason sl_rdma_cm_reason(int err)
{
    switch (err) {
    case SL_ERR_TOO_LARGE:
        return SL_RDMA_DEVICE_FULL;
    case SL_ERR_NO_MEMORY:
        return SL_RDMA_NO_MEMORY;
    default:
        return SL_RDMA_NO_REASON;
    }
}

void sl_rdma_cm_refuse(const struct sl_rdma_library *library, struct rdma_cm_id *id,
                       enum sl_rdma_reason reason)
{
    struct sl_rdma_hello hello = {
        .magic = SL_RDMA_MAGIC, .version = SL_RDMA_VERSION, .limit = reason};
    (void)library->reject(id, &hello, sizeof hello);
}

void sl_rdma_cm_reject(const struct sl_rdma_library *library, struct rdma_cm_id *id,
                       enum sl_rdma_reason reason)
{
    sl_rdma_cm_refuse(library, id, reason);
    (void)library->destroy_id(id);
}

/* Events */

static bool read_hello(const struct rdma_conn_param *param, struct sl_rdma_hello *out)
{
    struct sl_bytes bytes = sl_bytes_over(
        param->private_data, param->private_data != NULL ? param->private_data_len : 0);
    sl_bytes_copy(&bytes, out, sizeof *out);
    return !bytes.bad && out->magic == SL_RDMA_MAGIC;
}

static bool carries_data(enum rdma_cm_event_type type)
{
    return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED ||
           type == RDMA_CM_EVENT_REJECTED;
}

static void for_listener(struct sl_rdma *rdma, struct sl_rdma_listener *listener,
                         const struct sl_rdma_cm_event *event)
{
    if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        sl_rdma_listen_request(listener, event);
    } else if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        sl_rdma_listen_lost(listener);
    }
}

static void for_conn(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event)
{
    switch (event->type) {
    case RDMA_CM_EVENT_ESTABLISHED:
        if (conn->phase == SL_RDMA_ACCEPTING) {
            sl_rdma_conn_established(conn);
            return;
        }
        sl_rdma_connect_event(conn, event);
        return;
    case RDMA_CM_EVENT_DISCONNECTED:
        sl_rdma_conn_disconnected(conn);
        return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        sl_rdma_nic_remove(conn->rdma, event->id->verbs);
        sl_rdma_conn_end(conn, SL_ERR_IO);
        return;
    case RDMA_CM_EVENT_ADDR_CHANGE:
        sl_rdma_conn_refuse(conn, "the address moved to another device", SL_ERR_IO);
        return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
    default:
        sl_rdma_connect_event(conn, event);
    }
}

/* An id without a context goes to another transport. */
static void handle(struct sl_rdma *rdma, const struct sl_rdma_cm_event *event, void *context)
{
    if (((uintptr_t)context & 1) != 0) {
        for_listener(rdma, (struct sl_rdma_listener *)((uintptr_t)context - 1), event);
    } else if (context != NULL) {
        for_conn(context, event);
    }
}

/* An id can be destroyed only when all its events are acknowledged: acknowledge first. */
static bool handle_next(struct sl_rdma *rdma)
{
    struct rdma_cm_event *next;
    if (rdma->library->get_cm_event(rdma->cm, &next) != 0) {
        return false;
    }
    struct sl_rdma_cm_event event = {.type = next->event, .status = next->status, .id = next->id};
    event.has_hello = carries_data(next->event) && read_hello(&next->param.conn, &event.hello);
    void *context = next->id->context;
    (void)rdma->library->ack_cm_event(next);
    handle(rdma, &event, context);
    return true;
}

uint32_t sl_rdma_cm_poll(struct sl_rdma *rdma)
{
    uint32_t count = 0;
    while (count < EVENTS_A_TURN && handle_next(rdma)) {
        count++;
    }
    rdma->cm_ready = count == EVENTS_A_TURN;
    return count;
}
