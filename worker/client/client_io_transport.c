#include "worker/client/client_io_transport.h"

#include <assert.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client/client_io_memory.h"

static_assert(SL_ENDPOINT_DPDK + 1 == SL_CLIENT_IO_SCHEMES, "one slot for each scheme");

/* Shared memory needs no TLS: it stays on one machine and belongs to one user. RDMA and DPDK are
 * not used with TLS at all: shard_conn_connect.c. */
static struct sl_transport_options options_for(struct sl_client_io *io,
                                               enum sl_endpoint_scheme scheme)
{
    struct sl_transport_options options = io->options->transport;
    options.tls = scheme == SL_ENDPOINT_SHM ? NULL : options.tls;
    options.cells = &io->transport_cells[scheme];
    return options;
}

int sl_client_io_transport(struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                           struct sl_transport **out)
{
    sl_assert(scheme < SL_CLIENT_IO_SCHEMES);
    struct sl_transport **slot = &io->transports[scheme];
    if (*slot == NULL) {
        const struct sl_transport_ops *ops = io->options->find_transport(scheme);
        if (ops == NULL) {
            return SL_ERR_UNSUPPORTED;
        }
        if (scheme == SL_ENDPOINT_DPDK && io->devices_err != 0) {
            return io->devices_err;
        }
        const struct sl_transport_options options = options_for(io, scheme);
        int err = sl_transport_open(ops, io->reactor, &options, slot);
        if (err != 0) {
            io->devices_err = scheme == SL_ENDPOINT_DPDK ? err : io->devices_err;
            return err;
        }
        sl_cell_set(&io->cells.is_open[scheme], 1);
        sl_client_io_register_memory(io, scheme);
    }
    *out = *slot;
    return 0;
}

const char *sl_client_io_last_error(enum sl_endpoint_scheme scheme, int err)
{
    const char *missing = err == SL_ERR_UNSUPPORTED ? sl_builtin_missing(scheme) : NULL;
    return missing != NULL ? missing : sl_err_name(err);
}

/* Logs once per client. Missing RDMA is common, hence only INFO. */
static void log_missing(struct sl_client_io *io, enum sl_endpoint_scheme scheme, int err)
{
    const bool is_shm = scheme == SL_ENDPOINT_SHM;
    if (io->options->log_owner[scheme] == io->index && !io->has_logged_missing[scheme]) {
        io->has_logged_missing[scheme] = true;
        sl_log_write(scheme == SL_ENDPOINT_RDMA ? SL_LOG_INFO : SL_LOG_WARN,
                     "client: not %s %s: %s; over TCP", is_shm ? "through" : "over",
                     sl_endpoint_scheme_name(scheme), sl_client_io_last_error(scheme, err));
    }
}

bool sl_client_io_may_open(const struct sl_client_io_options *options,
                           enum sl_endpoint_scheme scheme)
{
    const struct sl_transport_ops *ops = options->find_transport(scheme);
    const bool is_systems = ops == sl_builtin_find(scheme);
    return ops != NULL && !(is_systems && sl_builtin_missing(scheme) != NULL);
}

struct sl_transport *sl_client_io_preferred_transport(struct sl_client_io *io,
                                                      enum sl_endpoint_scheme scheme)
{
    struct sl_transport *transport = NULL;
    if (io->is_missing[scheme]) {
        return NULL;
    }
    int err = sl_client_io_transport(io, scheme, &transport);
    if (err != 0) {
        io->is_missing[scheme] = err == SL_ERR_UNSUPPORTED; /* other errors may be temporary */
        log_missing(io, scheme, err);
    }
    return transport;
}

struct sl_outbox *sl_client_io_outbox(struct sl_client_io *io, enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_SHM && io->memory.has_shared_outbox ? &io->memory.shared_outbox
                                                                     : &io->memory.outbox;
}
