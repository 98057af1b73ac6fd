/* State of a coordinator, and what all its files need. Owner reactor. */
#ifndef SL_PS_COORDINATOR_STATE_H
#define SL_PS_COORDINATOR_STATE_H

#include "core/log.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/shard_state.h"
#include "ps/coordinator/waiter.h"

/* Completed barriers kept per member, by request id: as many as it may have to ask for again. */
#define SL_COORDINATOR_DONE_IDS           16

#define SL_COORDINATOR_CLUSTER_OF_RECORDS UINT32_MAX

struct sl_coordinator_member {
    struct sl_message_hello hello;
    sl_coordinator_peer peer;
    char name[SL_MESSAGE_NAME_BYTES];
    bool connected;         /* false: disconnected, and peer is invalid */
    uint64_t last_seen_ns;  /* when its last message arrived */
    uint64_t lease_from_ns; /* the lease counts from the later of this and last_seen_ns: a grace
                               period when messages could not be read or sent */
    /* When its last report, and the one before it, were accepted; 0: none yet. */
    uint64_t reported_ns, reported_before_ns;
    uint64_t replacement_id; /* client_id of a process that wants this task; 0: none */
    uint64_t rival_ns;       /* when that process first asked */
    uint64_t job;            /* identity of the job that it was in when it registered; 0: none */
    struct sl_message_replica_report *reports; /* of a server, when it registered; until the */
    uint32_t report_count;                     /* shards are placed */
    bool registered;
    bool waits_for_cluster;
    struct sl_coordinator_waiter cluster_waiter; /* its Register, while waits_for_cluster */
    uint32_t cluster_version; /* last one sent to it; 0: none; OF_RECORDS: unknown, loaded from
                                 records */

    /* Server: expirations since this time may not have reached it. SL_CLOCK_NEVER: it has them all;
     * 0: it is a new process and needs every worker that no longer counts. */
    uint64_t missed_expirations_since_ns;

    struct {
        bool is_open;        /* it has registered on this connection: it may receive messages */
        uint32_t sent;       /* its messages without an answer */
        uint32_t sent_bytes; /* of those that the coordinator keeps */
        uint32_t received;   /* messages that it was sent and has not answered */
    } relay;

    /* Ring of completed barriers sent to this member; 0: unused. */
    uint64_t done_ids[SL_COORDINATOR_DONE_IDS];
    uint32_t done_next;
};

/* How a membership ended. */
enum sl_coordinator_end {
    SL_COORDINATOR_END_NONE,
    SL_COORDINATOR_END_LEFT,
    SL_COORDINATOR_END_EXPIRED,
    SL_COORDINATOR_END_REPLACED,
};

/* Whether a server task is part of the job: sl_coordinator_has_ps. */
enum sl_coordinator_place {
    SL_COORDINATOR_AT_START, /* tasks below options.ps_count are, others are not */
    SL_COORDINATOR_JOINED,   /* while the job ran */
    SL_COORDINATOR_DRAINING, /* its shards move away */
    SL_COORDINATOR_DRAINED,  /* no longer; it may join again */
};

/* State of a server task, whether or not a process holds it. */
struct sl_coordinator_ps {
    enum sl_coordinator_place place;
    uint32_t shard_count;   /* its home shards: those that it had at the job's start */
    uint32_t first_shard;   /* the first of them; once there are placements */
    uint32_t reactor_count; /* 0: as many as shards */
    uint64_t client_id;     /* of the last process that registered */
    uint64_t last_seen_ns;  /* of that process, when its membership ended */
    bool restarted;         /* the task had an earlier process */
    /* How the process ended, if it expired or left early and no other replaced it; else NONE. */
    enum sl_coordinator_end gone;
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* "": never registered; the rest is unknown */
    char bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char host[SL_MESSAGE_NAME_BYTES];
    bool serving; /* it was already serving when it first registered */
    struct {
        /* Newest that it can restore; from the job's start, the chosen one; 0: none */
        uint64_t restore;
        struct sl_message_numbers complete; /* restorable ones; used until the job begins */
        struct sl_message_numbers
            unfinished;     /* with files but without a manifest; until the job begins */
        uint64_t unclaimed; /* as in struct sl_message_register; until the job begins */
        bool ack_pending;   /* its CheckpointPart or CheckpointDone is outstanding */
    } checkpoints;

    uint32_t replicas; /* backups of each shard: 0 or 1 */
    /* Of all its home shards, in the records of an older version; until these are loaded. epoch 0:
     * none. */
    struct sl_message_placement older;
    uint64_t older_deposed_id;
};

