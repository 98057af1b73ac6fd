/* Counters of the bytes that a node reads from others, and of those that it need not read. The
 * node's reactor writes; any thread reads. */
#ifndef SL_OBJECTS_NODE_COUNTERS_H
#define SL_OBJECTS_NODE_COUNTERS_H

#include "core/cell.h"

struct sl_objects_counters {
    struct sl_cell fetched_bytes;     /* of blocks that were read and verified; of deltas, too */
    struct sl_cell shared_bytes;      /* of blocks equal to those of the version before: not read */
    struct sl_cell delta_saved_bytes; /* of rebuilt blocks, less those of their deltas */
    struct sl_cell delta_fallbacks;   /* deltas given up, and rebuilt blocks that were wrong */
};

#endif
