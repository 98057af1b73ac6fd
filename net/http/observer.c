#include "net/http/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/reactor.h"

#define RING_ENTRIES 64

struct sl_observer {
    struct sl_observer_options options;
    struct sl_reactor *reactor;
    struct sl_timer tick;
    struct sl_http_server *server; /* NULL: no HTTP */
};

/* ---- requests ---- */

static const struct sl_observer_route *find_route(const struct sl_observer *observer,
                                                  const char *path)
{
    for (uint32_t i = 0; i < observer->options.route_count; i++) {
        if (strcmp(observer->options.routes[i].path, path) == 0) {
            return &observer->options.routes[i];
        }
    }
    return NULL;
}

static bool is_public(void *ctx, const char *path)
{
    const struct sl_observer_route *route = find_route(ctx, path);
    return route != NULL && route->is_public;
}

/* The query is for the other server too. */
static void redirect_with_query(struct sl_reply *reply, const char *query)
{
    char *location;
    if (reply->text != NULL && asprintf(&location, "%s?%s", reply->text, query) >= 0) {
        free(reply->text);
        reply->text = location;
    }
}

static void read_route(const struct sl_observer_route *route, struct sl_http_call *call)
{
    struct sl_reply *reply = &call->reply;
    struct sl_query query;
    struct sl_reason reason;
    if (sl_query_parse(call->query, route->parameters, &query, &reason) != 0) {
        sl_reply_error(reply, 400, "%.1024s", reason.text);
        return;
    }
    reply->status = 200;
    reply->type = route->type;
    route->read(route->ctx, &query, reply);
    if (reply->status == 307 && call->query != NULL) {
        redirect_with_query(reply, call->query);
    }
    if (reply->body == NULL) {
        sl_reply_error(reply, 500, "there is no reply");
    }
    if (sl_reply_accepts(sl_http_call_header(call, "Accept-Encoding"), "gzip")) {
        sl_reply_compress(reply, "gzip", SL_REPLY_COMPRESS_BYTES);
    } else {
        sl_reply_decompress(reply);
    }
    const char *kept = reply->etag != NULL ? sl_http_call_header(call, "If-None-Match") : NULL;
    if (kept != NULL && strstr(kept, reply->etag) != NULL) {
        reply->status = 304;
        sl_reply_static(reply, "", 0, NULL);
    }
}

static void observer_answer(void *ctx, struct sl_http_call *call)
{
    const struct sl_observer *observer = ctx;
    const struct sl_observer_route *route = find_route(observer, call->path);
    sl_reactor_excuse_turn(observer->reactor); /* a reader may take long */
    if (route == NULL) {
        sl_reply_error(&call->reply, 404, "there is no %.128s here", call->path);
    } else {
        read_route(route, call);
    }
}

static void observer_add_headers(void *ctx, struct sl_http_call *call)
{
    struct sl_reply *reply = &call->reply;
    sl_reply_header(reply, "Content-Encoding", reply->encoding);
    sl_reply_header(reply, "X-Content-Type-Options", "nosniff");
    sl_reply_header(reply, "Content-Security-Policy", "default-src 'self'");
    sl_reply_header(reply, "ETag", reply->etag);
    sl_reply_header(reply, "Vary", reply->etag != NULL ? "Accept-Encoding" : NULL);
    sl_reply_header(reply, "Cache-Control", reply->etag != NULL ? "no-cache" : "no-store");
}

static const struct sl_http_handler handler = {.connections_max = SL_OBSERVER_CONNECTIONS_MAX,
                                               .call_bytes = sizeof(struct sl_http_call),
                                               .checks_host = true,
                                               .wrong_token_status = 401,
                                               .is_public = is_public,
                                               .end = observer_answer,
                                               .finish = observer_add_headers};

/* ---- the thread ---- */

static void observer_tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_observer *observer = SL_CONTAINER_OF(timer, struct sl_observer, tick);
    sl_reactor_excuse_turn(observer->reactor);
    observer->options.tick(observer->options.ctx, now_ns);
    sl_reactor_arm(observer->reactor, timer, SL_OBSERVER_TICK_NS);
}

static int observer_begin(void *ctx)
{
    struct sl_observer *observer = ctx;
    if (observer->server != NULL) {
        sl_http_server_attach(observer->server, observer->reactor);
    }
    if (observer->options.tick != NULL) {
        sl_reactor_arm(observer->reactor, &observer->tick, 0);
    }
    return 0;
}

static void observer_end(void *ctx)
{
    struct sl_observer *observer = ctx;
    sl_http_server_destroy(&observer->server);
}

/* ---- start and end ---- */

static int open_http(struct sl_observer *observer, struct sl_reason *reason)
{
    struct sl_reason why;
    const int err = sl_http_server_create(observer->options.listen, &handler, observer,
                                          &observer->server, &why);
    if (err != 0) {
        return sl_reason_fail(
            reason, err, "%.1024s%s%s", why.text,
            err == SL_ERR_INVALID ? ""
                                  : "; an address of this machine and a free port are accepted, "
                                    "port 0 for any, or off",
            err != SL_ERR_IN_USE
                ? ""
                : "; starling-launch gives the port of STARLING_HTTP to ps/0 alone");
    }
    return 0;
}

int sl_observer_create(const struct sl_observer_options *options, struct sl_observer **out,
                       struct sl_reason *reason)
{
    const struct sl_reactor_options reactor = {
        .name = "observer", .core = -1, .ring_entries = RING_ENTRIES};
    struct sl_observer *observer = calloc(1, sizeof *observer);
    if (observer == NULL || sl_reactor_create(&reactor, &observer->reactor) != 0) {
        free(observer);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the observer");
    }
    observer->options = *options;
    observer->tick.run = observer_tick;
    sl_reactor_on_stop(observer->reactor, observer_end, observer);
    const int err = options->listen != NULL ? open_http(observer, reason) : 0;
    if (err != 0) {
        sl_observer_destroy(&observer);
        return err;
    }
    *out = observer;
    return 0;
}

int sl_observer_start(struct sl_observer *observer)
{
    return sl_reactor_start(observer->reactor, observer_begin, observer);
}

void sl_observer_stop(struct sl_observer *observer)
{
    sl_reactor_stop(observer->reactor);
    sl_reactor_join(observer->reactor);
    sl_http_server_destroy(&observer->server); /* of a thread that has not been started */
}

void sl_observer_destroy(struct sl_observer **to_destroy)
{
    struct sl_observer *observer = *to_destroy;
    if (observer != NULL) {
        sl_observer_stop(observer);
        sl_reactor_destroy(&observer->reactor);
        free(observer);
        *to_destroy = NULL;
    }
}

void sl_observer_address(const struct sl_observer *observer, const char *any_host, char *text,
                         size_t bytes)
{
    char formatted[SL_LIMIT_ENDPOINT_BYTES] = "tcp://off";
    if (observer->server != NULL) {
        struct sl_endpoint endpoint = observer->options.listen->endpoint;
        endpoint.port = sl_http_server_port(observer->server);
        if (any_host != NULL && sl_endpoint_is_any(&endpoint)) {
            (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", any_host);
        }
        sl_endpoint_format(&endpoint, formatted, sizeof formatted);
    }
    (void)snprintf(text, bytes, "%s", formatted + strlen("tcp://"));
}

struct sl_mailbox *sl_observer_mailbox(struct sl_observer *observer)
{
    return sl_reactor_mailbox(observer->reactor);
}
