/* Observes a worker for operators: HTTP on a thread of its own (net/http). Part of the program.
 * The main thread calls it. */
#ifndef SL_PROGRAMS_TRAIN_OBSERVE_H
#define SL_PROGRAMS_TRAIN_OBSERVE_H

#include "core/reason.h"
#include "net/http/observer.h"
#include "net/http/process_info.h"
#include "programs/train/train_metrics.h"

struct sl_observe;

/* All of it outlives the observer. */
struct sl_observe_options {
    const struct sl_http_listen *listen; /* NULL: no HTTP */
    struct sl_option_values shown;       /* by /api/process */
    struct sl_train_metrics *metrics;
};

/* Listens and starts the thread; /readyz answers 503. Errors: those of sl_observer_create. */
int sl_observe_open(const struct sl_observe_options *options, struct sl_observe **out,
                    struct sl_reason *reason);

/* HOST:PORT of HTTP, or "off". */
const char *sl_observe_address(const struct sl_observe *observe);

/* The worker is a member: /readyz answers 200, and the reactors are pinged, unless the training
 * thread drives them. Errors: NO_MEMORY, TOO_LARGE. */
int sl_observe_connected(struct sl_observe *observe, struct sl_client *client, bool is_driven);

/* Ends the thread. Before the client ends. */
void sl_observe_stop(struct sl_observe *observe);

/* Frees, when the client has ended. Nulls *observe, which may be NULL. */
void sl_observe_close(struct sl_observe **observe);

#endif