/* How the last former member with this worker index ended. */
struct sl_coordinator_worker {
    enum sl_coordinator_end end;
    uint64_t end_ns;
    uint64_t client_id;
    bool left_job;   /* not counted in the job until the task is taken again */
    bool unnotified; /* restarted servers must still be notified that it left */
};

/* A member that was notified that a barrier completed, and its request id. */
struct sl_coordinator_notified {
    uint64_t client_id, request;
};

struct sl_coordinator_done {
    uint64_t number; /* serial number of the barrier, from 1; 0: unused */
    struct sl_coordinator_notified *notified;
    uint32_t notified_count;
};

struct sl_coordinator_barrier {
    char name[SL_MESSAGE_NAME_BYTES];
    uint32_t count;  /* 0: all workers of the job */
    uint32_t groups; /* of all nodes of these SL_MESSAGE_GROUP_..., instead of `count`; 0: none */
    uint32_t arrived;
    uint32_t workers_arrived;               /* part of `arrived` */
    struct sl_coordinator_waiter *arrivals; /* [arrived], of one member each */
    uint32_t arrivals_max;
    struct sl_coordinator_barrier *next;
};

struct sl_coordinator_barriers {
    struct sl_coordinator_barrier *first;
    uint32_t count;
    struct sl_coordinator_done done[SL_COORDINATOR_DONE_BARRIERS]; /* ring; for `changed` */
    uint64_t done_number; /* serial number of the last one */
};

struct sl_coordinator_relay; /* relay.c */
struct sl_coordinator_relays {
    struct sl_coordinator_relay *first, *last; /* in order of arrival */
    uint32_t count, waiting_count;             /* waiting: not delivered yet */
    uint64_t token_last;
};

/* A pending request for a checkpoint. */
struct sl_coordinator_checkpoint_request {
    struct sl_coordinator_checkpoint_request *next;
    struct sl_coordinator_waiter waiter;
    uint64_t number; /* of the checkpoint that answers it; 0: the next to begin */
    uint64_t asked_ns;
};

enum sl_coordinator_checkpoint_stage {
    SL_COORDINATOR_CHECKPOINT_IDLE,
    SL_COORDINATOR_CHECKPOINT_WRITING,    /* servers write the files of their shards */
    SL_COORDINATOR_CHECKPOINT_PUBLISHING, /* all files are written; servers write the manifest */
};

struct sl_coordinator_checkpoint {
    enum sl_coordinator_checkpoint_stage stage;
    uint64_t number, base;                    /* of the current checkpoint, or the last one */
    uint64_t begun_ns, stage_ns, ended_ns;    /* stage_ns: when the stage began */
    uint64_t time_ms;                         /* wall clock at the start, since 1970 */
    bool is_last;                             /* requested by a server that is stopping */
    uint32_t acks_pending;                    /* servers with ack_pending */
    struct sl_message_checkpoint_file *files; /* [file_count], by shard; NULL in IDLE */
    uint32_t file_count;
    bool has_worker;           /* some shard in it has served a worker */
    uint64_t max_seen;         /* greatest number known to any server */
    uint64_t incremental_base; /* complete checkpoint that the next is based on; 0: it must be full,
                                  after an abort, a server restart or a takeover */
    uint64_t last_on_all_servers; /* newest complete checkpoint; servers keep it. 0: unknown, e.g.
                                     after a server restarted without it */
    uint64_t job_latest; /* newest complete one, or the one the job restored: the limit for servers
                            that join later */
    uint32_t incrementals; /* complete incrementals since the last full one */
    uint64_t next_ns;      /* when the next is due; SL_CLOCK_NEVER: never */
    struct sl_coordinator_checkpoint_request *requests; /* newest first */
    uint32_t request_count;
};

struct sl_coordinator_job {
    uint32_t worker_count; /* 0: unknown */
    uint32_t worker_end;   /* above the tasks of all workers that were ever members */
    char worker_count_from[SL_MESSAGE_NAME_BYTES]; /* the member or option that set it */
    bool counted_workers_known;                    /* counted_workers is valid */
    uint32_t counted_workers;                      /* by sl_coordinator_count_workers */
    enum sl_coordinator_stage stage; /* WAITING_FOR_MEMBERS if stages are not tracked */
    uint64_t stage_ns;  /* when the stage began; WAITING_FOR_MEMBERS: first tick, 0 before */
    uint64_t remind_ns; /* when to log the missing tasks again */
    bool never_began;   /* the job ended before it began */
    int end_err;        /* of ENDING; DEADLINE: start timeout */
    char end_why[SL_MESSAGE_TEXT_BYTES];
};

