/* Plans from which nodes the fetchers of a part fetch (choose.h has the formula), and sends NEWS.
 *
 * A new fetcher is planned at once, as the last one of the tree: it has no children yet, so its
 * parents make no cycle. If there are more fetchers than holders, all of them are planned again
 * later, at most every 100 ms. With at most as many fetchers as holders each takes the next holders
 * in turn, and keeps them. A node on the host of a holder, or of an earlier fetcher, fetches from
 * that one alone, through shared memory, and is not in the tree. The origin is a holder like others
 * until two others are complete; then it is the last resort. */
#ifndef SL_OBJECTS_CATALOGUE_PLAN_H
#define SL_OBJECTS_CATALOGUE_PLAN_H

#include "objects/catalogue_state.h"

#define SL_CATALOGUE_PLAN_MS 100

/* Plans this fetcher, as the last one of its part; its parents are sent with an answer. */
void sl_catalogue_plan_join(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy);

/* Plans all fetchers of a part. Those with new parents are sent NEWS. */
void sl_catalogue_plan_part(struct sl_objects_catalogue *catalogue, struct sl_catalogue_part *part);

/* The followers that have no version as new fetch part 0 of this one: plans, and sends NEWS. */
void sl_catalogue_plan_announce(struct sl_objects_catalogue *catalogue,
                                struct sl_catalogue_version *version);

/* Fills in the body of NEWS: parents and other sources, none of which is `bad`. */
void sl_catalogue_news_fill(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy,
                            const uint64_t *bad, uint32_t bad_count,
                            struct sl_objects_message *out);

/* Sends the next waiting NEWS of the node, unless one is unanswered. */
void sl_catalogue_news_next(struct sl_objects_catalogue *catalogue, struct sl_catalogue_node *node);

/* The node has answered the NEWS with this request. */
void sl_catalogue_news_taken(struct sl_objects_catalogue *catalogue, struct sl_catalogue_node *node,
                             uint32_t request);

void sl_catalogue_record_fill(const struct sl_catalogue_version *version,
                              struct sl_objects_message *out);

#endif
