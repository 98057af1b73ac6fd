#include "objects/node/call.h"

#include <stdio.h>

#include "core/format.h"
#include "objects/node/error.h"
#include "objects/node/node.h"

static void call_deliver(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_objects_call *call = ctx;
    call->run(call->node, call);
}

void sl_objects_wait(const struct sl_objects *node, struct sl_completion *completion)
{
    if (node->setup.wait != NULL) {
        node->setup.wait(node->setup.ctx, completion);
    } else {
        sl_completion_wait(completion);
    }
}

int sl_objects_check_engine(const struct sl_objects *node)
{
    return node->ports != NULL
               ? 0
               : sl_objects_fail(SL_ERR_UNSUPPORTED,
                                 "this node only reads from agent %s: it has no catalogue",
                                 node->names.agent);
}

int sl_objects_call_begin(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_port *port;
    int err = sl_objects_check_engine(node);
    if (err != 0) {
        return err;
    }
    err = sl_port_here(node->ports, &port);
    if (err != 0) {
        return sl_objects_fail(err, "no memory for one more thread");
    }
    call->node = node;
    call->err = 0;
    call->text[0] = '\0';
    sl_completion_begin(&call->completion);
    sl_port_post(port, 0, (struct sl_mail){.run = call_deliver, .ctx = call});
    return 0;
}

int sl_objects_call_end(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_wait(node, &call->completion);
    return call->err == 0 ? 0 : sl_objects_fail(call->err, "%s", call->text);
}

int sl_objects_call(struct sl_objects *node, struct sl_objects_call *call)
{
    const int err = sl_objects_call_begin(node, call);
    return err != 0 ? err : sl_objects_call_end(node, call);
}

void sl_objects_answer(struct sl_objects_call *call, int err, const char *format, ...)
{
    SL_FORMAT(call->text, format);
    call->err = err;
    sl_completion_end(&call->completion);
}

int sl_objects_check_timeout(uint32_t timeout_ms)
{
    return timeout_ms >= 1 && timeout_ms <= SL_TRANSFER_TIMEOUT_MS_MAX
               ? 0
               : sl_objects_fail(SL_ERR_INVALID, "timeout_ms %u is not in 1 to %d", timeout_ms,
                                 SL_TRANSFER_TIMEOUT_MS_MAX);
}

int sl_objects_check_name(const char *name)
{
    return name != NULL && sl_objects_name_is_valid(name)
               ? 0
               : sl_objects_fail(SL_ERR_INVALID,
                                 "the name of an object has 1 to %d bytes of printable UTF-8, no "
                                 "blank and no @",
                                 SL_OBJECTS_NAME_BYTES - 1);
}

int sl_objects_check_size(uint32_t struct_size, size_t bytes)
{
    return struct_size == bytes
               ? 0
               : sl_objects_fail(SL_ERR_INVALID, "struct_size is %u, not %zu", struct_size, bytes);
}

uint64_t sl_objects_now_ns(const struct sl_objects *node)
{
    return sl_clock_now_ns(node->reactor != NULL ? sl_reactor_clock(node->reactor)
                                                 : sl_clock_system());
}

uint64_t sl_objects_deadline_ns(const struct sl_objects *node, uint32_t timeout_ms)
{
    return sl_objects_now_ns(node) + timeout_ms * SL_CLOCK_NS_PER_MS;
}

uint32_t sl_objects_ms_left(const struct sl_objects *node, uint64_t deadline_ns)
{
    const uint64_t now_ns = sl_objects_now_ns(node);
    const uint64_t left_ms =
        deadline_ns > now_ns ? (deadline_ns - now_ns - 1) / SL_CLOCK_NS_PER_MS + 1 : 1;
    return (uint32_t)left_ms;
}
