#include "programs/serve/http/http.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/number.h"
#include "config/secret.h"
#include "core/format.h"
#include "net/http/framing.h"
#include "net/http/http.h"
#include "net/http/peers.h"
#include "reactor/reactor.h"
#include "reactor/ring.h"

/* Of each connection: heads, and a piece of a body. libmicrohttpd zeroes them after each request.
 */
#define CONNECTION_BYTES (64U << 10)
/* So much of a body that is too large is read, that its sender may read the reply. */
#define DISCARDED        4 /* times the limit */
#define DISCARDED_LEAST  (1ULL << 20)

struct sl_serve_http {
    struct MHD_Daemon *daemon;
    struct sl_reactor *reactor;
    const struct sl_serve_http_handler *handler;
    void *ctx;
    struct sl_secret token;
    struct sl_ring_watch watch;
    struct sl_timer run, sweep;
    struct sl_peers peers;
    uint32_t call_count;
    bool has_room_again; /* after SL_HTTP_CONNECTIONS_MAX */
    uint16_t port;
    bool is_ending;
};

static struct sl_peer *http_peer_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void peer_waits(struct sl_serve_http *http, struct sl_peer *peer, uint64_t bytes)
{
    sl_peers_wait(peer, bytes, sl_reactor_now_ns(http->reactor));
}

static void http_on_connection(void *ctx, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code)
{
    struct sl_serve_http *http = ctx;
    struct sl_peer *peer = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const int fd =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *context = sl_peers_add(&http->peers, fd, sl_reactor_now_ns(http->reactor));
    } else if (peer != NULL) {
        http->has_room_again |= http->peers.count == SL_HTTP_CONNECTIONS_MAX;
        sl_peers_remove(&http->peers, &peer);
    }
}

/* ---- the loop ---- */

static void run(struct sl_serve_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;
    do {
        http->has_room_again = false; /* then it accepts in the next run */
        (void)MHD_run(http->daemon);
    } while (http->has_room_again);
    if (MHD_get_timeout(http->daemon, &ms) == MHD_YES) {
        sl_reactor_arm(http->reactor, &http->run, ms * SL_CLOCK_NS_PER_MS);
    } else {
        sl_reactor_disarm(http->reactor, &http->run);
    }
}

static void http_on_readable(struct sl_ring_watch *watch)
{
    run(SL_CONTAINER_OF(watch, struct sl_serve_http, watch));
}

static void on_run(struct sl_timer *timer, uint64_t now_ns)
{
    run(SL_CONTAINER_OF(timer, struct sl_serve_http, run));
}

/* libmicrohttpd then sees that the peer has ended. */
static void on_sweep(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_serve_http *http = SL_CONTAINER_OF(timer, struct sl_serve_http, sweep);
    sl_peers_sweep(&http->peers, now_ns);
    sl_reactor_arm(http->reactor, &http->sweep, SL_PEERS_SWEEP_NS);
}

/* ---- calls ---- */

uint64_t sl_serve_http_now_ns(const struct sl_serve_http_call *call)
{
    return sl_reactor_now_ns(call->http->reactor);
}

