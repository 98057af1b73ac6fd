/* Reports tell the catalogue what this node holds: after attaching everything, in batches that the
 * catalogue answers, of which few are in flight, so that ALIVE does not wait behind them; then
 * changes, and with each ALIVE the next SL_OBJECTS_REPORTS_AN_ALIVE of everything in turn: a report
 * may be lost, or overtake another one. The catalogue forgets a copy that is not reported for two
 * such rounds. Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_REPORTS_H
#define SL_OBJECTS_NODE_REPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "objects/node/link.h"

#define SL_OBJECTS_REPORTS_BATCHES 16 /* in flight */

struct sl_objects;
struct sl_objects_copy;

struct sl_objects_reports {
    struct sl_objects_reports_batch {
        struct sl_objects_request request;
        struct sl_objects *node; /* NULL: not in flight */
    } batches[SL_OBJECTS_REPORTS_BATCHES];
    uint32_t singles; /* messages in flight */
    uint32_t credit;  /* reports until the next ALIVE, once everything was reported */
    /* Stored parts and copies have the number of the round of their last report; follows are
     * reported in the order of their indices. */
    uint32_t round, next_follow;
    bool is_complete; /* everything was reported since the node attached */
    bool is_lost;     /* a message was: everything is reported again */
};

/* The node has attached: everything is to be reported. */
void sl_objects_reports_begin(struct sl_objects *node);

/* No report is in flight any more: the catalogue has moved, or the node ends. */
void sl_objects_reports_cancel(struct sl_objects *node);

/* An ALIVE is answered. */
void sl_objects_reports_continue(struct sl_objects *node);

/* Tells the catalogue how much of a copy this node has. */
void sl_objects_report(struct sl_objects *node, const struct sl_objects_copy *copy);

/* The same of a part that has just been recorded in a file. */
struct sl_objects_stored;
void sl_objects_report_stored(struct sl_objects *node, const struct sl_objects_stored *stored);

/* Tells it that this node has nothing of a part, which it may expect to be fetched; unless it has a
 * copy, or commits one just now. version 0: that it does not follow the name any more. */
void sl_objects_report_none(struct sl_objects *node, const char *name, uint64_t version,
                            uint32_t part);

#endif
