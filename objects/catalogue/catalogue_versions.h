/* The versions of a name: epochs of its publishers, commits, retention, and versions that are
 * restored from a node's HOLD or from the records of an earlier catalogue. Retention is part of a
 * commit. A node that reports a part is sent RETIRE only if this catalogue has removed the part: it
 * never orders the deletion of what it does not know. Owner: that of the catalogue. Allocates. */
#ifndef SL_OBJECTS_CATALOGUE_CATALOGUE_VERSIONS_H
#define SL_OBJECTS_CATALOGUE_CATALOGUE_VERSIONS_H

#include "objects/catalogue/catalogue_state.h"

/* The last number of versions and epochs: other languages read them as signed. */
#define SL_CATALOGUE_NUMBER_MAX ((uint64_t)INT64_MAX)

/* Begins an epoch of the object, with part_count publishers that are not known yet, and removes the
 * versions that are not committed. Errors, without effect: NO_MEMORY. */
int sl_catalogue_begin_epoch(struct sl_objects_catalogue *catalogue,
                             struct sl_catalogue_object *object, uint64_t epoch,
                             uint32_t part_count, struct sl_reason *reason);

/* Makes the version visible, as committed at time_ms (0 counts as 1): passes its record to
 * options.changed, and announces the version if it is the newest of its name. */
void sl_catalogue_publish(struct sl_objects_catalogue *catalogue,
                          struct sl_catalogue_version *version, uint64_t time_ms);

/* Retention, at a commit: keeps the newest options.keep_versions committed versions of the object,
 * and removes the others, but never `committed`. Versions of origin CALLER are neither counted nor
 * removed. */
void sl_catalogue_retire_old(struct sl_objects_catalogue *catalogue,
                             const struct sl_catalogue_version *committed);

/* Handles a HOLD whose part differs from `known`, the version with the same number, or NULL if
 * there is none. If the catalogue has removed the part, the node is sent RETIRE. Else an earlier
 * catalogue committed the part, or this one while the node was away: the version is restored and
 * returned, and the caller publishes it once it has a copy. If `known` exists, the version of the
 * later commit wins: readers get that one, and no node deletes a file. Returns NULL if nothing is
 * restored. */
struct sl_catalogue_version *sl_catalogue_take_unknown(struct sl_objects_catalogue *catalogue,
                                                       const struct sl_catalogue_node *node,
                                                       const struct sl_objects_message *message,
                                                       struct sl_catalogue_version *known);

#endif
