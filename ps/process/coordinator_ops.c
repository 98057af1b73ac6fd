#include "ps/process/coordinator_ops.h"

#include "ps/coordinator/coordinator.h"

const struct sl_server_coordinator_ops sl_process_coordinator_ops = {
    .hello = sl_coordinator_hello,
    .task_index = sl_coordinator_task_index,
    .message = sl_coordinator_message,
    .gone = sl_coordinator_gone,
    .tell = sl_coordinator_tell,
    .tick = sl_coordinator_tick,
    .lease_ns = sl_coordinator_lease_ns,
};
