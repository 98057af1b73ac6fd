/* The shared secret of a cluster, in memory. config reads it from a file; net/session/auth.c proves
 * that both ends of a connection have it. Plain data; any thread reads. */
#ifndef SL_CORE_SECRET_H
#define SL_CORE_SECRET_H

#include <stdint.h>

#define SL_SECRET_BYTES_MIN 16
#define SL_SECRET_BYTES_MAX 1024

struct sl_secret {
    uint32_t byte_count; /* 0: no secret */
    uint8_t bytes[SL_SECRET_BYTES_MAX];
};

#endif
