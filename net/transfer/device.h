/* A device is one way from an engine to its peers, as open on one reactor: TCP at one address of
 * this host, or shared memory. Every reactor has the same devices, those of settings.endpoints, in
 * the same order; the first is TCP. Owner reactor; what peers are sent of it, any reactor once all
 * of them listen. */
#ifndef SL_NET_TRANSFER_DEVICE_H
#define SL_NET_TRANSFER_DEVICE_H

#include "net/transfer/settings.h"

struct sl_transfer;
struct sl_transfer_io;

struct sl_transfer_device {
    struct sl_transfer_io *io;
    enum sl_endpoint_scheme scheme;
    /* NULL: this host does not have it. All TCP devices of a reactor share one. */
    struct sl_transport *transport;
    struct sl_endpoint endpoint; /* where peers reach it; port 0: nowhere */
    uint16_t list_index;         /* of the first reactor: of its `endpoint` in the own_info */
    bool is_one_sided;           /* the transport has one-sided operations */
    bool is_bound;               /* connections come from the address of `endpoint` */
};

/* Opens the reactor's devices. A device that is missing is an error only if the options name it.
 * Errors: NO_MEMORY, UNSUPPORTED; with the reason in text[text_bytes]. */
int sl_transfer_device_open_all(struct sl_transfer_io *io, char *text, size_t text_bytes);
void sl_transfer_device_close_all(struct sl_transfer_io *io);

/* Listens, with the device as context. Frames need the processor of a reactor, so each reactor
 * listens; one-sided operations do not: peers reach them at the first reactor. Errors: IN_USE,
 * NOT_FOUND, IO. */
int sl_transfer_device_listen(struct sl_transfer_device *device,
                              const struct sl_transport_events *events);

/* The endpoint of a peer, to connect to from this device. */
struct sl_endpoint sl_transfer_device_route(const struct sl_transfer_device *device,
                                            const struct sl_endpoint *peer);

#endif
