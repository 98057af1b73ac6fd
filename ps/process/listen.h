/* Listens at the endpoints of a process: control and data over the network, shared memory for local
 * workers, and RDMA or DPDK. Over these two a worker connects to the core of its shard, so that
 * each core listens; elsewhere core 0 listens, and migrates connections. Shared memory and bypass
 * endpoints are optional: if one fails, workers fall back to the data endpoint. */
#ifndef SL_PS_PROCESS_LISTEN_H
#define SL_PS_PROCESS_LISTEN_H

#include "ps/process/state.h"

/* Drops a bypass endpoint that cannot work, with a warning. Call before cores exist. Errors,
 * logged: UNSUPPORTED (the shards have no other endpoint). */
int sl_process_listen_check(struct sl_process *process);

/* Selects the transports of a server. */
void sl_process_listen_choose(const struct sl_process *process, struct sl_server_options *server);

/* Handles the result of creating a core's server: drops or explains a failed bypass transport. The
 * core's reactor; the first core calls it first. */
void sl_process_listen_created(struct sl_process_core *core, int err);

/* Listens over RDMA or DPDK, if the process has such an endpoint. The core's reactor; the first
 * core calls it first. Errors, logged: those of sl_server_listen, if it is the data endpoint. */
int sl_process_listen_core(struct sl_process_core *core);

/* Listens at all other endpoints of the process. Reactor 0. Errors, logged: those of
 * sl_server_listen for the control and the data endpoint. */
int sl_process_listen(struct sl_process_core *core);

#endif
