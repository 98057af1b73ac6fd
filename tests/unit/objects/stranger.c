#include "stranger.h"

#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/objects/nodes.h"

static void arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                    struct sl_transfer_asked *asked)
{
}

static void create_here(void *ctx)
{
    struct stranger *stranger = ctx;
    assert_int_equal(sl_transfer_async_create(stranger->transfer, "stranger", arrived, stranger,
                                              &stranger->async),
                     0);
}

void stranger_init(struct stranger *stranger, const char *node)
{
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    memset(stranger, 0, sizeof *stranger);
    assert_int_equal(sl_transfer_create(&options, &stranger->transfer), 0);
    assert_int_equal(
        sl_transfer_segment_open(stranger->transfer, node, NODES_TIMEOUT, &stranger->node), 0);
    reactor_thread_use(&stranger->thread, sl_transfer_async_reactor(stranger->transfer));
    reactor_thread_run(&stranger->thread, create_here, stranger);
}

static void ended(void *ctx)
{
    sl_completion_end(&((struct stranger *)ctx)->completion);
}

static void destroy_here(void *ctx)
{
    sl_transfer_async_destroy(&((struct stranger *)ctx)->async, ended, ctx);
}

void stranger_fini(struct stranger *stranger)
{
    sl_completion_begin(&stranger->completion);
    reactor_thread_run(&stranger->thread, destroy_here, stranger);
    sl_completion_wait(&stranger->completion);
    reactor_thread_fini(&stranger->thread);
    sl_transfer_segment_close(&stranger->node);
    sl_transfer_destroy(&stranger->transfer);
}

static struct sl_transfer_notice notice_of(const struct sl_objects_message *message, uint8_t *text)
{
    return (struct sl_transfer_notice){
        .name = "objects/2", .text = text, .bytes = sl_objects_message_encode(message, text)};
}

void stranger_send(struct stranger *stranger, const struct sl_objects_message *message)
{
    uint8_t text[SL_OBJECTS_MESSAGE_BYTES];
    const struct sl_transfer_notice notice = notice_of(message, text);
    assert_int_equal(sl_transfer_notice_send(stranger->node, &notice, NODES_TIMEOUT), 0);
}

static void answered(void *ctx, int err, const char *reason, const void *bytes, uint32_t count)
{
    struct stranger *stranger = ctx;
    struct sl_reason why;
    assert_int_equal(err, 0);
    memcpy(stranger->bytes, bytes, count);
    assert_int_equal(sl_objects_message_decode(stranger->bytes, count, &stranger->answer, &why), 0);
    ended(stranger);
}

static void ask_here(void *ctx)
{
    struct stranger *stranger = ctx;
    uint8_t text[SL_OBJECTS_MESSAGE_BYTES];
    const struct sl_transfer_notice notice = notice_of(stranger->question, text);
    struct sl_transfer_sending *asking;
    assert_int_equal(sl_transfer_async_ask(stranger->async, stranger->node, &notice, NODES_TIMEOUT,
                                           answered, stranger, &asking),
                     0);
}

int stranger_ask(struct stranger *stranger, const struct sl_objects_message *message)
{
    stranger->question = message;
    sl_completion_begin(&stranger->completion);
    reactor_thread_run(&stranger->thread, ask_here, stranger);
    sl_completion_wait(&stranger->completion);
    return stranger->answer.err;
}
