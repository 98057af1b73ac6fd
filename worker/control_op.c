#include "worker/control_op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"

void sl_control_op_fail(struct sl_control_op *call, int err, const char *format, ...)
{
    sl_assert(err != 0);
    if (call->err != 0) {
        return;
    }
    call->err = err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->text, sizeof call->text, format, arguments);
    va_end(arguments);
}

void sl_control_op_take_clock(struct sl_control_op *call, bool counts, uint32_t clock)
{
    call->counts = call->counts && counts;
    call->clock = clock > call->clock ? clock : call->clock;
}

static void mark_done(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_control_op *call = ctx;
    call->done = true;
}

void sl_control_op_answer(struct sl_control_op *call)
{
    struct sl_mail mail = {.run = mark_done, .ctx = call};
    int err = sl_mailbox_post(call->answers, mail);
    sl_assert(err == 0); /* the port bounds what is under way: port.h */
}

void sl_control_op_answer_one(struct sl_control_op *call)
{
    sl_assert(call->left > 0);
    call->left--;
    if (call->left == 0) {
        sl_control_op_answer(call);
    }
}

void sl_control_op_deliver(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_control_op *call = ctx;
    call->run(call);
}

const char *sl_control_op_reason(const char *name, const char *reason)
{
    size_t bytes = strlen(name);
    if (strncmp(reason, name, bytes) != 0) {
        return reason;
    }
    return reason + bytes + strspn(reason + bytes, ": ");
}
