/* A packet device as users write it, by its own name and by its address in its network:
 *
 *   DEVICE[,ARGUMENTS]?addr=A[/PREFIX][&gateway=G][&mtu=N][&queues=N]
 *
 * DEVICE is a name of DPDK's EAL, such as 0000:3b:00.0 or net_memif0; with ARGUMENTS it is made, as
 * by --vdev. Any thread; no allocation. */
#ifndef SL_CORE_ENDPOINT_DEVICE_H
#define SL_CORE_ENDPOINT_DEVICE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"

struct sl_endpoint_device {
    char name[64];
    char arguments[SL_LIMIT_ENDPOINT_BYTES];        /* "": it is there already */
    char address[INET6_ADDRSTRLEN + sizeof "/128"]; /* with the prefix, where there is one */
    char host[INET6_ADDRSTRLEN];                    /* without it */
    char gateway[INET6_ADDRSTRLEN];                 /* ""; else of the address's family */
    uint16_t mtu;                                   /* 0: not said */
    uint16_t queues;                                /* 0: not said */
    uint16_t port;                                  /* of an endpoint; 0: any */
};

/* with_port: an endpoint, which must say &port=P too. On error writes what is wrong, and what is
 * accepted, into reason. Errors: INVALID. */
int sl_endpoint_device_parse(const char *text, bool with_port, struct sl_endpoint_device *out,
                             char *reason, size_t reason_bytes);

/* Of a text with several, ";" between them, the next one; *text moves behind it. Returns 1, 0 at
 * the end, or INVALID. */
int sl_endpoint_device_next(const char **text, struct sl_endpoint_device *out, char *reason,
                            size_t reason_bytes);

#endif
