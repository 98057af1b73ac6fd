#include "net/http/server.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/http/host.h"
#include "net/http/inflate.h"
#include "net/http/listener.h"
#include "net/http/token.h"
#include "reactor/reactor.h"
#include "reactor/ring.h"

#define HEADERS_BYTES_MAX (16U << 10)
#define TARGET_BYTES_MAX  SL_QUERY_BYTES_MAX
/* So much of a body that is too large is read, that its sender may read the reply. */
#define DISCARDED         4 /* times the limit */
#define DISCARDED_LEAST   (1ULL << 20)
#define RUNS_MAX          4 /* a turn */
#define PEER_NS           (10 * SL_CLOCK_NS_PER_S)
#define PEER_BYTE_NS      1000        /* 1 s for about 1 MiB */
#define PEM_BYTES_MAX     (64U << 10) /* with NUL */
#define SWEEP_NS          SL_CLOCK_NS_PER_S

struct sl_http_server {
    struct MHD_Daemon *daemon;
    const struct sl_http_handler *handler;
    void *ctx;
    struct sl_http_listener listener;
    char host[SL_LIMIT_ENDPOINT_BYTES]; /* as the user has given it */
    const struct sl_secret *token;
    struct sl_list peers;
    uint32_t peer_count;
    uint32_t call_count;
    bool is_ending;
    struct sl_reactor *reactor; /* NULL: not attached yet */
    struct sl_ring_watch connections, accepting;
    struct sl_timer run, sweep;
};

/* A connection, which waits for its peer: for a head, for a body, or until the peer takes the
 * reply. */
struct peer {
    struct sl_list_link link;
    int fd;
    uint64_t since_ns, bytes; /* of this head, body or reply */
    bool is_suspended;        /* does not wait for the peer */
};

/* Headers that the server reads. */
enum header { LENGTH, TRANSFER, CODING, EXPECT, HOST, AUTHORIZATION, HEADERS };

struct head {
    const char *values[HEADERS]; /* the first of each name; NULL: none */
    bool has_two_lengths;
};

/* ---- peers ---- */

static struct peer *server_peer_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* The peer's time starts again, for so many bytes. */
static void server_wait(const struct sl_http_server *server, struct peer *peer, uint64_t bytes)
{
    peer->since_ns = sl_reactor_now_ns(server->reactor);
    peer->bytes = bytes;
    peer->is_suspended = false;
}

static void server_on_connection(void *ctx, struct MHD_Connection *connection, void **context,
                                 enum MHD_ConnectionNotificationCode code)
{
    struct sl_http_server *server = ctx;
    struct peer *peer = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = peer = calloc(1, sizeof *peer); /* NULL: its requests end the connection */
        if (peer != NULL) {
            peer->fd =
                MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            server_wait(server, peer, 0);
            sl_list_append(&server->peers, &peer->link);
            server->peer_count++;
        }
    } else if (peer != NULL) {
        sl_list_remove(&peer->link);
        server->peer_count--;
        free(peer);
    }
}

/* Shuts down the sockets of peers that have taken too long; libmicrohttpd then sees their end. */
static void sweep_peers(struct sl_http_server *server, uint64_t now_ns)
{
    SL_LIST_EACH (const struct peer, peer, link, &server->peers) {
        const uint64_t end_ns = peer->since_ns + PEER_NS + peer->bytes * PEER_BYTE_NS;
        if (!peer->is_suspended && now_ns > end_ns) {
            (void)shutdown(peer->fd, SHUT_RDWR);
        }
    }
}

/* ---- calls ---- */

/* The first line has arrived. Returns the call; NULL: no memory. */
static void *server_on_target(void *ctx, const char *target, struct MHD_Connection *connection)
{
    struct sl_http_server *server = ctx;
    const char *query = strchr(target, '?');
    struct sl_http_call *call = calloc(1, server->handler->call_bytes);
    if (call != NULL) {
        call->server = server;
        call->connection = connection;
        call->is_too_long = strlen(target) >= TARGET_BYTES_MAX;
    }
    if (call != NULL && query != NULL && !call->is_too_long) {
        call->query = strdup(query + 1);
        if (call->query == NULL) {
            free(call);
            return NULL;
        }
    }
    return call;
}

