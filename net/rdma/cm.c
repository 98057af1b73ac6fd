#include "net/rdma/cm.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/rdma/wake.h"

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
