#include "programs/serve/worker/peer.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/log.h"

#define OPEN_MS  5000
#define SEND_MS  10000 /* a gateway that stands still for some seconds is not gone */
#define RETRY_NS (100 * SL_CLOCK_NS_PER_MS)

static void peer_ended(void *ctx, int err, const char *reason)
{
    struct sl_serve_peer *peer = ctx;
    peer->state = SL_SERVE_PEER_AWAY;
    if (peer->is_stopping) {
        peer->idle(peer);
    } else {
        sl_reactor_arm(peer->options->reactor, &peer->timer, RETRY_NS);
    }
}

/* Closes the segment, once nothing is sent any more. */
static void close_if_quiet(struct sl_serve_peer *peer)
{
    if (peer->state == SL_SERVE_PEER_CLOSING && peer->sending == 0 && peer->segment != NULL) {
        sl_transfer_async_close(peer->async, &peer->segment, peer_ended, peer);
    }
}

/* The callback runs in a turn of its own: the worker may be in the middle of its queue. */
static void peer_fail(struct sl_serve_peer *peer, const char *reason)
{
    if (peer->state == SL_SERVE_PEER_OPEN) {
        sl_log_warn("serve: gateway %s is away: %s; the worker connects again", peer->address,
                    reason);
        peer->state = SL_SERVE_PEER_FAILED;
        sl_reactor_arm(peer->options->reactor, &peer->timer, 0);
    }
}

/* CANCELLED: this process has closed the segment itself. */
static void peer_closed(void *ctx, int err, const char *reason)
{
    if (err != SL_ERR_CANCELLED) {
        peer_fail(ctx, reason);
    }
}

bool sl_serve_peer_is(const struct sl_serve_peer *peer, uint64_t incarnation)
{
    return peer->state == SL_SERVE_PEER_OPEN &&
           sl_transfer_async_incarnation(peer->segment) == incarnation;
}

/* Send */

static void peer_sent(void *ctx, int err, const char *reason)
{
    struct sl_serve_send *send = ctx;
    struct sl_serve_peer *peer = send->peer;
    peer->sending--;
    send->done(send);
    if (err != 0) {
        peer_fail(peer, reason);
    }
    close_if_quiet(peer);
}

/* A DONE that the gateway would refuse becomes an error, so that its request is answered. */
static int encode(struct sl_serve_message *message, void *to, uint64_t *bytes)
{
    struct sl_reason reason;
    int length = sl_serve_message_encode(message, to, &reason);
    if (length < 0) {
        sl_log_error("serve: a notice is not sent: %s", reason.text);
    }
    if (length < 0 && message->kind == SL_SERVE_MESSAGE_DONE) {
        *message = (struct sl_serve_message){
            .kind = SL_SERVE_MESSAGE_DONE, .request = message->request, .err = SL_ERR_UNSUPPORTED};
        (void)snprintf(message->text, sizeof message->text, "the worker's answer: %.400s",
                       reason.text);
        *bytes = 0;
        length = sl_serve_message_encode(message, to, &reason);
    }
    return length;
}

static int submit(struct sl_serve_peer *peer, struct sl_serve_send *send, void *local,
                  uint64_t remote, uint64_t bytes)
{
    uint8_t text[SL_SERVE_MESSAGE_BYTES];
    const int length = encode(peer->message, text, &bytes);
    if (length < 0) {
        return SL_ERR_PROTOCOL;
    }
    const struct sl_transfer_notice notice = {
        .name = SL_SERVE_NOTICE, .text = text, .bytes = (uint32_t)length};
    if (bytes == 0) {
        return sl_transfer_async_send(peer->async, peer->segment, &notice, SEND_MS, peer_sent,
                                      send);
    }
    const struct sl_transfer_request write = {.op = SL_TRANSFER_WRITE,
                                              .local = local,
                                              .segment = peer->segment,
                                              .remote = remote,
                                              .bytes = bytes};
    const int err = send->batch == NULL
                        ? sl_transfer_batch_create(peer->options->transfer, 1, &send->batch)
                        : 0;
    return err != 0 ? err
                    : sl_transfer_async_submit(peer->async, send->batch, &write, 1, SEND_MS,
                                               &notice, peer_sent, send);
}

