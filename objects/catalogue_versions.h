/* Which versions of a name exist: epochs of its publishers, commits, retention, and versions that
 * come back from nodes or from the records of an earlier catalogue. Only a commit retires versions,
 * and only what this catalogue itself removed is retired when a node holds it. */
#ifndef SL_OBJECTS_CATALOGUE_VERSIONS_H
#define SL_OBJECTS_CATALOGUE_VERSIONS_H

#include "objects/catalogue_state.h"

/* The last number of versions and epochs: other languages read them as signed. */
#define SL_CATALOGUE_NUMBER_MAX ((uint64_t)INT64_MAX)

/* Drops what publishers of earlier epochs have not committed. Errors: NO_MEMORY. */
int sl_catalogue_begin_epoch(struct sl_objects_catalogue *catalogue,
                             struct sl_catalogue_object *object, uint64_t epoch,
                             uint32_t part_count, struct sl_reason *reason);

/* The version becomes visible. */
void sl_catalogue_publish(struct sl_objects_catalogue *catalogue,
                          struct sl_catalogue_version *version, uint64_t time_ms);

/* At a commit: retires versions that are older than those that are kept, but not the committed one.
 */
void sl_catalogue_retire_old(struct sl_objects_catalogue *catalogue,
                             const struct sl_catalogue_version *committed);

/* A HOLD of bytes that are not those of `known`, the version with that number; NULL: there is none.
 * If the catalogue removed them, the node is sent RETIRE. Else they are of an earlier catalogue, or
 * of a time when the node was away: the version is restored, and returned, to be published once it
 * has a copy. Of two versions with one number readers get the newer commit, and no file goes. NULL:
 * nothing is restored. */
struct sl_catalogue_version *sl_catalogue_take_unknown(struct sl_objects_catalogue *catalogue,
                                                       const struct sl_catalogue_node *node,
                                                       const struct sl_objects_message *message,
                                                       struct sl_catalogue_version *known);

#endif
