#include "net/rdma/device.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/array.h"
#include "net/rdma/state.h"

struct sl_rdma_device {
    struct sl_rdma_device *next;
    struct ibv_context *verbs;
    struct sl_rdma_member *members;
    bool has_entry; /* the device had an entry in sysfs, which is removed with it */
    bool removed;
};

static struct {
    pthread_mutex_t lock;
    struct sl_rdma_device *devices;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

int sl_rdma_make_non_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? SL_ERR_IO : 0;
}

static struct sl_rdma_device *find_or_make(struct ibv_context *verbs)
{
    struct sl_rdma_device *device = shared.devices;
    while (device != NULL && device->verbs != verbs) {
        device = device->next;
    }
    if (device == NULL) {
        device = calloc(1, sizeof *device);
        if (device != NULL) {
            device->verbs = verbs;
            device->has_entry = access(verbs->device->dev_path, F_OK) == 0;
            device->next = shared.devices;
            shared.devices = device;
        }
    }
    return device;
}

int sl_rdma_device_join(struct sl_rdma_nic *nic, struct sl_rdma_member *member, bool *is_first)
{
    *member = (struct sl_rdma_member){.nic = nic, .wake_fd = -1};
    if (sl_rdma_make_non_blocking(nic->verbs->async_fd) != 0) {
        return SL_ERR_IO;
    }
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        return SL_ERR_IO;
    }
    pthread_mutex_lock(&shared.lock);
    struct sl_rdma_device *device = find_or_make(nic->verbs);
    if (device != NULL) {
        *is_first = device->members == NULL;
        member->wake_fd = wake_fd;
        member->device = device;
        member->next = device->members;
        device->members = member;
    }
    pthread_mutex_unlock(&shared.lock);
    if (device == NULL) {
        close(wake_fd);
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

/* librdmacm keeps the device open until it learns of another device. Redirect its descriptors to
 * /dev/null. */
static void let_go(struct ibv_context *verbs)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere < 0) {
        return;
    }
    (void)dup3(nowhere, verbs->async_fd, O_CLOEXEC);
    (void)dup3(nowhere, verbs->cmd_fd, O_CLOEXEC);
    close(nowhere);
}

void sl_rdma_device_leave(struct sl_rdma_member *member)
{
    if (member->wake_fd < 0) {
        return;
    }
    pthread_mutex_lock(&shared.lock);
    struct sl_rdma_device *device = member->device;
    struct sl_rdma_member **link = &device->members;
    while (*link != member) {
        link = &(*link)->next;
    }
    *link = member->next;
    if (device->members == NULL) {
        struct sl_rdma_device **at = &shared.devices;
        while (*at != device) {
            at = &(*at)->next;
        }
        *at = device->next;
        if (device->removed) {
            let_go(device->verbs);
        }
        free(device);
    }
    pthread_mutex_unlock(&shared.lock);
    close(member->wake_fd);
    free(member->events);
    *member = (struct sl_rdma_member){.wake_fd = -1};
}

/* Events */

/* Without memory the event is lost: connections have deadlines. */
static void rdma_device_pass(struct sl_rdma_member *member, struct sl_rdma_device_event event)
{
    if (!sl_array_make_room(&member->events, &member->capacity, member->count,
                            sizeof *member->events)) {
        return;
    }
    member->events[member->count++] = event;
    (void)eventfd_write(member->wake_fd, 1);
}

void sl_rdma_device_remove(struct sl_rdma_member *member)
{
    const struct sl_rdma_device_event event = {.type = IBV_EVENT_DEVICE_FATAL};
    if (member->wake_fd < 0) {
        return;
    }
    pthread_mutex_lock(&shared.lock);
    struct sl_rdma_device *device = member->device;
    if (!device->removed) {
        device->removed = true;
        for (struct sl_rdma_member *each = device->members; each != NULL; each = each->next) {
            rdma_device_pass(each, event);
        }
    }
    pthread_mutex_unlock(&shared.lock);
}

bool sl_rdma_device_is_there(const struct sl_rdma_member *member)
{
    return member->wake_fd < 0 || !member->device->has_entry ||
           access(member->nic->verbs->device->dev_path, F_OK) == 0;
}

/* The NIC that an event concerns; NULL: the whole device. The object exists until the event is
 * acknowledged. */
static const struct sl_rdma_nic *nic_of(const struct ibv_async_event *event,
                                        struct sl_rdma_device_event *out)
{
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        out->queue_pair = event->element.qp->qp_num;
        return event->element.qp->recv_cq->cq_context;
    case IBV_EVENT_CQ_ERR:
        return event->element.cq->cq_context;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return event->element.srq->srq_context;
    default:
        return NULL;
    }
}

static void read_device(const struct sl_rdma_device *device, const struct sl_rdma_library *library)
{
    struct ibv_async_event event;
    while (library->get_async_event(device->verbs, &event) == 0) {
        struct sl_rdma_device_event out = {.type = event.event_type};
        const struct sl_rdma_nic *nic = nic_of(&event, &out);
        for (struct sl_rdma_member *member = device->members; member != NULL;
             member = member->next) {
            if (nic == NULL || member->nic == nic) {
                rdma_device_pass(member, out);
            }
        }
        library->ack_async_event(&event);
    }
}

bool sl_rdma_device_next(struct sl_rdma_member *member, struct sl_rdma_device_event *out)
{
    if (member->wake_fd < 0) {
        return false;
    }
    pthread_mutex_lock(&shared.lock);
    if (member->count == 0) {
        eventfd_t dummy;
        (void)eventfd_read(member->wake_fd, &dummy);
        read_device(member->device, member->nic->rdma->library);
    }
    bool found = member->count > 0;
    if (found) {
        *out = member->events[0];
        member->count--;
        memmove(member->events, member->events + 1, member->count * sizeof member->events[0]);
    }
    pthread_mutex_unlock(&shared.lock);
    return found;
}