void sl_serve_peer_send(struct sl_serve_peer *peer, struct sl_serve_send *send, void *local,
                        uint64_t remote, uint64_t bytes)
{
    sl_assert(peer->state == SL_SERVE_PEER_OPEN);
    send->peer = peer;
    const int err = submit(peer, send, local, remote, bytes);
    if (err == 0) {
        peer->sending++;
        return;
    }
    send->done(send);
    if (err != SL_ERR_PROTOCOL) { /* that is no fault of the connection */
        peer_fail(peer, sl_transfer_last_error());
    }
}

static void told(struct sl_serve_send *send)
{
    SL_CONTAINER_OF(send, struct sl_serve_peer, own.send)->own.is_busy = false;
}

bool sl_serve_peer_tell(struct sl_serve_peer *peer)
{
    if (peer->own.is_busy || peer->state != SL_SERVE_PEER_OPEN) {
        return false;
    }
    peer->own.is_busy = true;
    peer->own.send.done = told;
    sl_serve_peer_send(peer, &peer->own.send, NULL, 0, 0);
    return true;
}

/* Connect */

static void join(struct sl_serve_peer *peer)
{
    struct sl_serve_message *join = peer->message;
    *join = (struct sl_serve_message){
        .kind = SL_SERVE_MESSAGE_JOIN,
        .join = {.arena_address = (uintptr_t)peer->arena,
                 .arena_bytes = peer->options->arena_bytes,
                 .batch_max = peer->options->batch_max},
        .incarnation = sl_transfer_async_own_incarnation(peer->options->transfer)};
    (void)snprintf(join->join.host, sizeof join->join.host, "%s", peer->options->host);
    const bool is_told = sl_serve_peer_tell(peer);
    sl_assert(is_told); /* nothing else was sent since it was opened */
}

static void peer_opened(void *ctx, int err, const char *reason)
{
    struct sl_serve_peer *peer = ctx;
    if (err == 0) {
        sl_log_info("serve: the worker joins gateway %s", peer->address);
        peer->state = SL_SERVE_PEER_OPEN;
        peer->has_warned = false;
        sl_transfer_async_watch(peer->async, peer->segment, peer_closed, peer);
        if (peer->is_stopping) {
            peer->state = SL_SERVE_PEER_CLOSING;
            close_if_quiet(peer);
        } else {
            join(peer);
        }
        return;
    }
    peer->state = SL_SERVE_PEER_AWAY;
    if (peer->is_stopping) {
        peer->idle(peer);
        return;
    }
    if (!peer->has_warned) {
        sl_log_warn("serve: the worker waits for gateway %s: %s", peer->address, reason);
        peer->has_warned = true;
    }
    sl_reactor_arm(peer->options->reactor, &peer->timer, RETRY_NS);
}

static void passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_peer *peer = SL_CONTAINER_OF(timer, struct sl_serve_peer, timer);
    if (peer->state == SL_SERVE_PEER_FAILED) {
        peer->state = SL_SERVE_PEER_CLOSING;
        peer->leave.is_sent = peer->leave.is_confirmed = false;
        peer->gone(peer);
        close_if_quiet(peer);
        return;
    }
    peer->state = SL_SERVE_PEER_OPENING;
    if (sl_transfer_async_open(peer->async, peer->address, OPEN_MS, &peer->segment, peer_opened,
                               peer) != 0) {
        peer_opened(peer, SL_ERR_NO_MEMORY, sl_transfer_last_error());
    }
}

void sl_serve_peer_start(struct sl_serve_peer *peer)
{
    peer->timer.run = passed;
    sl_reactor_arm(peer->options->reactor, &peer->timer, 0);
}

void sl_serve_peer_stop(struct sl_serve_peer *peer)
{
    peer->is_stopping = true;
    sl_reactor_disarm(peer->options->reactor, &peer->timer);
    if (peer->state == SL_SERVE_PEER_OPEN || peer->state == SL_SERVE_PEER_FAILED) {
        peer->state = SL_SERVE_PEER_CLOSING;
    }
    if (peer->state == SL_SERVE_PEER_AWAY) {
        peer->idle(peer);
    } else {
        close_if_quiet(peer);
    }
}
