#include "worker/client/wait.h"

#include "core/assert.h"

#define ASK_NS (100 * SL_CLOCK_NS_PER_MS)

int sl_wait_until(const struct sl_client *client, struct sl_port *port, uint64_t timeout_ns,
                  bool (*done)(void *ctx), void *ctx)
{
    const uint64_t ask_ns = client->interrupt.is_set == NULL ? SL_CLOCK_NEVER : ASK_NS;
    while (!sl_port_wait_until(port, timeout_ns < ask_ns ? timeout_ns : ask_ns, done, ctx)) {
        if (client->interrupt.is_set != NULL && client->interrupt.is_set(client->interrupt.ctx)) {
            return SL_ERR_CANCELLED;
        }
        if (timeout_ns <= ask_ns) {
            return SL_ERR_AGAIN;
        }
        timeout_ns -= timeout_ns == SL_CLOCK_NEVER ? 0 : ask_ns;
    }
    return 0;
}

/* Operations that a thread waits for. */
struct ops {
    struct sl_control_op *ops;
    uint32_t count;
};

static bool are_done(void *ctx)
{
    const struct ops *wait = ctx;
    const struct sl_control_op *failed;
    return sl_control_op_results(wait->ops, wait->count, &failed) != SL_ERR_AGAIN;
}

static bool are_returned(void *ctx)
{
    const struct ops *wait = ctx;
    uint32_t returned = 0;
    while (returned < wait->count && wait->ops[returned].returned) {
        returned++;
    }
    return returned == wait->count;
}

static void cancel_returned(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_control_op *op = ctx;
    op->returned = true;
}

static void wait_cancel(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_control_op *op = ctx;
    sl_client_io_cancel(op);
    int err = sl_mailbox_post(op->answers, (struct sl_mail){.run = cancel_returned, .ctx = op});
    sl_assert(err == 0); /* bounded by the thread context: thread_ctx.h */
}

int sl_wait_ops(const struct sl_client *client, struct sl_port *port, struct sl_control_op *ops,
                uint32_t count)
{
    struct ops wait = {.ops = ops, .count = count};
    int err = sl_wait_until(client, port, SL_CLOCK_NEVER, are_done, &wait);
    for (uint32_t i = 0; err != 0 && i < count; i++) {
        sl_port_post(port, ops[i].io->index, (struct sl_mail){.run = wait_cancel, .ctx = &ops[i]});
    }
    if (err != 0) {
        (void)sl_port_wait_until(port, SL_CLOCK_NEVER, are_returned, &wait);
        sl_assert(are_done(&wait));
    }
    return err;
}
