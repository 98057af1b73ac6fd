#include "worker/client/reactor_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "worker/client/client_io.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/control_op.h"
#include "worker/client/shard_conn_connect.h"

static struct sl_shard_conn *shard_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_shard_conn, of_reactor);
}

static void set_name(struct sl_reactor_conn *conn)
{
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(sl_session_endpoint(conn->session), text, sizeof text);
    snprintf(conn->name, sizeof conn->name, "ps/%u reactor %u (%s)", conn->address.server_task,
             conn->address.reactor, text);
    SL_LIST_FOREACH (link, &conn->shards) {
        sl_shard_conn_set_name(shard_of(link));
    }
}

bool sl_reactor_conn_is_up(const struct sl_reactor_conn *conn)
{
    return sl_session_last_error(conn->session)[0] == '\0';
}

void sl_reactor_conn_pump(struct sl_reactor_conn *conn)
{
    struct sl_list_link *first;
    while ((first = sl_list_first(&conn->waiting)) != NULL &&
           sl_shard_conn_pump(SL_CONTAINER_OF(first, struct sl_shard_conn, waiting))) {
    }
}

/* Returns the shard's connection if it uses this one; else NULL. */
static struct sl_shard_conn *find_shard(const struct sl_reactor_conn *conn, uint32_t shard)
{
    struct sl_shard_conn *found =
        shard < conn->io->shard_count ? sl_client_io_conn(conn->io, shard) : NULL;
    return found != NULL && found->reactor == conn ? found : NULL;
}

/* Events of the session */

static void reactor_conn_welcomed(void *ctx, struct sl_session *session,
                                  const struct sl_message_welcome *welcome)
{
    struct sl_reactor_conn *conn = ctx;
    const struct sl_conn *base = sl_session_conn(session);
    set_name(conn);
    conn->path.outbox = sl_session_outbox(session);
    conn->path.scheme = sl_session_endpoint(session)->scheme;
    conn->path.direct_replies =
        (base->transport->ops->capabilities & SL_TRANSPORT_DIRECT_REPLIES) != 0;
    conn->path.needs_registered = sl_transport_needs_registered(base);
    conn->granted =
        (struct sl_credit){.bytes = welcome->credit_bytes, .requests = welcome->credit_requests};
    conn->credit = conn->granted;
    SL_LIST_FOREACH (link, &conn->shards) {
        sl_shard_conn_attach(shard_of(link));
    }
}

static bool reactor_conn_is_ready(void *ctx, uint32_t shard)
{
    const struct sl_shard_conn *found = find_shard(ctx, shard);
    return found != NULL && sl_shard_conn_is_attached(found);
}

void sl_reactor_conn_end_direct_reply(struct sl_reactor_conn *conn)
{
    if (conn->buffer != NULL) {
        sl_pool_put(&conn->io->memory.buffers, conn->buffer);
        conn->buffer = NULL;
    }
    if (conn->direct_request != NULL) {
        sl_flags_set(&conn->direct_request->waits, SL_REQUEST_REPLY_MEMORY_LENT, false);
        conn->direct_request = NULL;
    }
}

static void *reactor_conn_sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    struct sl_reactor_conn *conn = ctx;
    struct sl_shard_conn *shard = find_shard(conn, sl_frame_shard(header->request_id));
    void *memory = shard == NULL ? NULL : sl_shard_conn_sink(shard, header);
    if (memory != NULL) {
        return memory;
    }
    if (conn->buffer == NULL) {
        conn->buffer = sl_pool_get(&conn->io->memory.buffers);
    }
    return conn->buffer;
}

static void reactor_conn_received(void *ctx, struct sl_session *session,
                                  const struct sl_transport_message *message)
{
    struct sl_reactor_conn *conn = ctx;
    struct sl_shard_conn *shard = find_shard(conn, sl_frame_shard(message->header.request_id));
    sl_credit_grant(&conn->credit, message->header.credit_bytes, message->header.credit_requests);
    if (message->header.type == SL_FRAME_REPLY && shard != NULL) {
        sl_shard_conn_replied(shard, message);
    } else if (message->token != NULL) {
        sl_transport_release(sl_session_conn(session), message);
    } else {
        sl_reactor_conn_end_direct_reply(conn);
    }
    if (message->header.type == SL_FRAME_REPLY && shard == NULL) {
        sl_reactor_conn_break(conn, "it answered for a shard that was not attached");
    }
    sl_reactor_conn_pump(conn);
}

static void reactor_conn_writable(void *ctx, struct sl_session *session)
{
    sl_reactor_conn_pump(ctx);
}

/* The reason without the name of the connection. */
static const char *reason_of(struct sl_reactor_conn *conn, const char *reason)
{
    set_name(conn);
    return sl_control_op_reason(conn->name, reason);
}

/* A shard may end, or move to another connection; this one is closed with its last. */
static void reactor_conn_lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_reactor_conn *conn = ctx;
    const char *why = reason_of(conn, reason);
    sl_log_warn("%s: connection lost: %s; retrying", conn->name, why);
    sl_reactor_conn_end_direct_reply(conn);
    for (struct sl_list_link *link = sl_list_first(&conn->shards), *next; link != NULL;
         link = next) {
        next = link->next == &conn->shards.head ? NULL : link->next;
        sl_shard_conn_lost(shard_of(link), why);
    }
}

static void reactor_conn_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_reactor_conn *conn = ctx;
    const char *why = reason_of(conn, reason);
    sl_reactor_conn_end_direct_reply(conn);
    for (struct sl_list_link *link = sl_list_first(&conn->shards), *next; link != NULL;
         link = next) {
        next = link->next == &conn->shards.head ? NULL : link->next;
        sl_shard_conn_end(shard_of(link), err == 0 ? SL_ERR_CLOSED : err, why);
    }
}

