#include "programs/serve/gateway/remote.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/log.h"

#define OPEN_MS 5000
#define FREE_MS 2000

static struct sl_serve_remote *remote_of(struct sl_offload_job *job)
{
    return SL_CONTAINER_OF(job, struct sl_serve_remote, job);
}

static void gateway_remote_post(struct sl_serve_remote *remote,
                                void (*work)(struct sl_offload_job *job),
                                void (*done)(struct sl_offload_job *job))
{
    remote->is_busy = true;
    remote->job = (struct sl_offload_job){.work = work, .done = done, .allocates = true};
    remote->events->post(remote->events->post_ctx, &remote->job);
}

/* Messages */

int sl_serve_remote_began(struct sl_serve_remote *remote, int err, struct sl_reason *reason)
{
    remote->sends += err == 0 ? 1 : 0;
    return err == 0 ? 0 : sl_reason_fail(reason, SL_ERR_AGAIN, "%s", sl_transfer_last_error());
}

void sl_serve_remote_sent(struct sl_serve_remote *remote)
{
    remote->sends--;
    sl_serve_remote_look(remote);
}

static void notice_sent(void *ctx, int err, const char *reason)
{
    sl_serve_remote_sent(ctx);
}

bool sl_serve_remote_tell(struct sl_serve_remote *remote, uint32_t kind, uint64_t request)
{
    const struct sl_serve_message message = {
        .kind = kind,
        .incarnation = sl_transfer_async_own_incarnation(remote->events->transfer),
        .request = request};
    uint8_t text[SL_SERVE_MESSAGE_BYTES];
    struct sl_reason reason;
    const int length = sl_serve_message_encode(&message, text, &reason);
    const struct sl_transfer_notice notice = {
        .name = SL_SERVE_NOTICE, .text = text, .bytes = (uint32_t)length};
    sl_assert(remote->is_joined);
    sl_assert(length > 0);
    const int err = sl_transfer_async_send(remote->events->async, remote->segment, &notice,
                                           SL_SERVE_REMOTE_SEND_MS, notice_sent, remote);
    return sl_serve_remote_began(remote, err, &reason) == 0;
}

/* End */

static void gateway_remote_free_memory(struct sl_offload_job *job)
{
    struct sl_serve_remote *remote = remote_of(job);
    if (sl_transfer_memory_free(remote->events->transfer, (void **)&remote->output_base, FREE_MS) !=
        0) {
        sl_log_warn("serve: memory for outputs of worker %s is still in use: %s; trying again",
                    remote->worker.name, sl_transfer_last_error());
    }
}

static void freed(struct sl_offload_job *job)
{
    struct sl_serve_remote *remote = remote_of(job);
    remote->is_busy = false;
    sl_serve_remote_look(remote);
}

static void gateway_remote_closed(void *ctx, int err, const char *reason)
{
    struct sl_serve_remote *remote = ctx;
    remote->ends--;
    sl_serve_remote_look(remote);
}

void sl_serve_remote_look(struct sl_serve_remote *remote)
{
    if (remote->is_joined && remote->worker.is_leaving && remote->end == SL_SERVE_REMOTE_STAYS &&
        remote->writes == 0 && sl_serve_remote_tell(remote, SL_SERVE_MESSAGE_LEAVE, 0)) {
        remote->end = SL_SERVE_REMOTE_LEFT;
    }
    if (!remote->is_lost || remote->is_busy || remote->sends > 0) {
        return;
    }
    if (remote->segment != NULL) {
        remote->ends++;
        sl_transfer_async_close(remote->events->async, &remote->segment, gateway_remote_closed,
                                remote);
    } else if (remote->ends == 0 && remote->outputs_read == 0) {
        if (remote->output_base != NULL) {
            gateway_remote_post(remote, gateway_remote_free_memory, freed);
        } else {
            remote->events->ended(remote->events->ctx, remote);
        }
    }
}

void sl_serve_remote_lose(struct sl_serve_remote *remote, const char *reason)
{
    remote->is_lost = true;
    if (remote->is_joined) {
        remote->is_joined = false;
        remote->events->lost(remote->events->ctx, remote, reason);
    }
    sl_serve_remote_look(remote);
}

/* Begin */

static void gateway_remote_watched(void *ctx, int err, const char *reason)
{
    struct sl_serve_remote *remote = ctx;
    remote->ends--;
    sl_serve_remote_lose(remote, reason);
}

static void gateway_remote_opened(void *ctx, int err, const char *reason)
{
    struct sl_serve_remote *remote = ctx;
    remote->is_busy = false;
    if (err != 0) {
        if (remote->tries == 0) {
            sl_log_warn("serve: worker %s cannot join: %s", remote->worker.name, reason);
        }
        sl_serve_remote_lose(remote, reason);
        return;
    }
    remote->ends++;
    sl_transfer_async_watch(remote->events->async, remote->segment, false, gateway_remote_watched,
                            remote);
    if (sl_transfer_async_incarnation(remote->segment) != remote->join.incarnation) {
        remote->end = SL_SERVE_REMOTE_REPLACED; /* the other one joins by itself */
        remote->is_lost = true;
    }
    if (remote->is_lost) {
        sl_serve_remote_look(remote);
    } else {
        remote->is_joined = true;
        remote->events->joined(remote->events->ctx, remote);
    }
}

static void gateway_remote_create_memory(struct sl_offload_job *job)
{
    struct sl_serve_remote *remote = remote_of(job);
    const int err = sl_transfer_memory_create(remote->events->transfer, SL_SERVE_OUTPUT_BYTES, -1,
                                              SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE,
                                              (void **)&remote->output_base);
    (void)snprintf(remote->reason, sizeof remote->reason, "%s",
                   err == 0 ? "" : sl_transfer_last_error());
}

static void created(struct sl_offload_job *job)
{
    struct sl_serve_remote *remote = remote_of(job);
    struct sl_transfer_segment **segment = &remote->segment;
    remote->is_busy = false;
    if (job->err != 0 || remote->output_base == NULL) {
        gateway_remote_opened(remote, SL_ERR_NO_MEMORY, remote->reason);
        return;
    }
    if (remote->is_lost) {
        sl_serve_remote_look(remote);
        return;
    }
    remote->is_busy = true;
    if (sl_transfer_async_open(remote->events->async, remote->worker.name, OPEN_MS, segment,
                               gateway_remote_opened, remote) != 0) {
        gateway_remote_opened(remote, SL_ERR_INVALID, sl_transfer_last_error());
    }
}

void sl_serve_remote_begin(struct sl_serve_remote *remote)
{
    sl_assert(remote->segment == NULL && remote->output_base == NULL);
    remote->is_lost = false;
    remote->end = SL_SERVE_REMOTE_STAYS;
    struct sl_serve_balance_worker worker = {.batch_max = remote->join.batch_max};
    (void)snprintf(worker.name, sizeof worker.name, "%s", remote->worker.name);
    (void)snprintf(worker.host, sizeof worker.host, "%s", remote->join.host);
    remote->worker = worker;
    sl_serve_ranges_init(&remote->inputs, remote->join.arena_bytes);
    sl_serve_ranges_init(&remote->outputs, SL_SERVE_OUTPUT_BYTES);
    gateway_remote_post(remote, gateway_remote_create_memory, created);
}
