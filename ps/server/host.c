#include "ps/server/host.h"

#include <stdlib.h>

#include "core/assert.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

#define BUFFER_BYTES_DEFAULT ((size_t)256 << 20)
#define BUFFER_BYTES_LEAST   ((size_t)32 << 20)

/* Thousands of workers have a few requests each that wait for clocks, or 256 connections use all of
 * their credit. Memory that was never used is not touched. */
#define REQUESTS_MAX         65536

/* Pools and buffers for buffer_bytes_max. */
static int host_memory_init(struct sl_server_host *host)
{
    const struct sl_server_options *options = &host->options;
    const size_t half = options->buffer_bytes_max / 2;
    const size_t extra_bytes = options->hooks == NULL ? 0 : options->hooks->request_bytes;
    int err = sl_outbox_init(&host->memory.replies, half, options->checksum);
    if (err != 0) {
        return err;
    }
    err = sl_outbox_init(&host->memory.control, SL_OUTBOX_MEMORY_BYTES_MIN, options->checksum);
    if (err != 0) {
        goto fini_replies;
    }
    err = sl_server_buffers_init(&host->memory.buffers, half);
    if (err != 0) {
        goto fini_control;
    }
    err = sl_pool_init(&host->memory.requests, sizeof(struct sl_server_request) + extra_bytes,
                       options->waiting_max == 0 ? REQUESTS_MAX : options->waiting_max);
    if (err == 0) {
        return 0;
    }
    sl_server_buffers_fini(&host->memory.buffers);
fini_control:
    sl_outbox_fini(&host->memory.control);
fini_replies:
    sl_outbox_fini(&host->memory.replies);
    return err;
}

static void host_memory_fini(struct sl_server_host *host)
{
    sl_pool_fini(&host->memory.requests);
    sl_server_shm_fini(host);
    sl_server_buffers_fini(&host->memory.buffers);
    sl_outbox_fini(&host->memory.control);
    sl_outbox_fini(&host->memory.replies);
}

static int host_create(const struct sl_server *server, struct sl_server_host **out)
{
    struct sl_server_host *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    host->options = server->options;
    host->freed_count = 1;
    host->budget_left = SL_LIMIT_TURN_COST;
    const size_t bytes =
        host->options.buffer_bytes_max == 0 ? BUFFER_BYTES_DEFAULT : host->options.buffer_bytes_max;
    host->options.buffer_bytes_max = bytes < BUFFER_BYTES_LEAST ? BUFFER_BYTES_LEAST : bytes;
    sl_list_init(&host->conns);
    sl_server_admission_init(host);
    sl_server_control_out_init(host);
    int err = host_memory_init(host);
    if (err == 0) {
        err = sl_server_transports_open(host, server->cells.used->transports);
        if (err == 0) {
            *out = host;
            return 0;
        }
        host_memory_fini(host);
    }
    free(host);
    return err;
}

/* Returns the first place that no server has. */
static uint32_t find_place(struct sl_server_host *host)
{
    uint32_t place = 0;
    for (struct sl_server *server = host->servers; server != NULL;) {
        const bool is_taken = server->place == place;
        place += is_taken ? 1 : 0;
        server = is_taken ? host->servers : server->next_of_host;
    }
    host->place_count = place < host->place_count ? host->place_count : place + 1;
    return place;
}

int sl_server_host_join(struct sl_server *server)
{
    struct sl_server *beside = server->options.beside;
    if (beside == NULL) {
        int err = host_create(server, &server->host);
        if (err != 0) {
            return err;
        }
        server->host->home = server;
    } else {
        sl_assert(beside->options.reactor == server->options.reactor);
        server->host = beside->host;
    }
    server->place = find_place(server->host);
    server->next_of_host = server->host->servers;
    server->host->servers = server;
    return 0;
}

void sl_server_host_stop(struct sl_server *server)
{
    sl_server_drain_stop(server);
    if (server->replica != NULL) {
        server->options.hooks->stop(server);
    }
}

void sl_server_host_close(struct sl_server_host *host)
{
    if (host->is_closed) {
        return;
    }
    host->is_closed = true;
    for (struct sl_server *server = host->servers; server != NULL; server = server->next_of_host) {
        sl_server_host_stop(server);
    }
    sl_server_transports_close(host);
    sl_assert(sl_list_empty(&host->conns));
    sl_timer_disarm(sl_reactor_timers(host->options.reactor), &host->admission.timer);
}

void sl_server_host_answer_pulls(const struct sl_server_host *host)
{
    for (struct sl_server *server = host->servers; server != NULL; server = server->next_of_host) {
        sl_server_pull_batch_answer(server);
    }
}

void sl_server_host_leave(struct sl_server *server)
{
    struct sl_server_host *host = server->host;
    struct sl_server **at = &host->servers;
    while (*at != server) {
        at = &(*at)->next_of_host;
    }
    *at = server->next_of_host;
    if (host->by_shard[server->options.shard.index] == server) {
        host->by_shard[server->options.shard.index] = NULL;
    }
    if (host->servers == NULL) {
        sl_server_control_out_fini(host);
        host_memory_fini(host);
        free(host);
    }
}
