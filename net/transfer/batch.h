/* Batches: the public functions, on application threads, and their execution, on one reactor, which
 * owns a batch from its submission until it is over. A batch ends at the latest a little after its
 * deadline: what was not sent is dropped then, and lanes that still owe answers are closed
 * SL_TRANSFER_BATCH_GRACE_NS later. */
#ifndef SL_NET_TRANSFER_BATCH_H
#define SL_NET_TRANSFER_BATCH_H

#include "core/clock.h"
#include "net/transfer/engine.h"
#include "net/transfer/part.h"

#define SL_TRANSFER_BATCH_GRACE_NS (25 * SL_CLOCK_NS_PER_MS)

enum sl_transfer_batch_stage {
    SL_TRANSFER_BATCH_SUBMITTED,
    SL_TRANSFER_BATCH_STARTED,   /* its parts are with their routes */
    SL_TRANSFER_BATCH_NOTIFYING, /* all requests completed, the notice is on its way */
    SL_TRANSFER_BATCH_ENDING     /* nothing more is sent */
};

struct sl_transfer_batch {
    struct sl_list_link link; /* of the engine's, under its lock */
    struct sl_transfer *engine;
    uint32_t request_max;

    /* The application's thread while the batch is over, else the reactor's. err: of a submission
     * that was refused, or of the notice. */
    struct sl_transfer_call call;
    struct sl_transfer_call cancelling;
    uint32_t calls_left;            /* async.c: of these two, not over */
    struct sl_transfer_item *items; /* [request_max] */
    uint32_t count;                 /* of the last submission; 0: none yet */
    uint32_t timeout_ms;
    struct sl_transfer_causes causes;
    char text[2 * SL_TRANSFER_REASON_BYTES]; /* of sl_transfer_batch_error */

    /* The reactor's. */
    struct sl_transfer_part *parts; /* [part_max] */
    uint32_t part_max, part_count;
    uint32_t parts_left; /* not over */
    struct sl_timer timer;
    uint64_t deadline_ns;
    enum sl_transfer_batch_stage stage;
    bool is_cancelled; /* by the application */

    /* As the items. */
    struct sl_transfer_sending *sending; /* of the notice; NULL: none */
};

/* As sl_transfer_batch_submit up to the posting of batch->call. */
int sl_transfer_batch_prepare(struct sl_transfer_batch *batch,
                              const struct sl_transfer_request *requests, uint32_t count,
                              uint32_t timeout_ms, const struct sl_transfer_notice *notice);

/* Frees all batches of an engine that ends. */
void sl_transfer_batch_free_all(struct sl_transfer *transfer);

#endif
