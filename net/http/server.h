/* An HTTP server by libmicrohttpd, which has no thread of its own: a reactor drives it. A handler
 * gets calls (requests and their replies). It may reply later: the connection is suspended
 * meanwhile.
 *
 * Before a handler sees a call, the server has checked it and replied if it refuses: the body has
 * one end (400), length of target and headers (414, 431), Host (421), token (401), method (405),
 * Content-Encoding (415). After `begin` it checks the length of the body, also once decoded (413).
 *
 * Owner: the reactor. Allocates for each connection and call. Limits: connections beyond the
 * handler's limit get 503. A peer has 10 s, and 1 s more for each MiB, to send a head, to send a
 * body, and to take a reply; else its connection is closed. */
#ifndef SL_NET_HTTP_SERVER_H
#define SL_NET_HTTP_SERVER_H

#include <stdbool.h>

#include "core/endpoint.h"
#include "core/reason.h"
#include "core/secret.h"
#include "net/http/reply.h"

#define SL_HTTP_UNKNOWN_BYTES UINT64_MAX

struct MHD_Connection;
struct sl_inflate;
struct sl_http_server;
struct sl_reactor;

/* Where a server listens, and which callers it accepts. */
struct sl_http_listen {
    struct sl_endpoint endpoint; /* TCP; port 0: a free one */
    const char *source;          /* the option as given, such as "--http=127.0.0.1:80" */
    bool is_default;             /* the user gave no address: HTTP is off if this one is missing */
    const struct sl_secret *token; /* that callers must show; of 0 bytes: none */
    const char *certificate, *key; /* PEM files; NULL: no TLS */
};

enum sl_http_call_state {
    SL_HTTP_CALL_HEAD, /* its first line has arrived */
    SL_HTTP_CALL_BODY,
    SL_HTTP_CALL_COMPLETE,
    SL_HTTP_CALL_SUSPENDED, /* complete, and waits for the reply */
};

/* A request and its reply; the first member of the handler's struct. */
struct sl_http_call {
    const char *path;        /* %XX is decoded */
    char *query;             /* behind "?", as received; NULL: none */
    bool is_post;            /* else GET or HEAD */
    uint64_t begun_ns;       /* when its head was complete */
    uint64_t body_bytes;     /* as announced, or SL_HTTP_UNKNOWN_BYTES: in chunks, or compressed */
    uint64_t body_bytes_max; /* that are accepted: the handler's, or less, as its `begin` says */
    struct sl_reply reply;
    /* Private */
    struct sl_http_server *server;
    struct MHD_Connection *connection;
    enum sl_http_call_state state;
    bool is_too_long;           /* the target */
    struct sl_inflate *inflate; /* of a body that is compressed; else NULL */
    uint64_t received_bytes;    /* of the body, decoded */
};

/* Functions may be NULL. */
struct sl_http_handler {
    uint32_t connections_max;
    size_t call_bytes;       /* of its struct, which is zeroed */
    uint64_t body_bytes_max; /* of any call */
    bool accepts_post;
    bool accepts_codings;        /* bodies with gzip and deflate, which it gets decoded */
    bool checks_host;            /* a Host header must name this server (host.h), or the caller show
                                    the token */
    uint32_t wrong_token_status; /* 401 or 403 */
    bool (*is_public)(void *ctx, const char *path); /* needs no token; NULL: no path is */
    /* The head is there; a reply is possible from now on. */
    void (*begin)(void *ctx, struct sl_http_call *call);
    /* A piece of the body, decoded; not after a reply. */
    void (*receive)(void *ctx, struct sl_http_call *call, const void *piece, size_t bytes);
    /* The body is complete: replies, now or later. Not after a reply. Not NULL. */
    void (*end)(void *ctx, struct sl_http_call *call);
    /* A reply leaves: may add headers to it. */
    void (*finish)(void *ctx, struct sl_http_call *call);
    /* The reply has left, or the connection has ended. */
    void (*free)(void *ctx, struct sl_http_call *call);
};

/* Listens. The token and the handler outlive the server. A default address that is not in use but
 * cannot be had is logged, and *out is NULL. Errors: IN_USE, NOT_FOUND (the address), INVALID
 * (certificate or key), NO_MEMORY, IO. Blocks on DNS for names. Any thread. */
int sl_http_server_create(const struct sl_http_listen *listen,
                          const struct sl_http_handler *handler, void *ctx,
                          struct sl_http_server **out, struct sl_reason *reason);

/* Begins to serve. Once, on the reactor. */
void sl_http_server_attach(struct sl_http_server *server, struct sl_reactor *reactor);

/* Ends all connections; every call was replied to. On the reactor, if it is attached. Nulls
 * *server, which may be NULL. */
void sl_http_server_destroy(struct sl_http_server **server);

uint16_t sl_http_server_port(const struct sl_http_server *server);

/* Accepts no connections any more. */
void sl_http_server_quiesce(struct sl_http_server *server);

/* Calls that have not been freed. */
uint32_t sl_http_server_call_count(const struct sl_http_server *server);

/* Returns a header of the request; NULL: it has none of this name. */
const char *sl_http_call_header(const struct sl_http_call *call, const char *name);

/* Replies, once; headers were added to call->reply before. body: allocated, owned by the call from
 * now on; NULL: empty. type: static. */
void sl_http_call_reply(struct sl_http_call *call, uint32_t status, const char *type, char *body,
                        size_t bytes);

/* Replies {"error": text}. */
void sl_http_call_reply_error(struct sl_http_call *call, uint32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
