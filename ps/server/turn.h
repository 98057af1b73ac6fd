/* A server's work in each turn of its reactor, after the upcalls, and the limits of a turn.
 * The budget of a turn counts cost (SL_LIMIT_TURN_COST), but the time per unit varies: an uncached
 * row beside another busy core takes ten times as long as a cached one; a push that copies rows for
 * a snapshot twice as long as usual. So after a long time a turn leaves larger requests to the next
 * turn, which follows at once. Owner reactor. In a stepped reactor turns are never long, since its
 * clock stands still. */
#ifndef SL_PS_SERVER_TURN_H
#define SL_PS_SERVER_TURN_H

#include "ps/server/state.h"

/* After this time no request of at least this cost starts. With one more of the longest unsliced
 * requests, a turn lasts about a millisecond. */
#define SL_SERVER_TURN_LONG_NS   (300 * SL_CLOCK_NS_PER_US)
#define SL_SERVER_TURN_LONG_KEYS 512

/* Reads the clock: too slow for every small request. */
static inline bool sl_server_turn_is_long(const struct sl_server *server)
{
    const struct sl_reactor *reactor = server->options.reactor;
    const uint64_t now_ns = sl_clock_now_ns(sl_reactor_clock(reactor));
    return now_ns - sl_reactor_now_ns(reactor) > SL_SERVER_TURN_LONG_NS;
}

/* Returns true when work of this cost must wait for the next turn. */
static inline bool sl_server_turn_is_over(const struct sl_server *server, uint64_t cost)
{
    return cost > server->host->budget_left ||
           (cost >= SL_SERVER_TURN_LONG_KEYS && sl_server_turn_is_long(server));
}

/* Returns true when this turn has answered enough and runnable requests should come first in the
 * next one. */
static inline bool sl_server_turn_is_enough(const struct sl_server *server)
{
    return server->scheduler.crowded_count > 0 &&
           SL_LIMIT_TURN_COST - server->host->budget_left >= SL_SERVER_TURN_LONG_KEYS &&
           sl_server_turn_is_long(server);
}

/* Adds the reactor source that runs queued requests, snapshots and a restore; and removes it. */
void sl_server_turn_init(struct sl_server *server);
void sl_server_turn_fini(struct sl_server *server);

#endif
