/* The whole job at the process that hosts the coordinator: takes the reports of all members, and
 * replies to the routes that describe the job (ps/observe). Every server also sends its own
 * report. The observer's thread, unless stated otherwise. */
#ifndef SL_PS_PROCESS_CLUSTER_H
#define SL_PS_PROCESS_CLUSTER_H

#include "net/http/reply.h"
#include "ps/process/state.h"

/* When the reactors exist, before the coordinator is created. Errors: NO_MEMORY, TOO_LARGE. Main
 * thread. */
int sl_process_cluster_create(struct sl_process *process);

/* The reactors and the observer's thread have stopped. No effect without a cluster. Main thread. */
void sl_process_cluster_destroy(struct sl_process *process);

/* Sets the coordinator's options for reports. Any thread. */
void sl_process_cluster_options(struct sl_process *process, struct sl_coordinator_options *options);

/* Once a second. */
void sl_process_cluster_tick(struct sl_process *process, uint64_t now_ns);

/* The job has ended: reports this process once more. If the job's state stays, it is as now, but
 * for reports that are under way. */
void sl_process_cluster_end(struct sl_process *process, bool stays);

/* Routes; ctx: struct sl_process. */
void sl_process_cluster_read(void *ctx, const struct sl_query *query, struct sl_reply *reply);
void sl_process_cluster_read_history(void *ctx, const struct sl_query *query,
                                     struct sl_reply *reply);
void sl_process_cluster_read_slow(void *ctx, const struct sl_query *query, struct sl_reply *reply);
void sl_process_cluster_read_hot(void *ctx, const struct sl_query *query, struct sl_reply *reply);
void sl_process_cluster_read_targets(void *ctx, const struct sl_query *query,
                                     struct sl_reply *reply);

#endif
