/* A cluster's shared secret, as bytes in memory: config reads it from a file, net/auth proves that
 * both ends of a connection have it. Plain data; any thread reads. */
#ifndef SL_CORE_SECRET_H
#define SL_CORE_SECRET_H

#include <stdint.h>

#define SL_SECRET_BYTES_MIN 16
#define SL_SECRET_BYTES_MAX 1024

struct sl_secret {
    uint32_t byte_count; /* 0: the cluster has none */
    uint8_t bytes[SL_SECRET_BYTES_MAX];
};

#endif
