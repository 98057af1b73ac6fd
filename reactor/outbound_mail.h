/* The mailbox lanes from one reactor to all reactors of its group. Mail that finds its lane full is
 * listed and posted later, in order. Only that list allocates, off the data path: a full lane means
 * a receiver more than SL_LIMIT_LANE_MAILS behind. Owner reactor, except open and close. */
#ifndef SL_REACTOR_OUTBOUND_MAIL_H
#define SL_REACTOR_OUTBOUND_MAIL_H

#include <stdint.h>

#include "core/err.h"
#include "reactor/mailbox.h"

struct sl_outbound_mail_peer;

struct sl_outbound_mail {
    struct sl_outbound_mail_peer
        *ways; /* peer_count entries, by the receiver's index; NULL: not open */
    uint32_t peer_count;
    uint64_t spilled_count; /* listed mails, over all peers */
};

/* *outbound is zeroed before. Afterwards call sl_outbound_mail_open_lane for each `to` below
 * peer_count. Errors: NO_MEMORY. */
int sl_outbound_mail_open(struct sl_outbound_mail *outbound, uint32_t peer_count);

/* Errors: NO_MEMORY, TOO_LARGE (SL_LIMIT_LANES). */
int sl_outbound_mail_open_lane(struct sl_outbound_mail *outbound, uint32_t to,
                               struct sl_mailbox *mailbox);

/* Closes the lanes, drops listed mail, zeroes *outbound. Also after a partial open. */
void sl_outbound_mail_close(struct sl_outbound_mail *outbound);

/* Never loses mail, never blocks. Aborts if there is no memory to list a mail. */
void sl_outbound_mail_post(struct sl_outbound_mail *outbound, uint32_t to, struct sl_mail mail);

/* Posts listed mail as far as the lanes have room. */
void sl_outbound_mail_retry(struct sl_outbound_mail *outbound);

#endif
