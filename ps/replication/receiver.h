/* The backup receives entries of the primary's log and executes their writes in order. If the
 * result differs from the primary's, success or failure, the replicas have diverged: the backup
 * reports this and stops being one. */
#ifndef SL_PS_REPLICATION_RECEIVER_H
#define SL_PS_REPLICATION_RECEIVER_H

#include "core/list.h"
#include "ps/server/session_load.h"
#include "ps/shard/load.h"
#include "ps/snapshot/block.h"

struct sl_transport_message;

/* Of the first entry of a backup. */
enum sl_replication_progress {
    SL_REPLICATION_PROGRESS_WAITS,
    SL_REPLICATION_PROGRESS_RUNS,  /* its request, in slices */
    SL_REPLICATION_PROGRESS_LOADS, /* its block of the snapshot, in slices */
    SL_REPLICATION_PROGRESS_EXECUTED,
};

struct sl_replication_backup {
    struct sl_server_conn *feed;           /* NULL: the primary is not connected */
    struct sl_list entries;                /* requests: received and not executed */
    enum sl_replication_progress progress; /* of the first entry */
    uint64_t received;                     /* number of the last entry received */
    uint64_t position;                     /* number of the last entry executed */
    uint64_t acked;                        /* number acknowledged to the primary */
    uint64_t credit_bytes;                 /* to return with the next acknowledgement */
    uint32_t credit_requests;
    bool is_loading; /* the snapshot is incomplete */
    struct sl_shard_load load;
    struct sl_snapshot_block block; /* being loaded */
    struct sl_server_session_load session_load;
    bool is_broken; /* diverged from the primary: no longer a backup */
};

/* The primary was authenticated: admits it, or refuses it. */
void sl_replication_receiver_admit(struct sl_server_conn *conn);

/* Handles a frame with an entry. */
void sl_replication_receiver_arrive(struct sl_server_conn *conn,
                                    const struct sl_transport_message *message);

/* The primary's connection has closed. */
void sl_replication_receiver_closed(struct sl_server *server);

/* Executes received entries and acknowledges them; returns the cost. */
uint32_t sl_replication_receiver_run(struct sl_server *server, uint32_t keys);

/* Acknowledges the executed entries, unless the outbox has no room: then call it again. */
void sl_replication_receiver_acknowledge(struct sl_server *server);

/* Returns true when entries wait. */
bool sl_replication_receiver_waits(const struct sl_server *server);

/* Discards received entries. */
void sl_replication_receiver_drop(struct sl_server *server);

/* The state of this backup is obsolete: it starts empty. */
void sl_replication_receiver_forget(struct sl_server *server);

#endif
