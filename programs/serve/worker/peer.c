#include "programs/serve/worker/peer.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/log.h"

#define OPEN_MS      5000
#define SEND_MS      10000 /* a gateway that stands still for some seconds is not gone */
#define RETRY_NS     (100 * SL_CLOCK_NS_PER_MS)
#define RETRY_MAX_NS SL_CLOCK_NS_PER_S

static void peer_ended(void *ctx, int err, const char *reason)
{
    struct sl_serve_peer *peer = ctx;
    peer->state = SL_SERVE_PEER_AWAY;
    if (peer->is_stopping) {
        peer->idle(peer);
    } else {
        sl_reactor_arm(peer->reactor, &peer->timer,
                       sl_backoff_next(&peer->backoff, sl_reactor_random(peer->reactor)));
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
        sl_reactor_arm(peer->reactor, &peer->timer, 0);
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

static void peer_sent(struct sl_serve_peer *peer, int err, const char *reason)
{
    peer->sending--;
    if (err != 0) {
        peer_fail(peer, reason);
    }
    close_if_quiet(peer);
}

static void peer_written(void *ctx, int err, const char *reason)
{
    struct sl_serve_write *write = ctx;
    struct sl_serve_peer *peer = write->peer;
    write->done(write, err);
    peer_sent(peer, err, reason);
}

void sl_serve_peer_write(struct sl_serve_peer *peer, struct sl_serve_write *write, void *local,
                         uint64_t remote, uint64_t bytes)
{
    const struct sl_transfer_request request = {.op = SL_TRANSFER_WRITE,
                                                .local = local,
                                                .segment = peer->segment,
                                                .remote = remote,
                                                .bytes = bytes};
    sl_assert(peer->state == SL_SERVE_PEER_OPEN);
    write->peer = peer;
    peer->sending++;
    int err = write->batch == NULL
                  ? sl_transfer_batch_create(peer->options->transfer, 1, &write->batch)
                  : 0;
    err = err != 0 ? err
                   : sl_transfer_async_submit(peer->async, write->batch, &request, 1, SEND_MS, NULL,
                                              peer_written, write);
    if (err != 0) {
        peer_written(write, err, sl_transfer_last_error());
    }
}

static void told(void *ctx, int err, const char *reason)
{
    struct sl_serve_peer *peer = ctx;
    peer->is_telling = false;
    peer_sent(peer, err, reason);
}

bool sl_serve_peer_tell(struct sl_serve_peer *peer)
{
    uint8_t text[SL_SERVE_MESSAGE_BYTES];
    struct sl_reason reason;
    if (peer->is_telling || peer->state != SL_SERVE_PEER_OPEN) {
        return false;
    }
    const int length = sl_serve_message_encode(peer->message, text, &reason);
    if (length < 0) {
        sl_log_error("serve: a notice is not sent: %s", reason.text);
        return true;
    }
    const struct sl_transfer_notice notice = {
        .name = SL_SERVE_NOTICE, .text = text, .bytes = (uint32_t)length};
    peer->is_telling = true;
    peer->sending++;
    const int err =
        sl_transfer_async_send(peer->async, peer->segment, &notice, SEND_MS, told, peer);
    if (err != 0) {
        told(peer, err, sl_transfer_last_error());
    }
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
        sl_backoff_reset(&peer->backoff);
        sl_transfer_async_watch(peer->async, peer->segment, false, peer_closed, peer);
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
    sl_reactor_arm(peer->reactor, &peer->timer,
                   sl_backoff_next(&peer->backoff, sl_reactor_random(peer->reactor)));
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
    peer->backoff = (struct sl_backoff){.least_ns = RETRY_NS, .most_ns = RETRY_MAX_NS};
    sl_reactor_arm(peer->reactor, &peer->timer, 0);
}

void sl_serve_peer_stop(struct sl_serve_peer *peer)
{
    peer->is_stopping = true;
    sl_reactor_disarm(peer->reactor, &peer->timer);
    if (peer->state == SL_SERVE_PEER_OPEN || peer->state == SL_SERVE_PEER_FAILED) {
        peer->state = SL_SERVE_PEER_CLOSING;
    }
    if (peer->state == SL_SERVE_PEER_AWAY) {
        peer->idle(peer);
    } else {
        close_if_quiet(peer);
    }
}
