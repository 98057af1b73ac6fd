/* The resolver looks up host names without blocking a reactor. Each lookup runs in its own thread,
 * since the system's resolver may block for any time; the result comes back through the reactor's
 * mailbox. Numeric addresses need no lookup (sl_resolve_is_numeric). A thread that still waits for
 * the system may outlive the caller and its reactor, and touches neither. Owner reactor, stepped or
 * not; allocates. */
#ifndef SL_NET_SESSION_RESOLVE_H
#define SL_NET_SESSION_RESOLVE_H

#include "core/endpoint.h"
#include "core/err.h"
#include "reactor/reactor.h"

#define SL_RESOLVE_ADDRESSES 8  /* addresses used of one name */
#define SL_RESOLVE_AT_ONCE   16 /* lookups of a process, cancelled and timed-out ones included */

struct sl_resolve;

struct sl_resolve_found {
    int err; /* 0, NOT_FOUND, DEADLINE */
    uint32_t address_count;
    struct sl_endpoint addresses[SL_RESOLVE_ADDRESSES]; /* numeric, in the system's order */
    char reason[2 * SL_LIMIT_ENDPOINT_BYTES];           /* error text, names the host */
};

/* Called once, inside a turn, unless cancelled. The handle is invalid from then on. */
typedef void sl_resolve_done_fn(void *ctx, const struct sl_resolve_found *found);

/* Runs in the thread; may block, must not touch anything of a reactor. Fills *found. */
typedef void sl_resolve_lookup_fn(const struct sl_endpoint *endpoint,
                                  struct sl_resolve_found *found);

/* Asks the system's resolver (files, DNS, as configured). */
void sl_resolve_lookup(const struct sl_endpoint *endpoint, struct sl_resolve_found *found);

/* Whether the host is an IPv4 or IPv6 address. Any thread. */
bool sl_resolve_is_numeric(const struct sl_endpoint *endpoint);

/* Starts a lookup. `done` is called within timeout_ns, never before this returns. Errors: AGAIN
 * (SL_RESOLVE_AT_ONCE), NO_MEMORY, IO (no thread). */
int sl_resolve_start(struct sl_reactor *reactor, const struct sl_endpoint *endpoint,
                     uint64_t timeout_ns, sl_resolve_lookup_fn *lookup, sl_resolve_done_fn *done,
                     void *ctx, struct sl_resolve **out);

/* Cancels the lookup: `done` is not called. Nulls *resolve, which may be NULL. */
void sl_resolve_cancel(struct sl_resolve **resolve);

#endif
