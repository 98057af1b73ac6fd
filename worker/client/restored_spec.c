#include "worker/client/restored_spec.h"

#include "worker/client/client_internal.h"
#include "worker/client/control.h"
#include "worker/client/wait.h"

int sl_restored_spec_read(struct sl_client *client, const char *name, uint32_t timeout_ms,
                          struct sl_table_spec *out)
{
    struct sl_port *port;
    struct sl_control_op op = {
        .io = &client->ios[0],
        .run = sl_control_table_find,
        .deadline_ns = sl_clock_now_ns(client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS,
        .name = name,
        .found = out,
    };
    int err = client->cluster.restore == 0 ? SL_ERR_NOT_FOUND : sl_port_here(client->ports, &port);
    if (err == 0) {
        sl_control_op_post(&op, port);
        err = sl_wait_ops(client, port, &op, 1);
    }
    return err != 0 ? err : op.err;
}
