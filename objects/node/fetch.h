/* A fetch fills a copy: it asks sources for the part (WANT), learns where their verified bytes lie
 * (HAVE), and READs them into the copy's memory. The manifest comes first; its digest is that of
 * the part. A block counts, and is served, when its digest has matched.
 *
 * Each stripe has one source, at first its parent of the plan. A source that is gone, refuses,
 * sends wrong bytes or brings nothing for a while is replaced. A fetch ends with success, at its
 * deadline, or by cancel; so it succeeds as long as each block has a live holder that the catalogue
 * knows. Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_FETCH_H
#define SL_OBJECTS_NODE_FETCH_H

#include "objects/node/copy.h"

struct sl_objects_fetch;

/* The fetch has ended, and nothing writes to the memory any more. copy->fetch is NULL. err: 0,
 * DEADLINE, CANCELLED, NO_MEMORY, CORRUPT (the publisher's manifest). The reason is valid during
 * the call, which may free the copy. */
typedef void sl_objects_fetch_over_fn(struct sl_objects *node, struct sl_objects_copy *copy,
                                      void *ctx, int err, const char *reason);

/* Prepares copy->fetch, for a copy that has no fetch, and is in no list: any thread; or for one in
 * the pool: on the reactor. Sets copy->counts to zero. Errors: NO_MEMORY. */
int sl_objects_fetch_create(struct sl_objects *node, struct sl_objects_copy *copy,
                            uint64_t deadline_ns, sl_objects_fetch_over_fn *over, void *ctx);

/* Frees one that was not started. NULL is allowed. */
void sl_objects_fetch_free(struct sl_objects_fetch *fetch);

/* A plan of the catalogue: an answer to FIND, before the start, or NEWS. Any thread before the
 * start. */
void sl_objects_fetch_news(struct sl_objects_fetch *fetch, const struct sl_objects_message *news);

/* The copy is in the node's list, and has memory for all of the part, or gets that of the pool. A
 * fetch without a plan asks for one. */
void sl_objects_fetch_start(struct sl_objects_fetch *fetch);

/* Ends the fetch early; `over` runs in a later turn, at the latest after 100 ms. */
void sl_objects_fetch_cancel(struct sl_objects_fetch *fetch, const char *reason);

/* The fetch ends at this time, if that is later than before. */
void sl_objects_fetch_prolong(struct sl_objects_fetch *fetch, uint64_t deadline_ns);

/* The text of a DEADLINE: names the missing blocks, and the reason. */
void sl_objects_fetch_describe(const struct sl_objects_fetch *fetch, char text[SL_REASON_BYTES]);

/* Messages of sources. */
void sl_objects_fetch_have(struct sl_objects_fetch *fetch, const struct sl_objects_message *have);
void sl_objects_fetch_gone(struct sl_objects_fetch *fetch, const struct sl_objects_message *gone);

#endif
