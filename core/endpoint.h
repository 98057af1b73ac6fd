/* An endpoint: how a peer is reached, "scheme://host:port". Of dpdk also
 * "dpdk://DEVICE?addr=HOST&port=PORT" (core/endpoint_device.h), by which who listens there says
 * with what device. Any thread; no allocation. */
#ifndef SL_CORE_ENDPOINT_H
#define SL_CORE_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/limits.h"

enum sl_endpoint_scheme {
    SL_ENDPOINT_TCP,
    SL_ENDPOINT_SHM,
    SL_ENDPOINT_RDMA,
    SL_ENDPOINT_DPDK,
};

struct sl_endpoint {
    enum sl_endpoint_scheme scheme;
    uint16_t port;                      /* 0: any free port, where one listens */
    char host[SL_LIMIT_ENDPOINT_BYTES]; /* name, IPv4 or IPv6 address, without brackets */
    /* The name that the host, an address, was looked up from: a certificate is for that. "": none.
     * Neither parsed nor written. */
    char name[SL_LIMIT_ENDPOINT_BYTES];
    /* dpdk: what stood behind "dpdk://", where that named a device. Nobody else's concern, and so
     * not written. "": it named none. */
    char device[SL_LIMIT_ENDPOINT_BYTES];
};

/* Parses "host:port", "[v6]:port" or "scheme://" before either; no scheme means tcp. Or what dpdk
 * has. On error writes what is wrong and what is accepted into reason[reason_bytes] and returns
 * INVALID. */
int sl_endpoint_parse(const char *text, struct sl_endpoint *out, char *reason, size_t reason_bytes);

/* "TCP", "shared memory", "RDMA", "DPDK": as sentences have it. Static storage. */
const char *sl_endpoint_scheme_name(enum sl_endpoint_scheme scheme);

/* Writes "scheme://host:port", IPv6 in brackets, into text[text_bytes], cut if need be. */
void sl_endpoint_format(const struct sl_endpoint *endpoint, char *text, size_t text_bytes);

/* Both lead to the same place, as they are written: names are not looked up, and what a host was
 * looked up from does not count. */
bool sl_endpoint_same(const struct sl_endpoint *a, const struct sl_endpoint *b);

/* Resolves the host to a socket address; blocks on DNS for names: before start, or on a thread that
 * may wait. `passive` for an address to listen on. Errors: NOT_FOUND with the reason. */
int sl_endpoint_resolve(const struct sl_endpoint *endpoint, bool passive,
                        struct sockaddr_storage *out, socklen_t *out_bytes, char *reason,
                        size_t reason_bytes);

/* Writes the numeric form of a socket address into *out, scheme tcp. Errors: INVALID when it is
 * neither IPv4 nor IPv6. */
int sl_endpoint_from_sockaddr(const struct sockaddr_storage *address, struct sl_endpoint *out);

#endif
