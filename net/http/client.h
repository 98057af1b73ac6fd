/* HTTP sends one request to a server with libcurl, and blocks for the answer. Variables that name a
 * proxy (http_proxy) are ignored, redirections are not followed, and the answer is limited in time
 * and size. One thread at a time. Allocates. */
#ifndef SL_NET_HTTP_CLIENT_H
#define SL_NET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

enum sl_http_method { SL_HTTP_GET, SL_HTTP_PUT, SL_HTTP_POST, SL_HTTP_DELETE };

struct sl_http_client_options {
    bool tls;              /* https only; else http only */
    const char *authority; /* file names, used only with tls; NULL: the system's, or none */
    const char *certificate;
    const char *key;
    size_t body_bytes_max; /* of an answer */
    uint32_t connect_ms;   /* limit for a connection and its TLS handshake; 0: only the request's */
};

struct sl_http_request {
    enum sl_http_method method;
    const char *url;
    const char *body; /* PUT, POST: JSON */
    size_t body_bytes;
    const char *authorization; /* value of the header; NULL or "": none */
    uint64_t timeout_ms;       /* > 0 */
};

struct sl_http_answer {
    long status;
    const char *body; /* valid until the next exchange */
    size_t body_bytes;
    const char *redirection; /* URL, as long as body; NULL: the server does not redirect */
};

struct sl_http_client;

/* The file names are used until destroy; they stay the caller's. Errors: NO_MEMORY. The first call
 * of a process must come before other threads start. */
int sl_http_client_create(const struct sl_http_client_options *options,
                          struct sl_http_client **out);
void sl_http_client_destroy(struct sl_http_client **http);

/* Errors, with sl_http_client_error: DEADLINE, IO, TOO_LARGE, NO_MEMORY. */
int sl_http_client_exchange(struct sl_http_client *http, const struct sl_http_request *request,
                            struct sl_http_answer *answer);

/* Why the last exchange failed. */
const char *sl_http_client_error(const struct sl_http_client *http);

#endif
