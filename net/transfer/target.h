/* The accepting side of an engine: connections of peers, which ask for the list of buffers (control
 * connections, on the first reactor) and read and write registered memory (lanes). Peers are
 * hostile until they are welcomed, and checked afterwards. Owner reactor. Allocates for each
 * connection. */
#ifndef SL_NET_TRANSFER_TARGET_H
#define SL_NET_TRANSFER_TARGET_H

#include "net/transfer/io.h"

struct sl_transfer_registration;

/* Run functions of calls. The first listens for lanes on all devices. The second, on the
 * first reactor when all listen for lanes, listens for control connections, whose peers are told
 * all endpoints, and sets the engine's name. Errors: IN_USE, NOT_FOUND, IO. */
void sl_transfer_target_listen(struct sl_transfer_io *io, struct sl_transfer_call *call);
void sl_transfer_target_listen_for_control(struct sl_transfer_io *io,
                                           struct sl_transfer_call *call);

/* On the first reactor: notify the peers of memory that is new in the table, by ascending address,
 * or leaves it. */
void sl_transfer_target_added(struct sl_transfer_io *io,
                              struct sl_transfer_registration *const *items, uint32_t count);
void sl_transfer_target_gone(struct sl_transfer_io *io,
                             struct sl_transfer_registration *const *items, uint32_t count);

/* Any thread but a reactor's, at the end of an engine that has started: sends a Goodbye to all
 * peers, so that their segments are closed at once, and waits a moment until it has arrived. */
void sl_transfer_target_leave(struct sl_transfer *engine);

/* Ends the connections that still use the memory. Not in an upcall. */
void sl_transfer_target_close_users(struct sl_transfer_io *io, const struct sl_rma_memory *memory);

#endif
