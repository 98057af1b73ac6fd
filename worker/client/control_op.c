#include "worker/client/control_op.h"

#include <string.h>

#include "core/assert.h"
#include "core/format.h"
#include "worker/client/client_io.h"

void sl_control_op_fail(struct sl_control_op *op, int err, const char *format, ...)
{
    sl_assert(err != 0);
    if (op->err != 0) {
        return;
    }
    op->err = err;
    SL_FORMAT(op->text, format);
}

void sl_control_op_take_clock(struct sl_control_op *op, bool counts, uint32_t clock)
{
    op->clock.counts = op->clock.counts && counts;
    op->clock.largest = clock > op->clock.largest ? clock : op->clock.largest;
}

static void mark_done(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_control_op *op = ctx;
    op->done = true;
}

void sl_control_op_answer(struct sl_control_op *op)
{
    struct sl_mail mail = {.run = mark_done, .ctx = op};
    int err = sl_mailbox_post(op->answers, mail);
    sl_assert(err == 0); /* bounded by the thread context: thread_ctx.h */
}

void sl_control_op_answer_one(struct sl_control_op *op)
{
    sl_assert(op->left > 0);
    op->left--;
    if (op->left == 0) {
        sl_control_op_answer(op);
    }
}

int sl_control_op_results(const struct sl_control_op *ops, uint32_t count,
                          const struct sl_control_op **failed)
{
    int err = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!ops[i].done) {
            return SL_ERR_AGAIN;
        }
        if (err == 0 && ops[i].err != 0) {
            err = ops[i].err;
            *failed = &ops[i];
        }
    }
    return err;
}

static void control_op_deliver(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_control_op *op = ctx;
    op->run(op);
}

void sl_control_op_post(struct sl_control_op *op, struct sl_port *port)
{
    op->answers = port->lanes[op->io->index].from;
    sl_list_init(&op->asked);
    sl_port_post(port, op->io->index, (struct sl_mail){.run = control_op_deliver, .ctx = op});
}

void sl_control_op_run(struct sl_control_op *op, struct sl_port *port)
{
    sl_control_op_post(op, port);
    while (!op->done) {
        sl_port_wait(port);
    }
}

const char *sl_control_op_reason(const char *name, const char *reason)
{
    size_t bytes = strlen(name);
    if (strncmp(reason, name, bytes) != 0) {
        return reason;
    }
    return reason + bytes + strspn(reason + bytes, ": ");
}
