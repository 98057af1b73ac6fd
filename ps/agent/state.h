/* State of an agent, shared by its files only. Owner reactor. */
#ifndef SL_PS_AGENT_STATE_H
#define SL_PS_AGENT_STATE_H

#include "net/session/session.h"
#include "ps/agent/agent.h"

/* State of the last checkpoint. The coordinator repeats its message after each registration,
 * because it cannot know what has arrived; the process is notified once. */
struct sl_agent_checkpoint {
    uint64_t number;    /* 0: none yet */
    uint64_t latest;    /* newest one whose manifest this process wrote, or that the coordinator
                           reported complete */
    bool is_publishing; /* checkpoint_publish was called */
    struct sl_message answer; /* of this process; kind 0: none yet */
    bool is_unsent;           /* waits for a connection, or for room in the outbox */
};

struct sl_agent {
    struct sl_agent_options options;
    struct sl_transport *transport;
    struct sl_outbox outbox;
    struct sl_session *session; /* NULL: after sl_agent_leave */
    struct sl_timer heartbeat;
    struct sl_timer absence; /* armed after `joined` while disconnected */
    uint64_t opened_ns;
    /* Of the coordinator's last welcome. */
    struct {
        uint64_t lease_ns;
        bool wants_reports;
        char http[SL_LIMIT_ENDPOINT_BYTES]; /* HOST:PORT; "": none */
    } welcome;
    struct {
        bool was_reported; /* the owner was notified that it is registered */
        bool is_pending;   /* a Register is in flight, or queued in the session */
        bool is_done;      /* since the last welcome */
        bool has_news;     /* reports changed since the last Register */
        struct sl_message_replica_report reports[SL_LIMIT_SHARDS]; /* by the owner */
        uint32_t report_count;
    } registration;
    bool joined;          /* the owner was notified */
    bool failed;          /* the owner was notified; the agent stops */
    uint32_t expirations; /* lost connections */
    bool is_expired;      /* the loss of the connection was logged */
    uint32_t first_shard, shard_count;
    uint64_t restore;                       /* checkpoint to restore; 0: none */
    uint64_t abandoned_above, abandoned_to; /* received with it */
    uint64_t kept_to, job;                  /* likewise */
    struct sl_message_dropped dropped;      /* of the last cluster */
    struct sl_agent_checkpoint checkpoint;
};

#endif
