#include "net/http/daemon.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "net/http/framing.h"
#include "net/http/host.h"
#include "net/http/http.h"
#include "net/http/peers.h"

/* Of each connection: heads and replies' heads. */
#define CONNECTION_BYTES  (64U << 10)
#define HEADERS_BYTES_MAX (16U << 10)
#define TARGET_BYTES_MAX  SL_QUERY_BYTES_MAX
#define BODY_BYTES_MAX    (1U << 20) /* that is read, before the reply that refuses it */

struct sl_daemon {
    struct MHD_Daemon *mhd;
    struct sl_observer_options options;
    struct sl_peers peers;
    uint64_t now_ns;
    bool is_ending;
};

/* From its first line to the end of the reply. */
struct request {
    bool has_begun, is_too_long;
    size_t body_bytes;
    struct sl_query query;
    char target[TARGET_BYTES_MAX]; /* path, "?", query, as received */
};

static struct sl_peer *daemon_peer_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void daemon_on_connection(void *ctx, struct MHD_Connection *connection, void **context,
                                 enum MHD_ConnectionNotificationCode code)
{
    struct sl_daemon *daemon = ctx;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const int fd =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *context = sl_peers_add(&daemon->peers, fd, daemon->now_ns);
    } else {
        struct sl_peer *peer = *context;
        sl_peers_remove(&daemon->peers, &peer);
    }
}

/* The first line has arrived. Returns the context of the request; NULL: no memory. */
static void *on_target(void *ctx, const char *target, struct MHD_Connection *connection)
{
    struct request *request = calloc(1, sizeof *request);
    if (request != NULL) {
        const size_t bytes = strlen(target);
        request->is_too_long = bytes >= sizeof request->target;
        memcpy(request->target, target, request->is_too_long ? 0 : bytes);
    }
    return request;
}

static void daemon_on_completed(void *ctx, struct MHD_Connection *connection, void **context,
                                enum MHD_RequestTerminationCode code)
{
    const struct sl_daemon *daemon = ctx;
    free(*context);
    *context = NULL;
    struct sl_peer *peer = daemon_peer_of(connection);
    if (peer != NULL) {
        sl_peers_wait(peer, 0, daemon->now_ns);
    }
}

/* ---- a request ---- */

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static void refuse_method(const char *method, struct sl_reply *reply)
{
    sl_reply_error(reply, 405, "method %.16s: GET and HEAD are accepted", method);
    reply->header = "Allow";
    reply->value = "GET, HEAD";
}

static bool check_size(struct MHD_Connection *connection, const struct request *request,
                       struct sl_reply *reply)
{
    if (request->is_too_long) {
        sl_reply_error(reply, 414, "the URL is too long: less than %d bytes are accepted",
                       TARGET_BYTES_MAX);
        return false;
    }
    const size_t bytes =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    if (bytes > HEADERS_BYTES_MAX) {
        sl_reply_error(reply, 431, "the headers are too long: at most %u bytes are accepted",
                       HEADERS_BYTES_MAX);
        return false;
    }
    return true;
}

/* Whether the request was sent to this process, and not to a name of another site; else replies. A
 * page of another site does not know the token: with it any name is accepted. */
static bool check_host(const struct sl_daemon *daemon, struct MHD_Connection *connection,
                       struct sl_reply *reply)
{
    const char *host = header(connection, "Host");
    const char *own = daemon->options.listen->endpoint.host;
    const struct sl_secret *token = daemon->options.listen->token;
    if (host == NULL || sl_host_is_accepted(host, daemon_peer_of(connection)->fd, own) ||
        (token->byte_count > 0 &&
         sl_http_check_token(token, header(connection, "Authorization")) == SL_HTTP_CALLER_KNOWN)) {
        return true;
    }
    sl_reply_error(reply, 421,
                   "Host %.128s is not this server: its address, localhost, the name of the "
                   "machine and the host of --http are accepted, and any name with the token of "
                   "--http-token-file",
                   host);
    return false;
}

