/* One reactor's ways to the others of its group: a mailbox lane to each, and for each a list of the
 * mail that found its lane full, posted later and in order. Only that list allocates, off the data
 * path: a lane that is full means that the receiver is more than SL_LIMIT_LANE_MAILS behind. Owner
 * reactor, except open and close. */
#ifndef SL_REACTOR_OUTBOUND_H
#define SL_REACTOR_OUTBOUND_H

#include <stdint.h>

#include "core/err.h"
#include "reactor/mailbox.h"

struct sl_outbound_peer;

struct sl_outbound {
    struct sl_outbound_peer *ways; /* peer_count of them, by the receiver's index; NULL: none yet */
    uint32_t peer_count;
    uint64_t spilled_count; /* over all ways */
};

/* Zeroed before; to be followed by sl_outbound_open_way for each `to` below peer_count. Errors:
 * NO_MEMORY. */
int sl_outbound_open(struct sl_outbound *outbound, uint32_t peer_count);

/* Errors: NO_MEMORY, TOO_LARGE (SL_LIMIT_LANES). */
int sl_outbound_open_way(struct sl_outbound *outbound, uint32_t to, struct sl_mailbox *mailbox);

/* Closes the lanes, drops what is spilled, zeroes *outbound. Also for one that is partly open. */
void sl_outbound_close(struct sl_outbound *outbound);

/* Never lost, never blocking. Aborts when there is no memory for a mail that does not fit. */
void sl_outbound_post(struct sl_outbound *outbound, uint32_t to, struct sl_mail mail);

/* Posts what was spilled, as far as the lanes have room now. */
void sl_outbound_retry(struct sl_outbound *outbound);

#endif
