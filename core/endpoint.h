/* An endpoint is the address of a peer: "scheme://host:port". dpdk also accepts
 * "dpdk://DEVICE?addr=HOST&port=PORT" (core/endpoint_device.h), with which a listener names its
 * device. Any thread; no allocation. */
#ifndef SL_CORE_ENDPOINT_H
#define SL_CORE_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/limits.h"
#include "core/reason.h"

enum sl_endpoint_scheme {
    SL_ENDPOINT_TCP,
    SL_ENDPOINT_SHM,
    SL_ENDPOINT_RDMA,
    SL_ENDPOINT_DPDK,
};

struct sl_endpoint {
    enum sl_endpoint_scheme scheme;
    uint16_t port;                      /* 0: any free port, for a listener */
    char host[SL_LIMIT_ENDPOINT_BYTES]; /* name, or IPv4 or IPv6 address without brackets */
    /* The host name that `host`, an address, was resolved from: certificates are checked against
     * it. "": none. Neither parsed nor formatted. */
    char name[SL_LIMIT_ENDPOINT_BYTES];
    /* The local device; "": any. dpdk: a listener's, the text behind "dpdk://" if it names one.
     * tcp: the numeric address of this host that a connect comes from. Not formatted. */
    char device[SL_LIMIT_ENDPOINT_BYTES];
};

/* Parses "host:port", "[v6]:port", both with an optional "scheme://" (default tcp), or the dpdk
 * form above. On error returns INVALID and writes the cause and the accepted forms to
 * reason. */
int sl_endpoint_parse(const char *text, struct sl_endpoint *out, struct sl_reason *reason);

/* "TCP", "shared memory", "RDMA" or "DPDK", for messages. Static storage. */
const char *sl_endpoint_scheme_name(enum sl_endpoint_scheme scheme);

/* Writes "scheme://host:port", IPv6 in brackets, to text[text_bytes]; truncates if needed. */
void sl_endpoint_format(const struct sl_endpoint *endpoint, char *text, size_t text_bytes);

/* Compares scheme, host and port as text: resolves no names, ignores `name` and `device`. */
bool sl_endpoint_same(const struct sl_endpoint *a, const struct sl_endpoint *b);

/* Returns true for 127.0.0.0/8, ::1 and localhost: only this machine reaches the endpoint. */
bool sl_endpoint_is_loopback(const struct sl_endpoint *endpoint);

/* Returns true for 0.0.0.0 and :: in any notation: all addresses of this host. Peers cannot connect
 * to it. */
bool sl_endpoint_is_any(const struct sl_endpoint *endpoint);

/* Resolves the host to a socket address. Blocks on DNS for names: call before start or on a thread
 * that may block. `passive`: an address to listen on. Errors: NOT_FOUND with the reason. */
int sl_endpoint_resolve(const struct sl_endpoint *endpoint, bool passive,
                        struct sockaddr_storage *out, socklen_t *out_bytes,
                        struct sl_reason *reason);

/* Writes the numeric form of a socket address to *out, scheme tcp. Errors: INVALID if it is neither
 * IPv4 nor IPv6. */
int sl_endpoint_from_sockaddr(const struct sockaddr_storage *address, struct sl_endpoint *out);

#endif
