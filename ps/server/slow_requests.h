/* Slow requests: the last requests that took longer than a threshold, with the time of each phase.
 * Times are the starts of turns: a request counts from the start of the turn in which it arrived,
 * and what it does within one turn takes no time. A request that is answered in the turn in which
 * it arrived is slow if that turn is; the entry is then of the most expensive one. Owner reactor.
 * Allocates nothing. */
#ifndef SL_PS_SERVER_SLOW_REQUESTS_H
#define SL_PS_SERVER_SLOW_REQUESTS_H

#include "net/wire/request.h"
#include "ps/shard/shard.h"

#define SL_SERVER_SLOW_REQUESTS 128 /* kept */

struct sl_server;
struct sl_server_request;

/* The times of a request that is not answered in the turn in which it arrived. */
struct sl_server_timing {
    uint64_t arrived_ns; /* 0: not a request of a client */
    uint64_t since_ns;   /* when the phase began */
    uint64_t ns[SL_REQUEST_PHASES];
    enum sl_request_phase phase;
};

/* Begins another phase, or continues the present one. */
static inline void sl_server_timing_enter(struct sl_server_timing *timing,
                                          enum sl_request_phase phase, uint64_t now_ns)
{
    timing->ns[timing->phase] += now_ns - timing->since_ns;
    timing->since_ns = now_ns;
    timing->phase = phase;
}

struct sl_server_slow_request {
    uint64_t ended_ns; /* by the reactor's clock */
    uint64_t total_ns;
    uint64_t ns[SL_REQUEST_PHASES];
    struct sl_shard_client client;
    struct sl_shard_main_section section; /* the most expensive one */
    char table[SL_TABLE_NAME_BYTES];      /* "": a tick only */
};

struct sl_server_slow_requests {
    uint64_t count;                                                  /* of entries, ever */
    struct sl_server_slow_request requests[SL_SERVER_SLOW_REQUESTS]; /* n is at n % REQUESTS */

    /* Of this turn: the most expensive request that was answered at once; cost 0: none. */
    struct sl_shard_client client;
    struct sl_shard_main_section section;
};

/* Notes a request that was answered in the turn in which it arrived. */
static inline void sl_server_slow_requests_see(struct sl_server_slow_requests *slow,
                                               struct sl_shard_client client,
                                               struct sl_shard_main_section section)
{
    if (section.cost > slow->section.cost) {
        slow->client = client;
        slow->section = section;
    }
}

/* Ends a request that was queued. */
void sl_server_slow_requests_end(const struct sl_server_request *request);

/* Ends the turn; now_ns: a fresh reading of the clock if it has answered requests. */
void sl_server_slow_requests_end_turn(struct sl_server *server, uint64_t now_ns);

#endif