static void server_on_completed(void *ctx, struct MHD_Connection *connection, void **context,
                                enum MHD_RequestTerminationCode code)
{
    struct sl_http_server *server = ctx;
    struct sl_http_call *call = *context;
    struct peer *peer = server_peer_of(connection);
    *context = NULL;
    if (call != NULL && call->state != SL_HTTP_CALL_HEAD) {
        server->call_count--;
        if (server->handler->free != NULL) {
            server->handler->free(server->ctx, call);
        }
    }
    if (call != NULL) {
        sl_inflate_destroy(&call->inflate);
        sl_reply_fini(&call->reply);
        free(call->query);
        free(call);
    }
    if (peer != NULL) {
        server_wait(server, peer, 0);
    }
}

const char *sl_http_call_header(const struct sl_http_call *call, const char *name)
{
    return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

/* The reply is there. */
static void server_resume(struct sl_http_call *call)
{
    if (call->state == SL_HTTP_CALL_SUSPENDED) {
        call->state = SL_HTTP_CALL_COMPLETE;
        MHD_resume_connection(call->connection);
        sl_reactor_arm(call->server->reactor, &call->server->run, 0);
    }
}

void sl_http_call_reply(struct sl_http_call *call, uint32_t status, const char *type, char *body,
                        size_t bytes)
{
    sl_assert(call->reply.status == 0);
    call->reply.status = status;
    call->reply.type = type;
    call->reply.body = body;
    call->reply.bytes = bytes;
    server_resume(call);
}

void sl_http_call_reply_error(struct sl_http_call *call, uint32_t status, const char *format, ...)
{
    va_list arguments;
    sl_assert(call->reply.status == 0);
    va_start(arguments, format);
    sl_reply_verror(&call->reply, status, format, arguments);
    va_end(arguments);
    server_resume(call);
}

static enum MHD_Result send_reply(struct sl_http_server *server, struct sl_http_call *call)
{
    struct sl_reply *reply = &call->reply;
    if (server->handler->finish != NULL) {
        server->handler->finish(server->ctx, call);
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(
        reply->bytes, reply->body != NULL ? (void *)(uintptr_t)reply->body : "",
        reply->is_static || reply->body == NULL ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        return MHD_NO;
    }
    reply->body = NULL;
    bool added = MHD_add_response_header(response, "Content-Type", reply->type) == MHD_YES;
    for (uint32_t i = 0; added && i < reply->header_count; i++) {
        const char *value = reply->headers[i].value;
        added = MHD_add_response_header(response, reply->headers[i].name,
                                        value != NULL ? value : reply->text) == MHD_YES;
    }
    const enum MHD_Result result =
        added ? MHD_queue_response(call->connection, reply->status, response) : MHD_NO;
    MHD_destroy_response(response);
    server_wait(server, server_peer_of(call->connection), reply->bytes);
    return result;
}

/* ---- a head ---- */

static enum MHD_Result server_take_header(void *ctx, enum MHD_ValueKind kind, const char *name,
                                          const char *value)
{
    static const char *const names[HEADERS] = {[LENGTH] = "Content-Length",
                                               [TRANSFER] = "Transfer-Encoding",
                                               [CODING] = "Content-Encoding",
                                               [EXPECT] = "Expect",
                                               [HOST] = "Host",
                                               [AUTHORIZATION] = "Authorization"};
    struct head *head = ctx;
    for (uint32_t i = 0; value != NULL && i < HEADERS; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            const char *first = head->values[i];
            head->values[i] = first != NULL ? first : value;
            head->has_two_lengths |= i == LENGTH && first != NULL && strcmp(first, value) != 0;
        }
    }
    return MHD_YES;
}

/* Whether the request has one length, or comes in chunks, but not both, and not two lengths. Else a
 * proxy may see another end of the body, and the rest would be a request that it did not check (RFC
 * 9112, 6.3). */
static bool is_framing_clear(const struct head *head)
{
    return !head->has_two_lengths &&
           !(head->values[TRANSFER] != NULL && head->values[LENGTH] != NULL);
}

/* Whether the caller may ask for the path; else replies. A page of another site can send requests
 * under another name of this server, but does not know the token: with it any name is accepted. */
static bool check_caller(const struct sl_http_server *server, struct sl_http_call *call,
                         const struct head *head)
{
    const struct sl_http_handler *handler = server->handler;
    const char *host = handler->checks_host ? head->values[HOST] : NULL;
    const enum sl_http_caller caller =
        sl_http_check_token(server->token, head->values[AUTHORIZATION]);
    const bool is_known = caller == SL_HTTP_CALLER_KNOWN;
    if (host != NULL && !(is_known && server->token->byte_count > 0) &&
        !sl_host_is_accepted(host, server_peer_of(call->connection)->fd, server->host)) {
        sl_http_call_reply_error(
            call, 421,
            "Host %.128s is not this server: its address, localhost, the name of the machine and "
            "the host of --http are accepted, and any name with the token of --http-token-file",
            host);
        return false;
    }
    if (is_known || (handler->is_public != NULL && handler->is_public(server->ctx, call->path))) {
        return true;
    }
    const uint32_t status = caller == SL_HTTP_CALLER_NO_TOKEN ? 401 : handler->wrong_token_status;
    sl_reply_header(&call->reply, "WWW-Authenticate", status == 401 ? "Bearer" : NULL);
    sl_http_call_reply_error(call, status,
                             caller == SL_HTTP_CALLER_NO_TOKEN
                                 ? "a token is needed: Authorization: Bearer TOKEN"
                                 : "the token is not that of this server");
    return false;
}

/* Creates the decoder of the body; else replies. */
static void begin_decoding(const struct sl_http_server *server, struct sl_http_call *call,
                           const char *coding)
{
    const bool accepts = server->handler->accepts_codings;
    const int err = accepts ? sl_inflate_create(coding, &call->inflate) : SL_ERR_UNSUPPORTED;
    call->body_bytes = SL_HTTP_UNKNOWN_BYTES;
    if (err == SL_ERR_NO_MEMORY) {
        sl_http_call_reply_error(call, 503, "no memory to decode the body");
    } else if (err != 0) {
        sl_http_call_reply_error(call, 415, "Content-Encoding: %.32s is not accepted%s", coding,
                                 accepts ? ": gzip and deflate are" : "");
    }
}

/* Whether the handler gets the call; else replies. */
static bool check_head(const struct sl_http_server *server, struct sl_http_call *call,
                       const struct head *head, const char *method)
{
    const size_t head_bytes =
        MHD_get_connection_info(call->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)
            ->header_size;
    const bool posts = server->handler->accepts_post;
    if (!is_framing_clear(head)) {
        sl_reply_header(&call->reply, "Connection", "close");
        sl_http_call_reply_error(call, 400,
                                 "the body has two lengths, or a Content-Length and a "
                                 "Transfer-Encoding: one of them is accepted");
    } else if (call->is_too_long) {
        sl_http_call_reply_error(call, 414, "the URL is too long: less than %d bytes are accepted",
                                 TARGET_BYTES_MAX);
    } else if (head_bytes > HEADERS_BYTES_MAX) {
        sl_http_call_reply_error(call, 431,
                                 "the headers are too long: at most %u bytes are accepted",
                                 HEADERS_BYTES_MAX);
    } else if (!check_caller(server, call, head)) {
        /* replied */
    } else if (!(call->is_post && posts) && strcmp(method, "GET") != 0 &&
               strcmp(method, "HEAD") != 0) {
        sl_reply_header(&call->reply, "Allow", posts ? "GET, HEAD, POST" : "GET, HEAD");
        sl_http_call_reply_error(call, 405, "method %.16s: %s are accepted", method,
                                 posts ? "GET, HEAD and POST" : "GET and HEAD");
    } else if (head->values[CODING] != NULL && strcasecmp(head->values[CODING], "identity") != 0) {
        begin_decoding(server, call, head->values[CODING]);
    }
    return call->reply.status == 0;
}

static void reply_too_large(struct sl_http_call *call)
{
    sl_http_call_reply_error(call, 413, "the body is too large: at most %llu bytes are accepted",
                             (unsigned long long)call->body_bytes_max);
}

static void reply_undecoded(struct sl_http_call *call)
{
    sl_http_call_reply_error(call, 400,
                             "the body is damaged, cut short or not of its Content-Encoding");
}

static uint64_t discarded_max(const struct sl_http_call *call)
{
    const uint64_t most = DISCARDED * call->body_bytes_max;
    return most > DISCARDED_LEAST ? most : DISCARDED_LEAST;
}

static enum MHD_Result begin(struct sl_http_server *server, struct sl_http_call *call,
                             const char *path, const char *method)
{
    struct head head = {0};
    (void)MHD_get_connection_values(call->connection, MHD_HEADER_KIND, server_take_header, &head);
    const char *length = head.values[LENGTH];
    server->call_count++;
    call->state = SL_HTTP_CALL_BODY;
    call->path = path;
    call->is_post = strcmp(method, "POST") == 0;
    call->begun_ns = sl_reactor_now_ns(server->reactor);
    call->body_bytes_max = server->handler->body_bytes_max;
    call->body_bytes = head.values[TRANSFER] != NULL ? SL_HTTP_UNKNOWN_BYTES : 0;
    if (length != NULL) { /* libmicrohttpd has checked that it is a number */
        const uint64_t bytes = strtoull(length, NULL, 10);
        call->body_bytes = bytes < SL_HTTP_UNKNOWN_BYTES ? bytes : SL_HTTP_UNKNOWN_BYTES - 1;
    }
    const uint64_t announced = call->body_bytes; /* not decoded */
    server_wait(server, server_peer_of(call->connection), 0);
    if (check_head(server, call, &head, method) && server->handler->begin != NULL) {
        server->handler->begin(server->ctx, call);
    }
    const bool is_large = announced != SL_HTTP_UNKNOWN_BYTES && announced > call->body_bytes_max;
    if (call->reply.status == 0 && is_large) {
        reply_too_large(call);
    }
    /* A reply before the end of the body ends the connection, and may get lost. */
    const bool is_early = head.values[EXPECT] != NULL || !is_framing_clear(&head) ||
                          (is_large && announced > discarded_max(call));
    return call->reply.status != 0 && is_early ? send_reply(server, call) : MHD_YES;
}

/* ---- a body ---- */

/* Passes on a piece of the body, decoded. False: replied. */
static bool server_put(void *ctx, const void *piece, size_t bytes)
{
    struct sl_http_call *call = ctx;
    const struct sl_http_server *server = call->server;
    call->received_bytes += bytes;
    if (call->received_bytes > call->body_bytes_max) { /* in chunks, or compressed */
        reply_too_large(call);
    } else {
        server->handler->receive(server->ctx, call, piece, bytes);
    }
    return call->reply.status == 0;
}

/* A piece of the body has arrived. MHD_NO: closes the connection. */
static enum MHD_Result receive(struct sl_http_server *server, struct sl_http_call *call,
                               const char *piece, size_t bytes)
{
    struct peer *peer = server_peer_of(call->connection);
    peer->bytes += bytes;
    if (peer->bytes > discarded_max(call)) {
        return MHD_NO;
    }
    if (call->reply.status == 0 && call->inflate == NULL) {
        (void)server_put(call, piece, bytes);
    } else if (call->reply.status == 0 &&
               sl_inflate_take(call->inflate, piece, bytes, server_put, call) == SL_ERR_INVALID) {
        reply_undecoded(call);
    }
    return MHD_YES;
}

/* libmicrohttpd calls this with a head, with each piece of the body, at its end, and once the
 * connection has been resumed. */
static enum MHD_Result server_on_request(void *ctx, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *piece, size_t *piece_bytes, void **context)
{
    struct sl_http_server *server = ctx;
    struct sl_http_call *call = *context;
    struct peer *peer = server_peer_of(connection);
    if (call == NULL || peer == NULL || (server->is_ending && call->reply.status == 0)) {
        return MHD_NO;
    }
    if (call->state == SL_HTTP_CALL_HEAD) {
        return begin(server, call, url, method);
    }
    if (*piece_bytes > 0) {
        const size_t bytes = *piece_bytes;
        *piece_bytes = 0;
        return receive(server, call, piece, bytes);
    }
    if (call->state == SL_HTTP_CALL_BODY) {
        call->state = SL_HTTP_CALL_COMPLETE;
        if (call->reply.status == 0 && call->inflate != NULL &&
            !sl_inflate_is_complete(call->inflate)) {
            reply_undecoded(call);
        } else if (call->reply.status == 0) {
            server->handler->end(server->ctx, call);
        }
    }
    if (call->reply.status == 0) {
        call->state = SL_HTTP_CALL_SUSPENDED;
        peer->is_suspended = true;
        MHD_suspend_connection(connection);
        return MHD_YES;
    }
    return send_reply(server, call);
}

/* ---- the loop ---- */

static bool server_take(void *ctx, int fd, const struct sockaddr_storage *address,
                        socklen_t address_bytes)
{
    struct sl_http_server *server = ctx;
    if (server->peer_count >= server->handler->connections_max) {
        return false;
    }
    /* Closes the descriptor if it fails. */
    (void)MHD_add_connection(server->daemon, fd, (const struct sockaddr *)address, address_bytes);
    return true;
}

static void server_run(struct sl_http_server *server)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool is_waiting = true;
    for (uint32_t i = 0; i < RUNS_MAX && is_waiting && ms == 0; i++) { /* 0: there is more work */
        (void)MHD_run(server->daemon);
        is_waiting = MHD_get_timeout(server->daemon, &ms) == MHD_YES;
    }
    if (is_waiting) {
        sl_reactor_arm(server->reactor, &server->run, ms * SL_CLOCK_NS_PER_MS);
    } else {
        sl_reactor_disarm(server->reactor, &server->run);
    }
}

