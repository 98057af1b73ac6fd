/* How long a turn has been. Its budget counts keys (SL_LIMIT_TURN_COST), and what a key costs is
 * not always the same: a row that is in no cache, beside another busy core, takes ten times as long
 * as a warm one, and a push that has to copy rows for a cut twice as long as otherwise. So a turn
 * that has taken long leaves larger requests to the next, which comes at once. Owner reactor; in a
 * stepped reactor no turn is ever long, since its clock stands still. */
#ifndef SL_PS_SERVER_TURN_H
#define SL_PS_SERVER_TURN_H

#include "ps/server/internal.h"

/* Behind this no request of so many keys begins: with one more of the longest that are not cut into
 * slices it is a millisecond, about. */
#define SL_SERVER_TURN_LONG_NS   (300 * SL_CLOCK_NS_PER_US)
#define SL_SERVER_TURN_LONG_KEYS 512

/* Reads the clock: not for every small request. */
static inline bool sl_server_turn_is_long(const struct sl_server *server)
{
    const struct sl_reactor *reactor = server->options.reactor;
    const uint64_t now_ns = sl_clock_now_ns(sl_reactor_clock(reactor));
    return now_ns - sl_reactor_now_ns(reactor) > SL_SERVER_TURN_LONG_NS;
}

/* What costs so many keys of the turn is left to the next one. */
static inline bool sl_server_turn_is_over(const struct sl_server *server, uint64_t cost)
{
    return cost > server->budget_left ||
           (cost >= SL_SERVER_TURN_LONG_KEYS && sl_server_turn_is_long(server));
}

/* This turn has answered enough; who waits for nothing but his turn comes first in the next. */
static inline bool sl_server_turn_is_enough(const struct sl_server *server)
{
    return server->crowded_count > 0 &&
           SL_LIMIT_TURN_COST - server->budget_left >= SL_SERVER_TURN_LONG_KEYS &&
           sl_server_turn_is_long(server);
}

#endif
