/* An HTTP server on a reactor, by libmicrohttpd, which has no thread of its own: its epoll
 * descriptor is watched by the reactor's ring. A handler gets calls (requests and their replies),
 * and may reply later: the connection is suspended meanwhile.
 *
 * Owner: the reactor. Limits: SL_HTTP_CONNECTIONS_MAX; a peer has 10 s, and 1 s more for each MiB,
 * to send a head, to send a body, and to take a reply. Else its connection is closed. Beyond
 * loopback callers show a token, unless the user allows otherwise. */
#ifndef SL_SERVE_HTTP_H
#define SL_SERVE_HTTP_H

#include <stdbool.h>

#include "config/cli.h"
#include "core/endpoint.h"
#include "core/reason.h"
#include "core/secret.h"

#define SL_HTTP_CONNECTIONS_MAX 1024
#define SL_HTTP_UNKNOWN_BYTES   UINT64_MAX

struct MHD_Connection;
struct sl_serve_http;
struct sl_reactor;

/* Flags and files, read before start. */
struct sl_serve_http_flags {
    const char *address; /* "host:port"; port 0: a free one */
    const char *token_file;
    const char *certificate, *key; /* files */
};

#define SL_HTTP_OPTIONS(flags)                                                                     \
    SL_CLI_OPTION(STRING, &(flags)->address, .name = "http", .metavar = "HOST:PORT",               \
                  .preset = "127.0.0.1:8080", .help = "Address for HTTP. Port 0: any free port."), \
        SL_CLI_OPTION(STRING, &(flags)->token_file, .name = "http-token-file", .metavar = "FILE",  \
                      .help = "Token, 16 to 1024 bytes, that HTTP callers show (Authorization: "   \
                              "Bearer). Needed beyond loopback, unless --insecure is given."),     \
        SL_CLI_OPTION(STRING, &(flags)->certificate, .name = "http-tls-cert", .metavar = "FILE",   \
                      .help = "Certificate for HTTPS, PEM. Needs --http-tls-key."),                \
        SL_CLI_OPTION(STRING, &(flags)->key, .name = "http-tls-key", .metavar = "FILE",            \
                      .help = "Its key, PEM.")

struct sl_serve_http_settings {
    struct sl_endpoint endpoint;
    struct sl_secret token;  /* byte_count 0: none is asked for */
    char *certificate, *key; /* PEM; NULL: no TLS */
};

/* Checks the address, and reads token, certificate and key. The caller frees with fini. Errors:
 * INVALID (also: beyond loopback without a token, and not is_insecure), NOT_FOUND, IO. */
int sl_serve_http_settings_resolve(const struct sl_serve_http_flags *flags, bool is_insecure,
                                   struct sl_serve_http_settings *out, struct sl_reason *reason);
void sl_serve_http_settings_fini(struct sl_serve_http_settings *settings);

struct sl_serve_http_header {
    const char *name; /* static storage; NULL: none */
    char value[40];
};

/* A request and its reply; the first member of the handler's struct. */
struct sl_serve_http_call {
    const char *path;        /* without query; %XX is decoded */
    bool is_post;            /* else GET or HEAD */
    uint64_t begun_ns;       /* when its head was complete */
    uint64_t body_bytes;     /* as announced, or SL_HTTP_UNKNOWN_BYTES */
    uint64_t body_bytes_max; /* that are accepted: the handler's, or less, as its `begin` says */
    /* Private */
    struct sl_serve_http *http;
    struct MHD_Connection *connection;
    bool is_complete, is_suspended;
    uint32_t status; /* 0: no reply yet */
    const char *type;
    char *body;
    size_t reply_bytes;
    struct sl_serve_http_header headers[2];
};

struct sl_serve_http_handler {
    size_t call_bytes;       /* of its struct, which is zeroed */
    uint64_t body_bytes_max; /* of any call */
    /* The head is there; a reply is possible from now on. */
    void (*begin)(void *ctx, struct sl_serve_http_call *call);
    /* A piece of the body; not after a reply. */
    void (*receive)(void *ctx, struct sl_serve_http_call *call, const void *piece, size_t bytes);
    /* The body is complete: replies now or later. Not after a reply. */
    void (*end)(void *ctx, struct sl_serve_http_call *call);
    /* The reply has left, or the connection has ended. */
    void (*free)(void *ctx, struct sl_serve_http_call *call);
};

/* Listens. On the reactor; settings are copied but for the token. Errors: IN_USE, NOT_FOUND (the
 * address), INVALID (certificate or key), NO_MEMORY, IO. */
int sl_serve_http_create(struct sl_reactor *reactor, const struct sl_serve_http_settings *settings,
                         const struct sl_serve_http_handler *handler, void *ctx,
                         struct sl_serve_http **out, struct sl_reason *reason);

/* Ends all connections; every call was replied to. On the reactor. Nulls *http. */
void sl_serve_http_destroy(struct sl_serve_http **http);

uint16_t sl_serve_http_port(const struct sl_serve_http *http);

/* Accepts no connections any more. */
void sl_serve_http_quiesce(struct sl_serve_http *http);

/* Calls that have not been freed. */
uint32_t sl_serve_http_call_count(const struct sl_serve_http *http);

/* The time of the server's reactor. */
uint64_t sl_serve_http_now_ns(const struct sl_serve_http_call *call);

/* NULL: the request has no such header. */
const char *sl_serve_http_header(const struct sl_serve_http_call *call, const char *name);

/* Adds a header to the reply: at most two, before it. */
void sl_serve_http_add_header(struct sl_serve_http_call *call, const char *name, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));

/* Replies, once. body: allocated, owned by the call from now on; NULL: empty. type: static. */
void sl_serve_http_reply(struct sl_serve_http_call *call, uint32_t status, const char *type,
                         char *body, size_t bytes);

/* Replies {"error": text}. */
void sl_serve_http_reply_error(struct sl_serve_http_call *call, uint32_t status, const char *format,
                               ...) __attribute__((format(printf, 3, 4)));

#endif
