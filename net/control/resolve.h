/* Host names looked up without making a reactor wait: each in a thread of its own, since the
 * system's resolver blocks for as long as it likes; the answer comes back through the reactor's
 * mailbox. Numeric addresses need none of this (sl_resolve_is_numeric). Owner reactor, stepped or
 * not; allocates. A thread that is still in the resolver outlives whoever asked, and its reactor,
 * without touching either. */
#ifndef SL_NET_CONTROL_RESOLVE_H
#define SL_NET_CONTROL_RESOLVE_H

#include "core/endpoint.h"
#include "core/err.h"
#include "reactor/reactor.h"

#define SL_RESOLVE_ADDRESSES 8  /* of one name that are looked at */
#define SL_RESOLVE_AT_ONCE   16 /* look-ups in a process, those that were given up included */

struct sl_resolve;

struct sl_resolve_found {
    int err; /* 0, NOT_FOUND, DEADLINE */
    uint32_t address_count;
    struct sl_endpoint addresses[SL_RESOLVE_ADDRESSES]; /* numeric, in the system's order */
    char reason[2 * SL_LIMIT_ENDPOINT_BYTES];           /* of an error, naming the host */
};

/* Once, from inside a turn, unless it was cancelled. The look-up is over: its handle is not to be
 * used any more. */
typedef void sl_resolve_done_fn(void *ctx, const struct sl_resolve_found *found);

/* What the thread calls: may block, may not touch what a reactor owns. Fills *found. */
typedef void sl_resolve_lookup_fn(const struct sl_endpoint *endpoint,
                                  struct sl_resolve_found *found);

/* The system's: files, DNS, whatever it is set up for. */
void sl_resolve_lookup(const struct sl_endpoint *endpoint, struct sl_resolve_found *found);

/* True when the host is an IPv4 or IPv6 address. Any thread. */
bool sl_resolve_is_numeric(const struct sl_endpoint *endpoint);

/* Begins; `done` follows after at most timeout_ns, never before this returns. Errors: AGAIN (too
 * many are in progress), NO_MEMORY, IO (no thread). */
int sl_resolve_start(struct sl_reactor *reactor, const struct sl_endpoint *endpoint,
                     uint64_t timeout_ns, sl_resolve_lookup_fn *lookup, sl_resolve_done_fn *done,
                     void *ctx, struct sl_resolve **out);

/* `done` will not be called. Nulls *resolve; NULL is fine. */
void sl_resolve_cancel(struct sl_resolve **resolve);

#endif
