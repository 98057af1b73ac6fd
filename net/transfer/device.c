#include "net/transfer/device.h"

#include <stdio.h>
#include <string.h>

#include "net/transfer/engine.h"
#include "net/transfer/region.h"
#include "net/transport_rma.h"

static int open_one(struct sl_transfer_device *device)
{
    struct sl_transfer_io *io = device->io;
    const struct sl_transfer *engine = io->engine;
    if (device->scheme == SL_ENDPOINT_TCP && device != &io->devices[0]) {
        device->transport = io->devices[0].transport;
        return 0;
    }
    const struct sl_endpoint *endpoint = &engine->settings.endpoints[device - io->devices];
    struct sl_transport_options options = engine->settings.transport;
    if (device->scheme == SL_ENDPOINT_RDMA) {
        options.rdma_device =
            endpoint->device[0] != '\0' ? endpoint->device : engine->settings.rdma_device;
    }
    const struct sl_transport_ops *ops = engine->setup.find_transport != NULL
                                             ? engine->setup.find_transport(device->scheme)
                                             : sl_builtin_find(device->scheme);
    int err = ops == NULL ? SL_ERR_UNSUPPORTED
                          : sl_transport_open(ops, io->reactor, &options, &device->transport);
    if (err == 0 && ops->rma != NULL) {
        device->is_one_sided = true;
        err = sl_transport_rma_open(device->transport, &sl_transfer_region_events, device);
    }
    return err;
}

int sl_transfer_device_open_all(struct sl_transfer_io *io, char *text, size_t text_bytes)
{
    const struct sl_transfer_settings *settings = &io->engine->settings;
    for (uint32_t i = 0; i < settings->endpoint_count; i++) {
        struct sl_transfer_device *device = &io->devices[i];
        device->io = io;
        device->scheme = settings->endpoints[i].scheme;
        device->is_bound = device->scheme == SL_ENDPOINT_TCP && settings->tcp_count > 1;
        const int err = open_one(device);
        if (err != 0 && (settings->names_endpoints || i == 0)) {
            const char *why = sl_builtin_missing(device->scheme);
            (void)snprintf(text, text_bytes, "endpoints: %s cannot be used here: %s",
                           sl_endpoint_scheme_name(device->scheme),
                           why != NULL ? why : sl_err_name(err));
            return err;
        }
    }
    return 0;
}

void sl_transfer_device_close_all(struct sl_transfer_io *io)
{
    for (uint32_t i = io->engine->settings.endpoint_count; i-- > 0;) {
        struct sl_transfer_device *device = &io->devices[i];
        if (device->transport != NULL && (i == 0 || device->scheme != SL_ENDPOINT_TCP)) {
            sl_transport_close(&device->transport);
        }
    }
}

int sl_transfer_device_listen(struct sl_transfer_device *device,
                              const struct sl_transport_events *events)
{
    const struct sl_transfer_io *io = device->io;
    const struct sl_transfer_settings *settings = &io->engine->settings;
    struct sl_endpoint bound, wanted = settings->endpoints[device - io->devices];
    if (device->transport == NULL || (device->is_one_sided && io->index > 0)) {
        return 0;
    }
    const bool is_dpdk = device->scheme == SL_ENDPOINT_DPDK; /* reactors have one endpoint */
    if (wanted.port != 0 && !is_dpdk) {
        wanted.port = (uint16_t)(wanted.port + io->index);
    }
    const int err = sl_transport_listen(device->transport, &wanted, events, device, &bound);
    if (err == 0) {
        bound.port = (uint16_t)(bound.port + (is_dpdk ? io->index : 0));
        device->endpoint = bound;
    }
    return settings->names_endpoints || device == &io->devices[0] ? err : 0;
}

struct sl_endpoint sl_transfer_device_route(const struct sl_transfer_device *device,
                                            const struct sl_endpoint *peer)
{
    struct sl_endpoint out = *peer;
    if (device->is_bound) {
        memcpy(out.device, device->endpoint.host, sizeof out.device);
    }
    return out;
}