static const struct sl_session_events reactor_conn_events = {
    .welcomed = reactor_conn_welcomed,
    .received = reactor_conn_received,
    .sink = reactor_conn_sink,
    .is_ready = reactor_conn_is_ready,
    .writable = reactor_conn_writable,
    .lost = reactor_conn_lost,
    .closed = reactor_conn_closed,
};

/* Opening and closing */

/* Without the transport the connection uses the fallback only. */
static struct sl_session_preferred preferred_of(struct sl_client_io *io,
                                                const struct sl_reactor_address *address)
{
    struct sl_session_preferred preferred = {.transport = NULL};
    if (address->has_preferred) {
        enum sl_endpoint_scheme scheme = address->preferred.scheme;
        preferred.transport = sl_client_io_preferred_transport(io, scheme);
        preferred.outbox = sl_client_io_outbox(io, scheme);
        preferred.endpoint = address->preferred;
    }
    return preferred;
}

static int reactor_conn_open(struct sl_client_io *io, const struct sl_reactor_address *address,
                             uint64_t start_timeout_ns, struct sl_reactor_conn **out)
{
    char peer_name[32];
    struct sl_reactor_conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    snprintf(peer_name, sizeof peer_name, "ps/%u reactor %u", address->server_task,
             address->reactor);
    struct sl_session_options options = {
        .endpoint = address->endpoint,
        .preferred = preferred_of(io, address),
        .hello = io->options->hello,
        .events = &reactor_conn_events,
        .ctx = conn,
        .peer_name = peer_name,
        .persistent = true,
        .secret = &io->options->secret,
        .target = address->reactor,
        .start_timeout_ns = start_timeout_ns,
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_DATA;
    options.hello.shard = address->reactor;
    int err = sl_client_io_transport(io, address->endpoint.scheme, &options.transport);
    if (err == 0) {
        options.outbox = sl_client_io_outbox(io, address->endpoint.scheme);
        err = sl_session_open(&options, &conn->session);
    }
    if (err != 0) {
        free(conn);
        return err;
    }
    conn->io = io;
    conn->address = *address;
    sl_list_init(&conn->shards);
    sl_list_init(&conn->waiting);
    set_name(conn);
    conn->next = io->reactors;
    io->reactors = conn;
    *out = conn;
    return 0;
}

static struct sl_reactor_conn *reactor_conn_find(const struct sl_client_io *io,
                                                 const struct sl_reactor_address *address)
{
    struct sl_reactor_conn *conn = io->reactors;
    while (conn != NULL && (conn->address.server_task != address->server_task ||
                            conn->address.reactor != address->reactor)) {
        conn = conn->next;
    }
    return conn;
}

/* Closes the connection if no shard uses it. A receive buffer stays taken: the transport may still
 * write to it. */
static void close_unused(struct sl_reactor_conn *conn)
{
    if (!sl_list_empty(&conn->shards)) {
        return;
    }
    struct sl_reactor_conn **at = &conn->io->reactors;
    while (*at != conn) {
        at = &(*at)->next;
    }
    *at = conn->next;
    sl_session_close(&conn->session);
    free(conn);
}

int sl_reactor_conn_join(struct sl_shard_conn *shard, uint64_t start_timeout_ns)
{
    struct sl_reactor_conn *conn = reactor_conn_find(shard->io, &shard->address);
    if (conn == NULL) {
        int err = reactor_conn_open(shard->io, &shard->address, start_timeout_ns, &conn);
        if (err != 0) {
            return err;
        }
    }
    struct sl_reactor_conn *before = shard->reactor;
    shard->reactor = conn;
    sl_list_append(&conn->shards, &shard->of_reactor);
    sl_list_remove(&shard->waiting);
    sl_shard_conn_set_name(shard);
    if (before != NULL) {
        sl_session_migrate_shard(before->session, conn->session, shard->shard);
        close_unused(before);
    }
    if (sl_reactor_conn_is_up(conn)) {
        sl_shard_conn_attach(shard);
    }
    return 0;
}

void sl_reactor_conn_leave(struct sl_shard_conn *shard)
{
    struct sl_reactor_conn *conn = shard->reactor;
    shard->reactor = NULL;
    sl_list_remove(&shard->of_reactor);
    sl_list_remove(&shard->waiting);
    sl_session_fail_shard(conn->session, shard->shard, SL_ERR_CLOSED, shard->reason);
    close_unused(conn);
}

void sl_reactor_conn_set_address(struct sl_reactor_conn *conn,
                                 const struct sl_reactor_address *address)
{
    const bool has_moved = !sl_endpoint_same(&conn->address.endpoint, &address->endpoint);
    conn->address = *address;
    const struct sl_session_preferred preferred = preferred_of(conn->io, address);
    sl_session_set_preferred(conn->session, &preferred);
    if (has_moved) {
        sl_session_set_endpoint(conn->session, &address->endpoint);
        set_name(conn);
        sl_log_info("%s: this is where it is reached now", conn->name);
    }
}

void sl_reactor_conn_break(struct sl_reactor_conn *conn, const char *reason)
{
    if (!sl_reactor_conn_is_up(conn)) {
        return; /* or already breaking */
    }
    SL_LIST_FOREACH (link, &conn->shards) {
        sl_shard_conn_breaks(shard_of(link), reason);
    }
    sl_session_reconnect(conn->session, reason);
}