const char *sl_serve_http_header(const struct sl_serve_http_call *call, const char *name)
{
    return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

/* Whether the caller has shown the token; else replies. */
static bool check_token(const struct sl_serve_http *http, struct sl_serve_http_call *call)
{
    switch (sl_http_check_token(&http->token, sl_serve_http_header(call, "Authorization"))) {
    case SL_HTTP_CALLER_KNOWN:
        return true;
    case SL_HTTP_CALLER_NO_TOKEN:
        sl_serve_http_add_header(call, "WWW-Authenticate", "Bearer");
        sl_serve_http_reply_error(call, 401, "a token is needed: Authorization: Bearer TOKEN");
        return false;
    case SL_HTTP_CALLER_WRONG_TOKEN:
        break;
    }
    sl_serve_http_reply_error(call, 403, "the token is not that of this server");
    return false;
}

static void reply_too_large(struct sl_serve_http_call *call)
{
    sl_serve_http_reply_error(call, 413, "the body is too large: at most %llu bytes are accepted",
                              (unsigned long long)call->body_bytes_max);
}

static struct sl_serve_http_call *begin(struct sl_serve_http *http,
                                        struct MHD_Connection *connection, const char *path,
                                        const char *method)
{
    struct sl_serve_http_call *call = calloc(1, http->handler->call_bytes);
    if (call == NULL) {
        return NULL;
    }
    http->call_count++;
    call->http = http;
    call->connection = connection;
    call->path = path;
    call->is_post = strcmp(method, "POST") == 0;
    call->begun_ns = sl_reactor_now_ns(http->reactor);
    call->body_bytes_max = http->handler->body_bytes_max;
    const char *length = sl_serve_http_header(call, "Content-Length");
    const char *coding = sl_serve_http_header(call, "Content-Encoding");
    if (length == NULL) {
        const bool chunked = sl_serve_http_header(call, "Transfer-Encoding") != NULL;
        call->body_bytes = chunked ? SL_HTTP_UNKNOWN_BYTES : 0;
    } else if (!sl_number_parse_u64(length, 0, SL_HTTP_UNKNOWN_BYTES - 1, &call->body_bytes)) {
        call->body_bytes = SL_HTTP_UNKNOWN_BYTES - 1; /* too large, then */
    }
    if (!sl_http_framing_is_clear(connection)) {
        sl_serve_http_add_header(call, "Connection", "close");
        sl_serve_http_reply_error(call, 400,
                                  "the body has two lengths, or a Content-Length and a "
                                  "Transfer-Encoding: one of them is accepted");
        return call;
    }
    if (!check_token(http, call)) {
        return call;
    }
    if (!call->is_post && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        sl_serve_http_add_header(call, "Allow", "GET, HEAD, POST");
        sl_serve_http_reply_error(call, 405, "method %.16s: GET, HEAD and POST are accepted",
                                  method);
    } else if (coding != NULL && strcasecmp(coding, "identity") != 0) {
        sl_serve_http_reply_error(call, 415, "Content-Encoding: %.32s is not accepted", coding);
    } else {
        http->handler->begin(http->ctx, call);
    }
    if (call->status == 0 && call->body_bytes != SL_HTTP_UNKNOWN_BYTES &&
        call->body_bytes > call->body_bytes_max) {
        reply_too_large(call);
    }
    return call;
}

static enum MHD_Result send_reply(struct sl_serve_http *http, struct sl_serve_http_call *call)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        call->reply_bytes, call->body != NULL ? call->body : "",
        call->body != NULL ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    call->body = NULL;
    bool added = MHD_add_response_header(response, "Content-Type", call->type) == MHD_YES;
    for (uint32_t i = 0; i < 2 && call->headers[i].name != NULL; i++) {
        added = added && MHD_add_response_header(response, call->headers[i].name,
                                                 call->headers[i].value) == MHD_YES;
    }
    const enum MHD_Result result =
        added ? MHD_queue_response(call->connection, call->status, response) : MHD_NO;
    MHD_destroy_response(response);
    peer_waits(http, http_peer_of(call->connection), call->reply_bytes);
    return result;
}

static uint64_t discarded_max(const struct sl_serve_http_call *call)
{
    const uint64_t most = DISCARDED * call->body_bytes_max;
    return most > DISCARDED_LEAST ? most : DISCARDED_LEAST;
}

/* A piece of the body has arrived. MHD_NO: closes the connection. */
static enum MHD_Result receive(struct sl_serve_http *http, struct sl_serve_http_call *call,
                               const char *piece, size_t bytes)
{
    struct sl_peer *peer = http_peer_of(call->connection);
    peer->bytes += bytes;
    if (peer->bytes > discarded_max(call)) {
        return MHD_NO;
    }
    if (call->status == 0 && peer->bytes > call->body_bytes_max) { /* in chunks */
        reply_too_large(call);
    } else if (call->status == 0) {
        http->handler->receive(http->ctx, call, piece, bytes);
    }
    return MHD_YES;
}

/* libmicrohttpd calls this with a head, with each piece of the body, at its end, and once the
 * connection has been resumed. */
