/* Loads sessions from a snapshot, so that the shard executes the clients' retries only as far as
 * needed. Written by session_snapshot.c. Owner reactor. */
#ifndef SL_PS_SERVER_SESSION_LOAD_H
#define SL_PS_SERVER_SESSION_LOAD_H

#include "core/reason.h"
#include "ps/server/session.h"

/* Progress of loading a block of sessions; zeroed before the first slice. */
struct sl_server_session_load {
    bool is_exact;  /* state of the primary, not of an older checkpoint */
    uint32_t done;  /* sessions of the block */
    size_t bytes;   /* bytes of the block */
    uint32_t spent; /* cost of the last slice */
};

/* Restores sessions of a block, at a cost of about `budget`. load->spent: the cost. Returns
 * SL_SHARD_DONE, SL_SHARD_AGAIN, or an error with a reason: CORRUPT, NO_MEMORY. */
int sl_server_session_load(struct sl_server *server, const struct sl_snapshot_block *block,
                           struct sl_server_session_load *load, uint32_t budget,
                           struct sl_reason *reason);

#endif
