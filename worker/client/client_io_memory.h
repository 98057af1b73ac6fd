/* The memory that a client_io registers with its transports, for direct access by peers on this
 * machine (SL_TRANSPORT_MAPS_MEMORY) or by a device (SL_TRANSPORT_REGISTERS). The first requires
 * memory that other processes can map; the second takes any. Owner reactor. */
#ifndef SL_WORKER_CLIENT_CLIENT_IO_MEMORY_H
#define SL_WORKER_CLIENT_CLIENT_IO_MEMORY_H

#include "worker/client/client_io.h"

/* Run functions of control operations.
 *
 * Exports a client buffer, [op->buffer.memory, + op->buffer.bytes), over every transport, present
 * or future, that registers memory or, for shared memory, maps it; unexport reverts this. No error:
 * a transport that cannot use the buffer copies. */
void sl_client_io_export(struct sl_control_op *op);
void sl_client_io_unexport(struct sl_control_op *op);

/* Registers with a newly opened transport all memory that it or its peers can
 * access directly. */
void sl_client_io_register_memory(struct sl_client_io *io, enum sl_endpoint_scheme scheme);

/* Returns whether [at, at + bytes) is registered with the transport of the scheme: a buffer of the
 * client, or memory of options->send_arena. */
bool sl_client_io_has_registered(const struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                                 const void *at, uint64_t bytes);

/* Returns whether [at, at + bytes) is exported to the peers of this scheme. */
bool sl_client_io_has_exported(const struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                               const void *at, uint64_t bytes);

#endif