/* Whether the caller has shown the token; else replies. */
static bool check_token(const struct sl_daemon *daemon, struct MHD_Connection *connection,
                        struct sl_reply *reply)
{
    const enum sl_http_caller caller =
        sl_http_check_token(daemon->options.listen->token, header(connection, "Authorization"));
    if (caller != SL_HTTP_CALLER_KNOWN) {
        sl_reply_error(reply, 401, "%s: Authorization: Bearer TOKEN",
                       caller == SL_HTTP_CALLER_NO_TOKEN ? "a token is needed"
                                                         : "the token is not that of this server");
        reply->header = "WWW-Authenticate";
        reply->value = "Bearer";
    }
    return caller == SL_HTTP_CALLER_KNOWN;
}

static const struct sl_observer_route *find_route(const struct sl_daemon *daemon, const char *path)
{
    for (uint32_t i = 0; i < daemon->options.route_count; i++) {
        if (strcmp(daemon->options.routes[i].path, path) == 0) {
            return &daemon->options.routes[i];
        }
    }
    return NULL;
}

static void read_route(const struct sl_daemon *daemon, struct MHD_Connection *connection,
                       struct request *request, struct sl_reply *reply)
{
    char *query = strchr(request->target, '?');
    if (query != NULL) {
        *query++ = '\0';
    }
    const struct sl_observer_route *route = find_route(daemon, request->target);
    struct sl_reason reason;
    if ((route == NULL || !route->is_public) && !check_token(daemon, connection, reply)) {
        return;
    }
    if (route == NULL) {
        sl_reply_error(reply, 404, "there is no %.128s here", request->target);
    } else if (sl_query_parse(query, route->parameters, &request->query, &reason) != 0) {
        sl_reply_error(reply, 400, "%.1024s", reason.text);
    } else {
        reply->type = route->type;
        route->read(route->ctx, &request->query, reply);
        if (reply->status == 307 && query != NULL) { /* is for the other server too */
            const size_t used = strlen(reply->location);
            (void)snprintf(reply->location + used, sizeof reply->location - used, "?%s", query);
        }
        if (sl_reply_accepts_gzip(header(connection, "Accept-Encoding"))) {
            sl_reply_compress(reply);
        } else {
            sl_reply_decompress(reply);
        }
        const char *kept = reply->etag != NULL ? header(connection, "If-None-Match") : NULL;
        if (kept != NULL && strstr(kept, reply->etag) != NULL) {
            reply->status = 304;
            sl_reply_static(reply, "", 0, NULL);
        }
    }
}

static enum MHD_Result send_reply(struct sl_daemon *daemon, struct MHD_Connection *connection,
                                  struct sl_reply *reply)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        reply->bytes, (void *)(uintptr_t)reply->body,
        reply->is_static ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        sl_reply_fini(reply);
        return MHD_NO;
    }
    const char *const headers[][2] = {
        {"Content-Type", reply->type},
        {"Content-Encoding", reply->encoding},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy", "default-src 'self'"},
        {"ETag", reply->etag},
        {"Vary", reply->etag != NULL ? "Accept-Encoding" : NULL},
        {"Cache-Control", reply->etag != NULL ? "no-cache" : "no-store"},
        {reply->header, reply->value},
    };
    bool added = true;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        added =
            added && (headers[i][1] == NULL ||
                      MHD_add_response_header(response, headers[i][0], headers[i][1]) != MHD_NO);
    }
    const enum MHD_Result result =
        added ? MHD_queue_response(connection, reply->status, response) : MHD_NO;
    MHD_destroy_response(response);
    sl_peers_wait(daemon_peer_of(connection), reply->bytes, daemon->now_ns);
    return result;
}

static enum MHD_Result answer(struct sl_daemon *daemon, struct MHD_Connection *connection,
                              struct request *request, const char *method)
{
    struct sl_reply reply = {.status = 200};
    if (!sl_http_framing_is_clear(connection)) {
        sl_reply_error(&reply, 400, "the body has two lengths, or a length and chunks");
        reply.header = "Connection";
        reply.value = "close";
    } else if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        refuse_method(method, &reply);
    } else if (check_size(connection, request, &reply) && check_host(daemon, connection, &reply)) {
        read_route(daemon, connection, request, &reply);
    }
    if (reply.body == NULL) {
        sl_reply_error(&reply, 500, "there is no reply");
    }
    return send_reply(daemon, connection, &reply);
}

