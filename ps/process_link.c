/* The process's membership: registers with the coordinator, and waits for the cluster to be
 * complete. The ps that hosts the coordinator goes the same way, through its own address. */
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/process_internal.h"

#define LINK_CONNECTIONS 4
#define LINK_BUFFERS     16

static struct sl_process_core *core_of(struct sl_process *process)
{
    return &process->cores[0];
}

static void fail(struct sl_process *process, int err, const char *reason)
{
    sl_log_error("cannot join the cluster: %s", reason);
    sl_process_answer(core_of(process), err);
}

static void on_cluster(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_process *process = ctx;
    struct sl_process_link *link = &process->link;
    if (err == SL_ERR_CANCELLED && link->session == NULL) {
        return; /* we left */
    }
    if (err != 0) {
        fail(process, err, reason);
        return;
    }
    const struct sl_message_cluster *cluster = &answer->cluster;
    uint32_t first = 0;
    uint32_t count = 0;
    bool found = false;
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        if (cluster->ps[i].task_index == process->options.task_index) {
            found = cluster->ps[i].shard_count == process->options.reactor_count;
            first = count;
        }
        count += cluster->ps[i].shard_count;
    }
    if (!found) {
        fail(process, SL_ERR_PROTOCOL, "the coordinator's cluster does not have this ps as it is");
        return;
    }
    link->registered = true;
    link->first_shard = first;
    link->shard_count = count;
    sl_process_answer(core_of(process), 0);
}

static void on_welcomed(void *ctx, struct sl_session *session,
                        const struct sl_message_welcome *welcome)
{
    (void)welcome;
    struct sl_process *process = ctx;
    process->link.welcomed = true;
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .reg = {.shard_count = process->options.reactor_count,
                .ps_count = process->options.ps_count,
                .worker_count = process->options.worker_count},
    };
    sl_endpoint_format(&process->options.data, message.reg.data_endpoint,
                       sizeof message.reg.data_endpoint);
    sl_session_request(session, &message, process->options.start_timeout_ns, on_cluster, process);
}

static void on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    struct sl_process *process = ctx;
    if (process->link.registered) {
        sl_log_warn("%s; the shards go on without it", reason);
    } else if (process->link.welcomed) {
        sl_log_debug("%s", reason); /* the request for the cluster has failed with the reason */
    } else {
        fail(process, err, reason);
    }
}

static const struct sl_session_events session_events = {
    .welcomed = on_welcomed,
    .closed = on_closed,
};

int sl_process_link_open(struct sl_process *process)
{
    struct sl_process_link *link = &process->link;
    const struct sl_process_options *options = &process->options;
    struct sl_reactor *reactor = core_of(process)->reactor;
    struct sl_transport_options transport_options = {
        .connections_max = LINK_CONNECTIONS,
        .buffer_count = LINK_BUFFERS,
    };
    int err = sl_outbox_init(&link->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, options->checksum);
    if (err != 0) {
        return err;
    }
    err = sl_transport_open(sl_transport_find(options->coordinator.scheme), reactor,
                            &transport_options, &link->transport);
    if (err != 0) {
        goto fini_outbox;
    }
    struct sl_session_options session_options = {
        .transport = link->transport,
        .outbox = &link->outbox,
        .endpoint = options->coordinator,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                  .role = SL_MESSAGE_ROLE_PS,
                  .task_index = options->task_index,
                  .client_id = sl_reactor_random(reactor),
                  .checksum = options->checksum},
        .events = &session_events,
        .ctx = process,
        .peer_name = "the coordinator (ps/0)",
        .start_timeout_ns = options->start_timeout_ns,
    };
    err = sl_session_open(&session_options, &link->session);
    if (err != 0) {
        goto close_transport;
    }
    return 0;

close_transport:
    sl_transport_close(&link->transport);
fini_outbox:
    sl_outbox_fini(&link->outbox);
    return err;
}

void sl_process_link_leave(struct sl_process *process)
{
    if (process->link.session != NULL) {
        sl_session_close(&process->link.session);
    }
}

void sl_process_link_close(struct sl_process *process)
{
    sl_process_link_leave(process);
    if (process->link.transport != NULL) {
        sl_transport_close(&process->link.transport);
        sl_outbox_fini(&process->link.outbox);
    }
}
