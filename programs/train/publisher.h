/* The publisher publishes the tables of a job as versions of an object, again and again while the
 * worker trains, on a thread of its own (sl_publish_tables in starling_objects.h). A failure is a
 * warning: training does not depend on it. */
#ifndef SL_PROGRAMS_TRAIN_PUBLISHER_H
#define SL_PROGRAMS_TRAIN_PUBLISHER_H

#include <starling_objects.h>

#include "programs/models/model.h"

struct sl_publisher;

struct sl_publisher_options {
    const char *name; /* of the object; outlives the publisher */
    uint64_t every_ns;
    uint32_t timeout_ms;          /* of a version; at the end, the worker waits so long */
    const struct sl_model *model; /* whose tables are published */
    const struct sl_model_shape *shape;
    const char *catalogue;
    const struct sl_transfer_options *engine;
};

/* *out: NULL, and a warning, if it cannot start. */
void sl_publisher_start(const struct sl_publisher_options *options, struct sl_publisher **out);

/* Ends, after a last version if the training succeeded. NULL is allowed. Nulls *publisher. */
void sl_publisher_stop(struct sl_publisher **publisher, bool publishes_last);

#endif