struct sl_coordinator {
    struct sl_coordinator_options options;
    uint64_t ticked_ns;            /* last tick; 0: none yet */
    struct sl_log_limit log_limit; /* for lines about disconnecting members */
    struct {
        uint64_t second;
        uint32_t count;
    } reports; /* accepted in this second */
    /* Parallel arrays, so that a search by peer touches little memory; unordered. */
    sl_coordinator_peer *peers;
    struct sl_coordinator_member **members;
    uint32_t member_count, member_max;
    uint64_t departures;          /* ended memberships; each may move another member */
    struct sl_coordinator_ps *ps; /* [SL_LIMIT_PS] */
    struct sl_coordinator_placement placement;
    struct sl_coordinator_worker *workers; /* [SL_LIMIT_WORKERS] */
    uint32_t unnotified_count;             /* workers with `unnotified` */
    struct sl_coordinator_job job;
    struct {
        uint32_t version; /* from 1; grows when the cluster changes */
        bool is_ready;    /* it was complete once and sent to members */
    } cluster;
    struct {
        struct sl_table_spec *specs; /* by id; empty name: id is free, or the table was dropped */
        struct sl_message_dropped dropped;
        bool restored[SL_LIMIT_TABLES]; /* the policy is that of a checkpoint */
        bool are_older; /* the job is older than this coordinator: a server that is serving, or a
                           table opened with keep_id, proves it */
        uint32_t count; /* ids in use are below it */
        uint32_t max;
    } tables;
    struct sl_coordinator_barriers barriers;
    struct sl_coordinator_relays relays;
    uint32_t values_lost;  /* 1 + index of the server that restarted without values; 0: none */
    uint64_t identity;     /* of the job, once the cluster is ready; 0: unknown */
    uint64_t kept_to;      /* checkpoints up to this one are of earlier jobs; 0: none */
    uint64_t began_from;   /* checkpoint that the job began from; 0: none */
    uint64_t abandoned_to; /* checkpoints above `began_from` up to this one are abandoned */
    struct sl_coordinator_checkpoint checkpoint;
    uint64_t recovery_deadline_ns; /* of loaded records (sl_coordinator_record_end); 0: none */
};

static inline bool sl_coordinator_is_ps(const struct sl_coordinator_member *member)
{
    return member->hello.role == SL_MESSAGE_ROLE_PS;
}

static inline bool sl_coordinator_is_worker(const struct sl_coordinator_member *member)
{
    return member->hello.role == SL_MESSAGE_ROLE_WORKER;
}

/* True if the server task is part of the job. */
static inline bool sl_coordinator_has_ps(const struct sl_coordinator *coordinator, uint32_t task)
{
    const enum sl_coordinator_place place = coordinator->ps[task].place;
    return place == SL_COORDINATOR_AT_START ? task < coordinator->options.ps_count
                                            : place != SL_COORDINATOR_DRAINED;
}

/* True if a process has registered for the server task. */
static inline bool sl_coordinator_is_known(const struct sl_coordinator_ps *ps)
{
    return ps->data_endpoint[0] != '\0';
}

/* Frees a member that is in no list. */
void sl_coordinator_free_member(struct sl_coordinator_member *member);

/* Sends a message, unless the member is disconnected. */
void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message);

/* Reports a changed record. Every change of a field that record.c writes must call it before a
 * message that depends on the change is sent. */
void sl_coordinator_note(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                         uint32_t index);

/* Reports the changed record of a member. Clients have no record. */
void sl_coordinator_note_member(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member);

/* Sets the job to one that has not begun, with the worker count of the options. */
void sl_coordinator_reset_job(struct sl_coordinator *coordinator);

/* Answers request `id` with an Error, and logs it. */
void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Returns the member with this role and task index, or NULL. Clients have no task. */
struct sl_coordinator_member *sl_coordinator_find(const struct sl_coordinator *coordinator,
                                                  enum sl_message_role role, uint32_t task_index);

/* Counts the workers of the job, i.e. those that a barrier of count 0 waits for: tasks below
 * worker_count that have not left or expired, and joined workers beyond it. */
uint32_t sl_coordinator_count_workers(struct sl_coordinator *coordinator);

#endif
