/* Finds silent peers. One timer of a transport visits every connection SL_LIVENESS_ROUNDS times
 * within a time limit, a part of the connections in each turn. The transport's `visit` decides what
 * the peer owes; struct sl_silence measures for how long that has not come. Owner reactor. */
#ifndef SL_NET_BASE_LIVENESS_H
#define SL_NET_BASE_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"
#include "net/transport.h"

#define SL_LIVENESS_ROUNDS 4 /* a passed limit is noticed at most a quarter of it late */

/* Visits the connection of the link. It may mark the connection as ended, but not remove it. */
typedef void sl_liveness_visit_fn(struct sl_list_link *link, uint64_t now_ns);

struct sl_liveness {
    struct sl_reactor *reactor;
    sl_liveness_visit_fn *visit;
    struct sl_list conns; /* links of all connections */
    uint32_t conn_count;
    uint32_t rounds;       /* begun; wraps */
    uint32_t left;         /* connections that the current round has yet to visit */
    uint64_t begun_ns;     /* start of the current round, or of the last one */
    uint64_t round_ns;     /* from one round to the next */
    struct sl_timer timer; /* armed while there are connections */
};

/* How long the peer of a new connection may take for its handshake. */
uint64_t sl_liveness_handshake_ns(const struct sl_transport *transport);

/* limit_ns: the shortest limit that `visit` uses. */
void sl_liveness_init(struct sl_liveness *liveness, struct sl_reactor *reactor, uint64_t limit_ns,
                      sl_liveness_visit_fn *visit);
void sl_liveness_fini(struct sl_liveness *liveness);

void sl_liveness_add(struct sl_liveness *liveness, struct sl_list_link *link);
void sl_liveness_remove(struct sl_liveness *liveness, struct sl_list_link *link);

/* The time without progress of one peer. */
struct sl_silence {
    uint64_t since_ns; /* the last progress */
    uint32_t rounds;   /* visits since then */
};

/* There was progress, or nothing is owed. */
static inline void sl_silence_restart(struct sl_silence *silence, uint64_t now_ns)
{
    *silence = (struct sl_silence){.since_ns = now_ns};
}

/* Counts a visit without progress. Returns whether there was none for limit_ns and for as many
 * visits as fit in a limit: while this thread was stopped, the peer may have sent everything. */
static inline bool sl_silence_lasts(struct sl_silence *silence, uint64_t now_ns, uint64_t limit_ns)
{
    return ++silence->rounds >= SL_LIVENESS_ROUNDS && now_ns - silence->since_ns >= limit_ns;
}

#endif
