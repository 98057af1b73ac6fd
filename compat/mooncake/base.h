/* An engine of Mooncake's C functions (include/transfer_engine_c.h): a struct sl_transfer, and what
 * these functions need beyond it: numbers for segments and batches, and registrations that overlap.
 *
 * Any thread. `lock` guards the segments and batches and is never held during a wait; `memory.lock`
 * guards the registrations and is held while they change. Limits: those of starling_transfer.h. */
#ifndef SL_COMPAT_MOONCAKE_BASE_H
#define SL_COMPAT_MOONCAKE_BASE_H

#include <pthread.h>
#include <starling_transfer.h>

#include "compat/mooncake/include/transfer_engine_c.h"

#define SL_MOONCAKE_WAIT_MS        5000 /* opening a segment, a notice, unregistering */

/* Results of functions: numbers of Mooncake's. */
#define SL_MOONCAKE_INVALID        (-1)
#define SL_MOONCAKE_TOO_MANY       (-2)
#define SL_MOONCAKE_NOT_REGISTERED (-3)
#define SL_MOONCAKE_BUSY           (-4)

struct sl_mooncake_peer;
struct sl_mooncake_batch;
struct sl_mooncake_claim;

/* A segment has its number for good: that of openSegment. */
struct sl_mooncake_segment {
    char name[SL_TRANSFER_NAME_BYTES];
    struct sl_mooncake_peer *peer; /* NULL: closed */
    uint32_t opens;                /* calls of openSegment without a closeSegment */
};

struct sl_mooncake_engine {
    struct sl_transfer *transfer; /* NULL: it could not be started anew */
    struct sl_transfer_options options;
    uint32_t timeout_ms;
    pthread_mutex_t lock;
    struct sl_mooncake_segment *segments;
    struct sl_mooncake_batch **batches; /* NULL: a free place */
    uint32_t segment_count, batch_count;
    uint64_t serial; /* of the batch made last */
    struct {
        pthread_mutex_t lock;
        struct sl_mooncake_claim *claims;
        uint32_t count;
    } memory;
};

/* The engine, if the handle is one that runs; else NULL, and a log line. */
struct sl_mooncake_engine *sl_mooncake_engine(transfer_engine_t handle, const char *function);

/* Milliseconds of the monotonic clock. */
uint64_t sl_mooncake_now_ms(void);

/* Writes a line to standard error: the function, and what has happened. Returns `code`. */
int sl_mooncake_fail(int code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