static void server_on_readable(struct sl_ring_watch *watch)
{
    server_run(SL_CONTAINER_OF(watch, struct sl_http_server, connections));
}

static void server_on_acceptable(struct sl_ring_watch *watch)
{
    struct sl_http_server *server = SL_CONTAINER_OF(watch, struct sl_http_server, accepting);
    server_run(server); /* connections that have ended make room */
    sl_http_listener_run(&server->listener, server_take, server,
                         sl_reactor_now_ns(server->reactor));
}

static void server_on_run(struct sl_timer *timer, uint64_t now_ns)
{
    server_run(SL_CONTAINER_OF(timer, struct sl_http_server, run));
}

static void server_on_sweep(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_http_server *server = SL_CONTAINER_OF(timer, struct sl_http_server, sweep);
    sweep_peers(server, now_ns);
    sl_http_listener_sweep(&server->listener, now_ns);
    sl_reactor_arm(server->reactor, &server->sweep, SWEEP_NS);
}

void sl_http_server_attach(struct sl_http_server *server, struct sl_reactor *reactor)
{
    struct sl_ring *ring = sl_reactor_ring(reactor);
    const int epoll = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    sl_reactor_assert_owner(reactor);
    server->reactor = reactor;
    server->run.run = server_on_run;
    server->sweep.run = server_on_sweep;
    sl_ring_watch_level(ring, &server->connections, epoll, server_on_readable);
    sl_ring_watch_level(ring, &server->accepting, server->listener.epoll, server_on_acceptable);
    sl_reactor_arm(reactor, &server->sweep, SWEEP_NS);
}

