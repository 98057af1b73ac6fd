#include "net/rdma/cm_events.h"

#include "core/bytes.h"
#include "net/rdma/conn.h"
#include "net/rdma/connect.h"
#include "net/rdma/end.h"
#include "net/rdma/listen.h"

#define EVENTS_A_TURN 64

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

uint32_t sl_rdma_cm_events_poll(struct sl_rdma *rdma)
{
    uint32_t count = 0;
    while (count < EVENTS_A_TURN && handle_next(rdma)) {
        count++;
    }
    rdma->cm_ready = count == EVENTS_A_TURN;
    return count;
}
