/* Bypass connections use the outbox and the buffers of the first transport, registered with the
 * bypass. */
#include "ps/server/transports.h"

#include <string.h>

#include "core/log.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

/* Opens an additional transport, without TLS. */
static int open_beside(struct sl_server_host *host, const struct sl_transport_ops *ops,
                       struct sl_transport_cells *cells, const char *what,
                       struct sl_transport **out)
{
    const struct sl_server_options *options = &host->options;
    struct sl_transport_options transport = options->transports.options;
    transport.cells = cells;
    transport.tls = NULL;
    transport.number = options->local_index;
    int err = sl_transport_open(ops, options->reactor, &transport, out);
    if (err != 0) {
        sl_log_warn("shard on %s: no transport %s: %s", sl_reactor_name(options->reactor), what,
                    sl_err_name(err));
    }
    return err;
}

/* Registers memory, so that the device sends replies and receives long requests without a copy. */
static void register_memory(struct sl_server_host *host)
{
    if ((host->transports.bypass->ops->capabilities & SL_TRANSPORT_REGISTERS) == 0) {
        return;
    }
    int err = sl_outbox_register(&host->memory.replies, host->transports.bypass);
    if (err == 0) {
        err = sl_server_buffers_register(&host->memory.buffers, host->transports.bypass);
    }
    if (err != 0) {
        sl_log_warn("shard on %s: its memory is not registered with %s, which is slower: %s",
                    sl_reactor_name(host->options.reactor), host->transports.bypass->ops->scheme,
                    sl_err_name(err));
    }
}

/* A client that spins waits for the answer. */
static void answer_pulls(void *ctx)
{
    sl_server_host_answer_pulls(ctx);
}

int sl_server_transports_open(struct sl_server_host *host, struct sl_transport_cells *cells)
{
    const struct sl_server_options *options = &host->options;
    struct sl_transport_options first = options->transports.options;
    first.cells = &cells[SL_SERVER_TRANSPORT_FIRST];
    int err = sl_transport_open(options->transports.first, options->reactor, &first,
                                &host->transports.first);
    if (err != 0) {
        return err;
    }
    if (options->transports.shm != NULL) {
        err = open_beside(host, options->transports.shm, &cells[SL_SERVER_TRANSPORT_SHM],
                          "through shared memory", &host->transports.shm);
        if (err == 0) {
            host->transports.shm->polled = answer_pulls;
            host->transports.shm->polled_ctx = host;
        }
    }
    if (options->transports.bypass != NULL) {
        const char *over =
            strcmp(options->transports.bypass->scheme, "rdma") == 0 ? "over RDMA" : "over DPDK";
        err = open_beside(host, options->transports.bypass, &cells[SL_SERVER_TRANSPORT_BYPASS],
                          over, &host->transports.bypass);
        if (err == 0) {
            register_memory(host);
        } else if (options->transports.needs_bypass) {
            sl_server_transports_close(host);
            return err;
        }
    }
    return 0;
}

void sl_server_transports_close(struct sl_server_host *host)
{
    sl_transport_close(&host->transports.shm);
    sl_transport_close(&host->transports.bypass);
    sl_transport_close(&host->transports.first);
}

bool sl_server_has_bypass(const struct sl_server *server)
{
    return server->host->transports.bypass != NULL;
}

int sl_server_listen(struct sl_server *server, const struct sl_endpoint *endpoint,
                     struct sl_endpoint *bound)
{
    struct sl_server_host *host = server->host;
    sl_reactor_assert_owner(server->options.reactor);
    struct sl_transport *transport = endpoint->scheme == SL_ENDPOINT_TCP ? host->transports.first
                                     : endpoint->scheme == SL_ENDPOINT_SHM
                                         ? host->transports.shm
                                         : host->transports.bypass;
    if (transport == NULL) {
        return SL_ERR_UNSUPPORTED;
    }
    int err = transport == host->transports.shm ? sl_server_shm_begin(host) : 0;
    return err != 0 ? err
                    : sl_transport_listen(transport, endpoint, &sl_server_conn_events, host, bound);
}

struct sl_transport *sl_server_transports_like(const struct sl_server_host *host,
                                               const struct sl_conn *conn)
{
    struct sl_transport *const all[] = {host->transports.first, host->transports.shm,
                                        host->transports.bypass};
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] != NULL && all[i]->ops == conn->transport->ops) {
            return all[i];
        }
    }
    return NULL;
}

void sl_server_transports_count(const struct sl_server_host *host, uint64_t *bytes_in,
                                uint64_t *bytes_out)
{
    const struct sl_transport *const all[] = {host->transports.first, host->transports.shm,
                                              host->transports.bypass};
    *bytes_in = *bytes_out = 0;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct sl_transport_stats stats = {0};
        if (all[i] != NULL) {
            sl_transport_get_stats(all[i], &stats);
        }
        *bytes_in += stats.bytes_received;
        *bytes_out += stats.bytes_sent;
    }
}
