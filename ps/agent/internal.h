/* What the member's files share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_AGENT_INTERNAL_H
#define SL_PS_AGENT_INTERNAL_H

#include "net/control/session.h"
#include "ps/agent/agent.h"

/* The checkpoint that it was told last. The coordinator says everything again when this process
 * registers again, since it cannot know what has arrived; the process is told once. */
struct sl_agent_checkpoint {
    uint64_t number;          /* 0: none yet */
    uint64_t latest;          /* that it wrote the manifest of, or was told to be complete */
    bool is_complete;         /* it was told so too */
    struct sl_message answer; /* that it gave; a number of 0: none yet */
    bool is_unsent;           /* it waits for a connection, or for room */
};

struct sl_agent {
    struct sl_agent_options options;
    struct sl_transport *transport;
    struct sl_outbox outbox;
    struct sl_session *session; /* NULL: we left */
    struct sl_timer heartbeat;
    struct sl_timer absence; /* armed while there is no connection, since it has joined */
    uint64_t opened_ns;
    uint64_t lease_ns;
    bool registering;     /* a Register is on its way, or kept by the session */
    bool registered;      /* since the last welcome */
    bool joined;          /* the owner has been told */
    bool failed;          /* likewise: nothing more is done */
    uint32_t expirations; /* of the connection */
    bool is_expired;      /* the coordinator is, and the user has been told so */
    uint32_t first_shard, shard_count;
    uint64_t restore;                       /* the checkpoint to begin from */
    uint64_t abandoned_above, abandoned_to; /* as told with it */
    struct sl_message_replica_report
        pairs[SL_MESSAGE_REPLICA_REPORTS_MAX]; /* as the owner has said last */
    uint32_t pair_count;
    bool has_news; /* they have changed since they were sent */
    struct sl_agent_checkpoint checkpoint;
};

/* ---- member_checkpoint.c ---- */

void sl_agent_checkpoint_notified(struct sl_agent *member,
                                  const struct sl_message_checkpoint *told);
void sl_agent_checkpoint_complete_notified(struct sl_agent *member,
                                           const struct sl_message_checkpoint_complete *told);

/* Sends what waits to be sent. */
void sl_agent_checkpoint_beat(struct sl_agent *member);

/* For the next Register: the greatest number that this process knows of. */
uint64_t sl_agent_checkpoint_newest(const struct sl_agent *member);

/* Likewise: the newest of the job, as far as it knows; 0: none. */
uint64_t sl_agent_checkpoint_latest(const struct sl_agent *member);

void sl_agent_checkpoint_fini(struct sl_agent *member);

#endif