static void server_detach(struct sl_http_server *server)
{
    sl_reactor_assert_owner(server->reactor);
    (void)MHD_run(server->daemon); /* resumes what was replied to */
    sl_ring_watch_end(&server->connections);
    sl_ring_watch_end(&server->accepting);
    sl_reactor_disarm(server->reactor, &server->run);
    sl_reactor_disarm(server->reactor, &server->sweep);
}

/* ---- start and end ---- */

static void erase_pem(char **pem)
{
    if (*pem != NULL) {
        explicit_bzero(*pem, PEM_BYTES_MAX);
        free(*pem);
        *pem = NULL;
    }
}

/* Reads a PEM file into *out, allocated; erase_pem frees it. */
static int read_pem(const char *path, char **out, struct sl_reason *reason)
{
    char *text = calloc(1, PEM_BYTES_MAX);
    FILE *file = text != NULL ? fopen(path, "re") : NULL;
    const size_t bytes = file != NULL ? fread(text, 1, PEM_BYTES_MAX, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (bytes == 0 || bytes == PEM_BYTES_MAX) {
        erase_pem(&text);
        return sl_reason_fail(reason, SL_ERR_IO, "%s cannot be read, is empty, or is too long",
                              path);
    }
    *out = text;
    return 0;
}

static int start(struct sl_http_server *server, const struct sl_http_listen *listen,
                 struct sl_reason *reason)
{
    struct MHD_OptionItem tls[3] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;
    char *certificate = NULL, *key = NULL;
    if (listen->key != NULL) {
        if (read_pem(listen->certificate, &certificate, reason) != 0 ||
            read_pem(listen->key, &key, reason) != 0) {
            erase_pem(&certificate);
            return SL_ERR_INVALID;
        }
        flags |= MHD_USE_TLS;
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, certificate};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, key};
    }
    server->listener.is_tls = listen->key != NULL;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, server_on_request, server, MHD_OPTION_NOTIFY_CONNECTION,
        server_on_connection, server, MHD_OPTION_NOTIFY_COMPLETED, server_on_completed, server,
        MHD_OPTION_URI_LOG_CALLBACK, server_on_target, server, MHD_OPTION_CONNECTION_LIMIT,
        server->handler->connections_max, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    erase_pem(&certificate); /* libmicrohttpd has parsed them */
    erase_pem(&key);
    if (server->daemon != NULL) {
        return 0;
    }
    return listen->key == NULL
               ? sl_reason_fail(reason, SL_ERR_IO, "%s: HTTP cannot be started", listen->source)
               : sl_reason_fail(reason, SL_ERR_INVALID,
                                "%s: HTTP cannot be started: is %s the key of %s?", listen->source,
                                listen->key, listen->certificate);
}