static enum MHD_Result http_on_request(void *ctx, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *piece, size_t *piece_bytes, void **context)
{
    struct sl_serve_http *http = ctx;
    struct sl_serve_http_call *call = *context;
    struct sl_peer *peer = http_peer_of(connection);
    const bool is_replied = call != NULL && call->status != 0;
    if (peer == NULL || (http->is_ending && !is_replied)) {
        return MHD_NO;
    }
    if (call == NULL) {
        *context = call = begin(http, connection, url, method);
        if (call == NULL) {
            return MHD_NO;
        }
        peer_waits(http, peer, 0);
        /* A reply before the end of the body ends the connection, and may get lost. */
        const bool early =
            sl_serve_http_header(call, "Expect") != NULL || !sl_http_framing_is_clear(connection) ||
            (call->body_bytes != SL_HTTP_UNKNOWN_BYTES && call->body_bytes > discarded_max(call));
        return call->status != 0 && early ? send_reply(http, call) : MHD_YES;
    }
    if (*piece_bytes > 0) {
        const size_t bytes = *piece_bytes;
        *piece_bytes = 0;
        return receive(http, call, piece, bytes);
    }
    if (!call->is_complete) {
        call->is_complete = true;
        if (call->status == 0) {
            http->handler->end(http->ctx, call);
        }
    }
    if (call->status == 0) {
        call->is_suspended = peer->is_suspended = true;
        MHD_suspend_connection(connection);
        return MHD_YES;
    }
    return send_reply(http, call);
}

static void http_on_completed(void *ctx, struct MHD_Connection *connection, void **context,
                              enum MHD_RequestTerminationCode code)
{
    struct sl_serve_http *http = ctx;
    struct sl_serve_http_call *call = *context;
    if (call != NULL) {
        *context = NULL;
        http->handler->free(http->ctx, call);
        free(call->body);
        free(call);
        http->call_count--;
        peer_waits(http, http_peer_of(connection), 0);
    }
}

void sl_serve_http_add_header(struct sl_serve_http_call *call, const char *name, const char *format,
                              ...)
{
    struct sl_serve_http_header *header = &call->headers[call->headers[0].name != NULL];
    sl_assert(header->name == NULL);
    SL_FORMAT(header->value, format);
    header->name = name;
}

void sl_serve_http_reply(struct sl_serve_http_call *call, uint32_t status, const char *type,
                         char *body, size_t bytes)
{
    sl_assert(call->status == 0);
    call->status = status;
    call->type = type;
    call->body = body;
    call->reply_bytes = bytes;
    if (call->is_suspended) {
        call->is_suspended = false;
        MHD_resume_connection(call->connection);
        sl_reactor_arm(call->http->reactor, &call->http->run, 0);
    }
}

void sl_serve_http_reply_error(struct sl_serve_http_call *call, uint32_t status, const char *format,
                               ...)
{
    struct sl_reason reason;
    va_list arguments;
    va_start(arguments, format);
    sl_reason_vset(&reason, format, arguments);
    va_end(arguments);
    char *body = sl_http_format_error(&reason);
    sl_serve_http_reply(call, status, "application/json", body, body != NULL ? strlen(body) : 0);
}

/* ---- settings ---- */

int sl_serve_http_settings_resolve(const struct sl_serve_http_flags *flags, bool is_insecure,
                                   struct sl_serve_http_settings *out, struct sl_reason *reason)
{
    struct sl_serve_http_settings settings = {0};
    struct sl_reason why;
    int err = sl_endpoint_parse(flags->address, &settings.endpoint, &why);
    if (err != 0 || settings.endpoint.scheme != SL_ENDPOINT_TCP) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--http %.200s: HOST:PORT is accepted",
                              flags->address);
    }
    if (flags->token_file != NULL) {
        err = sl_secret_read(flags->token_file, &settings.token, reason);
    } else if (!is_insecure && !sl_endpoint_is_loopback(&settings.endpoint)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--http %.200s is open to the network: give --http-token-file, or "
                             "--insecure when the network is trusted",
                             flags->address);
    }
    if (err == 0 && (flags->certificate != NULL) != (flags->key != NULL)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--http-tls-cert and --http-tls-key go together");
    } else if (err == 0 && flags->key != NULL) {
        err = sl_http_read_pem(flags->certificate, &settings.certificate, reason);
        err = err != 0 ? err : sl_http_read_pem(flags->key, &settings.key, reason);
    }
    if (err != 0) {
        sl_serve_http_settings_fini(&settings);
        return err;
    }
    *out = settings;
    return 0;
}

