/* Orderly shutdown: the process leaves the cluster, and each core drains its servers. */
#include "ps/process/internal.h"

static void core_drained(void *ctx)
{
    struct sl_process_core *core = ctx;
    if (--core->drains_left == 0) {
        sl_process_answer(core, 0);
    }
}

static void core_drain_server(void *ctx)
{
    struct sl_process_core *core = ctx;
    const uint64_t timeout_ns = core->process->options.drain_timeout_ns;
    core->drains_left = core->partner == NULL ? 1 : 2;
    sl_server_drain(core->server, timeout_ns, core_drained, core);
    if (core->partner != NULL) {
        sl_server_drain(core->partner, timeout_ns, core_drained, core);
    }
}

static void core_drain(void *ctx, uint64_t handovers, uint64_t b)
{
    (void)b;
    struct sl_process_core *core = ctx;
    sl_process_replica_switch_over(core, handovers);
    if (core->process->metastore != NULL && core->index == 0) {
        sl_process_store_end(core, core_drain_server);
    } else {
        core_drain_server(core);
    }
}

/* Reactor 0. The switchover decision matches the coordinator's at the Goodbye that follows. */
void sl_process_drain(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    const struct sl_process_core *core = ctx;
    struct sl_process *process = core->process;
    sl_process_replica_end(process, core_drain);
    if (process->member != NULL) {
        sl_agent_leave(process->member);
    }
}
