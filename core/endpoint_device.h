/* Parses the description of a DPDK device, with its address in the network:
 *
 *   DEVICE[,ARGUMENTS]?addr=A[/PREFIX][&gateway=G][&mtu=N][&queues=N]
 *
 * DEVICE is a name of DPDK's EAL, such as 0000:3b:00.0 or net_memif0. With ARGUMENTS the device is
 * created, as with --vdev. Any thread; no allocation. */
#ifndef SL_CORE_ENDPOINT_DEVICE_H
#define SL_CORE_ENDPOINT_DEVICE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/reason.h"

struct sl_endpoint_device {
    char name[64];
    char arguments[SL_LIMIT_ENDPOINT_BYTES];        /* "": the device exists already */
    char address[INET6_ADDRSTRLEN + sizeof "/128"]; /* with the prefix, if given */
    char host[INET6_ADDRSTRLEN];                    /* the address without the prefix */
    char gateway[INET6_ADDRSTRLEN];                 /* "": none; else of the family of address */
    uint16_t mtu;                                   /* bytes, 576 to 9600; 0: not given */
    uint16_t queues;                                /* 1 to 1024; 0: not given */
    uint16_t port;                                  /* of an endpoint; 0: any */
};

/* Parses one device. with_port: an endpoint, which requires &port=P too. On error returns INVALID
 * and writes the cause and the accepted form to reason. */
int sl_endpoint_device_parse(const char *text, bool with_port, struct sl_endpoint_device *out,
                             struct sl_reason *reason);

/* Parses the next device of a list separated by ";" and advances *text past it. Returns 1, 0 at the
 * end, or INVALID. */
int sl_endpoint_device_next(const char **text, struct sl_endpoint_device *out,
                            struct sl_reason *reason);

#endif
