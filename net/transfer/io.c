#include "net/transfer/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/format.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"

/* Frames built and not yet sent: headers, and payloads of up to 16 KiB. */
#define OUTBOX_BYTES (64U << 20)

#define TOKENS_NS    (10 * SL_CLOCK_NS_PER_MS)

/* Calls */

static void io_deliver(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_call *call = ctx;
    call->run(call->io, call);
}

int sl_transfer_io_port(struct sl_transfer *transfer, struct sl_port **out)
{
    const int err = sl_port_here(transfer->ports, out);
    return err == 0 ? 0 : sl_transfer_fail(err, "no memory for one more thread");
}

static void io_prepare(struct sl_transfer_call *call)
{
    call->err = 0;
    call->text[0] = '\0';
    sl_completion_begin(&call->completion);
}

int sl_transfer_io_begin(struct sl_port *port, struct sl_transfer_call *call)
{
    call->ended = NULL; /* it may be one of async.c that is made again */
    io_prepare(call);
    const int err = sl_mailbox_post(port->lanes[call->io->index].to,
                                    (struct sl_mail){.run = io_deliver, .ctx = call});
    if (err != 0) {
        sl_completion_end(&call->completion);
    }
    return err;
}

void sl_transfer_io_begin_here(struct sl_transfer_call *call)
{
    const struct sl_transfer_io *first = &call->io->engine->ios[0];
    io_prepare(call);
    if (call->io == first) {
        call->run(call->io, call);
    } else {
        sl_reactor_post(first->reactor, call->io->index,
                        (struct sl_mail){.run = io_deliver, .ctx = call});
    }
}

int sl_transfer_io_call(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_port *port;
    const int err = sl_transfer_io_port(io->engine, &port);
    if (err != 0) {
        return err;
    }
    call->io = io;
    while (sl_transfer_io_begin(port, call) != 0) {
        (void)usleep(100); /* the thread's batches fill it: the reactor is taking them */
    }
    sl_transfer_setup_wait(&io->engine->setup, &call->completion);
    return call->err == 0 ? 0 : sl_transfer_fail(call->err, "%s", call->text);
}

void sl_transfer_io_answer(struct sl_transfer_call *call, int err, const char *format, ...)
{
    SL_FORMAT(call->text, format);
    call->err = err;
    sl_transfer_io_end(call);
}

static void ended_there(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_transfer_call *call = ctx;
    call->ended(call);
}

/* A thread that waits may free the call from the completion's end on. */
void sl_transfer_io_end(struct sl_transfer_call *call)
{
    const struct sl_transfer_io *io = call->io;
    const bool is_waited_for = call->ended == NULL;
    sl_completion_end(&call->completion);
    if (!is_waited_for && io->index == 0) {
        call->ended(call);
    } else if (!is_waited_for) {
        sl_reactor_post(io->reactor, 0, (struct sl_mail){.run = ended_there, .ctx = call});
    }
}

/* Work */

void sl_transfer_io_wake(struct sl_transfer_io *io, struct sl_transfer_work *work)
{
    sl_list_append(&io->work, &work->link);
}

static struct sl_transfer_io *io_of(struct sl_reactor_source *source)
{
    return SL_CONTAINER_OF(source, struct sl_transfer_io, source);
}

/* The transport was polled before: the frames that are made here leave in the same turn. */
static uint32_t poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct sl_transfer_io *io = io_of(source);
    struct sl_list now;
    uint32_t count = 0;
    sl_list_init(&now);
    sl_list_append_all(&now, &io->work);
    SL_LIST_TAKE (struct sl_transfer_work, work, link, &now) {
        if (work->run(work) && !sl_list_linked(&work->link)) {
            sl_list_append(&io->later, &work->link);
        }
        count++;
    }
    if (!sl_list_empty(&io->later) && !sl_timer_armed(&io->retry)) {
        sl_reactor_arm(io->reactor, &io->retry, SL_CLOCK_NS_PER_MS);
    }
    return count;
}

static bool io_arm(struct sl_reactor_source *source)
{
    return sl_list_empty(&io_of(source)->work);
}

static void io_retry(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_transfer_io *io = SL_CONTAINER_OF(timer, struct sl_transfer_io, retry);
    sl_list_append_all(&io->work, &io->later);
}

/* A token bucket of TOKENS_NS: an idle reactor saves no more than that. */
bool sl_transfer_io_may_send(struct sl_transfer_io *io, uint32_t bytes)
{
    const struct sl_transfer_settings *settings = &io->engine->settings;
    if (settings->bytes_per_s_max == 0) {
        return true;
    }
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    const uint64_t passed_ns =
        now_ns - io->tokens_ns < TOKENS_NS ? now_ns - io->tokens_ns : TOKENS_NS;
    const double rate = (double)settings->bytes_per_s_max / settings->reactors.count;
    const int64_t most = (int64_t)(rate * TOKENS_NS / SL_CLOCK_NS_PER_S);
    const int64_t more = (int64_t)(rate * (double)passed_ns / SL_CLOCK_NS_PER_S);
    if (more > 0) { /* else the time is counted later */
        io->tokens = io->tokens + more < most ? io->tokens + more : most;
        io->tokens_ns = now_ns;
    }
    if (io->tokens < 0) {
        return false;
    }
    io->tokens -= bytes;
    return true;
}

/* Start and stop */

static int open_all(struct sl_transfer_io *io, char *text, size_t text_bytes)
{
    const struct sl_transfer_settings *settings = &io->engine->settings;
    int err = sl_outbox_init(&io->outbox, OUTBOX_BYTES, settings->checksum);
    io->has_outbox = err == 0;
    io->table = err == 0 ? calloc(1, sizeof *io->table) : NULL;
    io->discard = err == 0 ? malloc(SL_LIMIT_FRAME_PAYLOAD_BYTES) : NULL;
    if (io->table == NULL || io->discard == NULL) {
        (void)snprintf(text, text_bytes, "no memory for an I/O thread");
        return SL_ERR_NO_MEMORY;
    }
    return sl_transfer_device_open_all(io, text, text_bytes);
}

void sl_transfer_io_start(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_reactor_excuse_turn(io->reactor);
    sl_list_init(&io->guests);
    sl_list_init(&io->changes);
    sl_list_init(&io->leaving);
    sl_list_init(&io->work);
    sl_list_init(&io->later);
    char text[SL_TRANSFER_REASON_BYTES] = "started";
    const int err = open_all(io, text, sizeof text);
    io->source = (struct sl_reactor_source){.name = "transfer", .poll = poll, .arm = io_arm};
    io->retry.run = io_retry;
    sl_reactor_add_source(io->reactor, &io->source);
    io->has_source = true;
    sl_transfer_io_answer(call, err, "%s", text);
}

void sl_transfer_io_stop(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_reactor_excuse_turn(io->reactor);
    sl_transfer_device_close_all(io);
    if (io->has_source) {
        sl_reactor_remove_source(io->reactor, &io->source);
        sl_reactor_disarm(io->reactor, &io->retry);
    }
    if (io->has_outbox) {
        sl_outbox_fini(&io->outbox);
    }
    free(io->table);
    free(io->discard);
    sl_transfer_io_answer(call, 0, "stopped");
}
