/* The primary's connection to the backup. After a failure it reconnects and sends the rest of the
 * log. If the backup is unreachable for one lease, the sender reports to the coordinator that it
 * will not be in sync. */
#ifndef SL_PS_REPLICATION_SENDER_H
#define SL_PS_REPLICATION_SENDER_H

#include "net/credit.h"
#include "net/outbox.h"
#include "net/session/session.h"

struct sl_server;

struct sl_replication_sender {
    struct sl_session *session; /* NULL: none */
    struct sl_outbox outbox;
    struct sl_credit credit;
    struct sl_timer silence; /* armed while the backup is unreachable or acknowledgements miss */
    uint64_t last_seen_ns;   /* last acknowledgement, or begin of the wait for one */
    uint64_t taken_bytes;    /* by the backup's connection, at the last check */
};

/* Connects to the backup of the replica group. */
void sl_replication_sender_open(struct sl_server *server);

/* No backup is in sync any more: releases waiting replies and stops the log. */
void sl_replication_sender_close(struct sl_server *server);

#endif
