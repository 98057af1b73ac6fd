/* Backoff chooses the pauses before a peer or a store is asked again. The first pause is any part
 * of `least_ns`, so that the clients of a server, which lose it at one moment, return spread over
 * that time. Then the limit doubles up to `most_ns`, and a pause lies between the last limit and
 * the next. At `most_ns` pauses are equal: the clients stay as evenly spread as they are by then.
 * Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: full jitter,
 * then equal jitter. Owner: any one thread. */
#ifndef SL_CORE_BACKOFF_H
#define SL_CORE_BACKOFF_H

#include <stdint.h>

/* Share of each client of a server in the time over which all of them return: 20 in 100 ms. */
#define SL_BACKOFF_CLIENT_MS 5

struct sl_backoff {
    uint64_t least_ns, most_ns; /* least_ns > 0; a most_ns below it counts as least_ns */
    uint64_t limit_ns;          /* of the last pause; 0: the next one is the first */
};

/* Returns the next pause. random: uniform, such as sl_reactor_random; 0: the longest pause. */
static inline uint64_t sl_backoff_next(struct sl_backoff *backoff, uint64_t random)
{
    const uint64_t least_ns = backoff->least_ns, last_ns = backoff->limit_ns;
    const uint64_t most_ns = backoff->most_ns > least_ns ? backoff->most_ns : least_ns;
    const uint64_t wish_ns = 2 * last_ns > least_ns ? 2 * last_ns : least_ns;
    backoff->limit_ns = wish_ns < most_ns ? wish_ns : most_ns;
    return backoff->limit_ns -
           (last_ns < backoff->limit_ns ? random % (backoff->limit_ns - last_ns) : 0);
}

/* After a success, or after another loss: the next pause is a first one. */
static inline void sl_backoff_reset(struct sl_backoff *backoff)
{
    backoff->limit_ns = 0;
}

/* Returns a least_ns, in ms, that spreads so many clients. */
static inline uint32_t sl_backoff_spread_ms(uint64_t clients, uint32_t most_ms)
{
    return clients < most_ms / SL_BACKOFF_CLIENT_MS ? (uint32_t)clients * SL_BACKOFF_CLIENT_MS
                                                    : most_ms;
}

#endif
