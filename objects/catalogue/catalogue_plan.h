/* Plans from which nodes the fetchers of a part fetch, and sends NEWS.
 *
 * Fetchers that join within 100 ms, and the followers at a commit, are a batch. A batch is planned
 * once, as two trees (choose.h). Their roots hang from copies that serve nobody yet: complete ones,
 * or fetchers of earlier batches, which are ahead. So nobody is planned again while it fetches, and
 * no plan has a cycle. So when a copy is removed, or loses blocks, its children have no parent:
 * they use other sources, and keep their places in the trees. A fetcher that joins gets parents at
 * once, as the last one of its batch so far: it has no children yet. When the batch is planned,
 * those whose parents change get NEWS. Without sources it waits for the next one that joins.
 *
 * A node on the host of a holder, or of an earlier fetcher, fetches from that one alone, through
 * shared memory, and is in no tree. The publisher's copy is a source like others until two
 * others are complete; then it is the last resort. A fetcher whose parent fails uses its other
 * sources, and asks for more with FIND. */
#ifndef SL_OBJECTS_CATALOGUE_CATALOGUE_PLAN_H
#define SL_OBJECTS_CATALOGUE_CATALOGUE_PLAN_H

#include "objects/catalogue/catalogue_state.h"

#define SL_CATALOGUE_PLAN_MS 100

/* The copy joins the batch. Its parents are sent with an answer. */
void sl_catalogue_plan_join(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy);

/* Plans the batch of a part. */
void sl_catalogue_plan_part(struct sl_objects_catalogue *catalogue, struct sl_catalogue_part *part);

/* The followers that have no version as new fetch part 0 of this one: plans, and sends NEWS. */
void sl_catalogue_plan_announce(struct sl_objects_catalogue *catalogue,
                                struct sl_catalogue_version *version);

/* Fills in the body of NEWS: parents and other sources. Nodes in `bad` are left out. */
void sl_catalogue_news_fill(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy,
                            const uint64_t *bad, uint32_t bad_count,
                            struct sl_objects_message *out);

/* The node has answered the NEWS with this request. */
void sl_catalogue_news_taken(struct sl_objects_catalogue *catalogue, struct sl_catalogue_node *node,
                             uint32_t request);

void sl_catalogue_record_fill(const struct sl_catalogue_version *version,
                              struct sl_objects_message *out);

#endif