/* libmicrohttpd calls this with a head, with each piece of a body, and at its end. */
static enum MHD_Result daemon_on_request(void *ctx, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *piece, size_t *piece_bytes, void **context)
{
    struct sl_daemon *daemon = ctx;
    struct request *request = *context;
    if (request == NULL || daemon_peer_of(connection) == NULL || daemon->is_ending) {
        return MHD_NO;
    }
    if (!request->has_begun && header(connection, "Expect") == NULL &&
        sl_http_framing_is_clear(connection)) {
        request->has_begun = true;
        return MHD_YES;
    }
    if (*piece_bytes > 0) { /* is read, so that the reply does not get lost */
        request->body_bytes += *piece_bytes;
        *piece_bytes = 0;
        return request->body_bytes <= BODY_BYTES_MAX ? MHD_YES : MHD_NO;
    }
    return answer(daemon, connection, request, method);
}

/* ---- the daemon ---- */

static int start(struct sl_daemon *daemon, char *certificate, char *key, struct sl_reason *reason)
{
    struct MHD_OptionItem tls[3] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET;
    if (key != NULL) {
        flags |= MHD_USE_TLS;
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, certificate};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, key};
    }
    daemon->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, daemon_on_request, daemon, MHD_OPTION_NOTIFY_CONNECTION,
        daemon_on_connection, daemon, MHD_OPTION_NOTIFY_COMPLETED, daemon_on_completed, daemon,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, daemon, MHD_OPTION_CONNECTION_LIMIT,
        SL_OBSERVER_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (daemon->mhd == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s: HTTP cannot be started%s",
                              daemon->options.listen->source,
                              key != NULL ? ": is --tls-key the key of --tls-cert?" : "");
    }
    return 0;
}

int sl_daemon_create(const struct sl_observer_options *options, struct sl_daemon **out,
                     struct sl_reason *reason)
{
    const struct sl_observer_listen *listen = options->listen;
    char *certificate = NULL, *key = NULL;
    struct sl_daemon *daemon = calloc(1, sizeof *daemon);
    if (daemon == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for HTTP");
    }
    daemon->options = *options;
    daemon->now_ns = sl_clock_now_ns(sl_clock_system());
    sl_peers_init(&daemon->peers);
    int err = 0;
    if (listen->key != NULL) {
        err = sl_http_read_pem(listen->certificate, &certificate, reason);
        err = err != 0 ? err : sl_http_read_pem(listen->key, &key, reason);
    }
    err = err != 0 ? err : start(daemon, certificate, key, reason);
    sl_http_erase_pem(&certificate); /* libmicrohttpd has parsed them */
    sl_http_erase_pem(&key);
    if (err != 0) {
        free(daemon);
        return err;
    }
    *out = daemon;
    return 0;
}

void sl_daemon_destroy(struct sl_daemon **to_destroy)
{
    struct sl_daemon *daemon = *to_destroy;
    if (daemon != NULL) {
        daemon->is_ending = true;
        MHD_stop_daemon(daemon->mhd);
        free(daemon);
        *to_destroy = NULL;
    }
}

int sl_daemon_fd(const struct sl_daemon *daemon)
{
    return MHD_get_daemon_info(daemon->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

void sl_daemon_add(struct sl_daemon *daemon, int fd, const struct sockaddr_storage *address,
                   socklen_t address_bytes)
{
    /* Closes the descriptor if it fails. */
    (void)MHD_add_connection(daemon->mhd, fd, (const struct sockaddr *)address, address_bytes);
}

uint32_t sl_daemon_connection_count(const struct sl_daemon *daemon)
{
    return daemon->peers.count;
}

int sl_daemon_run(struct sl_daemon *daemon, uint64_t now_ns)
{
    MHD_UNSIGNED_LONG_LONG ms;
    daemon->now_ns = now_ns;
    (void)MHD_run(daemon->mhd);
    return MHD_get_timeout(daemon->mhd, &ms) == MHD_YES ? (int)(ms < 1000 ? ms : 1000) : -1;
}

void sl_daemon_sweep(struct sl_daemon *daemon, uint64_t now_ns)
{
    sl_peers_sweep(&daemon->peers, now_ns);
}
