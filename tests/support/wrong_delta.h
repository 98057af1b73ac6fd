/* A delta that names the right versions, and whose blocks are encoded as they should be, but are
 * those of other bytes: only the digests of rebuilt blocks tell. */
#ifndef SL_TESTS_SUPPORT_WRONG_DELTA_H
#define SL_TESTS_SUPPORT_WRONG_DELTA_H

#include <starling_objects.h>

/* A thread of the application publishes such a delta of the version, of which the node's pool has
 * part 0, and a base, while its reactor does nothing. Errors: NOT_FOUND: it has not; those of
 * sl_publish_begin and sl_publish_commit. */
int wrong_delta_publish(struct sl_objects *node, const char *name, uint64_t version,
                        uint32_t timeout_ms);

#endif