void sl_serve_http_settings_fini(struct sl_serve_http_settings *settings)
{
    sl_http_erase_pem(&settings->certificate);
    sl_http_erase_pem(&settings->key);
    explicit_bzero(settings, sizeof *settings);
}

/* ---- start and end ---- */

static int start_daemon(struct sl_serve_http *http, const struct sl_serve_http_settings *settings,
                        struct sl_reason *reason)
{
    char what[SL_LIMIT_ENDPOINT_BYTES + 16];
    (void)snprintf(what, sizeof what, "--http %s:%u", settings->endpoint.host,
                   settings->endpoint.port);
    const int fd = sl_http_listen(&settings->endpoint, what, reason);
    if (fd < 0) {
        return fd;
    }
    struct MHD_OptionItem tls[3] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    if (settings->certificate != NULL) {
        flags |= MHD_USE_TLS;
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, settings->certificate};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, settings->key};
    }
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_on_request, http, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, http, MHD_OPTION_NOTIFY_COMPLETED,
        http_on_completed, http, MHD_OPTION_CONNECTION_LIMIT, SL_HTTP_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    if (http->daemon == NULL) {
        (void)close(fd);
        return sl_reason_fail(
            reason, SL_ERR_INVALID, "HTTP cannot be started%s",
            settings->certificate != NULL ? ": is --http-tls-key the key of --http-tls-cert?" : "");
    }
    http->port = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return 0;
}

int sl_serve_http_create(struct sl_reactor *reactor, const struct sl_serve_http_settings *settings,
                         const struct sl_serve_http_handler *handler, void *ctx,
                         struct sl_serve_http **out, struct sl_reason *reason)
{
    sl_reactor_assert_owner(reactor);
    struct sl_serve_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for HTTP");
    }
    http->reactor = reactor;
    http->handler = handler;
    http->ctx = ctx;
    http->token = settings->token;
    http->run.run = on_run;
    http->sweep.run = on_sweep;
    sl_peers_init(&http->peers);
    const int err = start_daemon(http, settings, reason);
    if (err != 0) {
        free(http);
        return err;
    }
    const int epoll = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    sl_ring_watch_level(sl_reactor_ring(reactor), &http->watch, epoll, http_on_readable);
    sl_reactor_arm(reactor, &http->sweep, SL_PEERS_SWEEP_NS);
    *out = http;
    return 0;
}

void sl_serve_http_destroy(struct sl_serve_http **to_destroy)
{
    struct sl_serve_http *http = *to_destroy;
    if (http == NULL) {
        return;
    }
    sl_reactor_assert_owner(http->reactor);
    http->is_ending = true;      /* a request that comes now is not begun */
    (void)MHD_run(http->daemon); /* resumes what was replied to */
    sl_ring_watch_end(&http->watch);
    MHD_stop_daemon(http->daemon);
    sl_reactor_disarm(http->reactor, &http->run);
    sl_reactor_disarm(http->reactor, &http->sweep);
    sl_assert(http->call_count == 0);
    explicit_bzero(&http->token, sizeof http->token);
    free(http);
    *to_destroy = NULL;
}

uint16_t sl_serve_http_port(const struct sl_serve_http *http)
{
    return http->port;
}

void sl_serve_http_quiesce(struct sl_serve_http *http)
{
    const int listener = MHD_quiesce_daemon(http->daemon);
    if (listener >= 0) {
        (void)close(listener);
    }
}

uint32_t sl_serve_http_call_count(const struct sl_serve_http *http)
{
    return http->call_count;
}