int sl_http_server_create(const struct sl_http_listen *listen,
                          const struct sl_http_handler *handler, void *ctx,
                          struct sl_http_server **out, struct sl_reason *reason)
{
    struct sl_http_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for HTTP");
    }
    server->handler = handler;
    server->ctx = ctx;
    server->token = listen->token;
    memcpy(server->host, listen->endpoint.host, sizeof server->host);
    sl_list_init(&server->peers);
    int err = sl_http_listener_open(&server->listener, &listen->endpoint, listen->source, reason);
    if (err != 0 && err != SL_ERR_IN_USE && listen->is_default) { /* a network without loopback */
        sl_log_warn("HTTP is off: %s", reason->text);
        free(server);
        *out = NULL;
        return 0;
    }
    err = err != 0 ? err : start(server, listen, reason);
    if (err != 0) {
        sl_http_server_destroy(&server);
        return err;
    }
    *out = server;
    return 0;
}

void sl_http_server_destroy(struct sl_http_server **to_destroy)
{
    struct sl_http_server *server = *to_destroy;
    if (server == NULL) {
        return;
    }
    server->is_ending = true; /* a request that comes now is not begun */
    if (server->reactor != NULL) {
        server_detach(server);
    }
    if (server->daemon != NULL) {
        MHD_stop_daemon(server->daemon);
    }
    sl_http_listener_close(&server->listener);
    sl_assert(server->call_count == 0);
    free(server);
    *to_destroy = NULL;
}

uint16_t sl_http_server_port(const struct sl_http_server *server)
{
    return server->listener.bound.port;
}

void sl_http_server_quiesce(struct sl_http_server *server)
{
    sl_http_listener_quiesce(&server->listener);
}

uint32_t sl_http_server_call_count(const struct sl_http_server *server)
{
    return server->call_count;
}
