/* Declarations shared by the coordinator's files only. Owner reactor. */
#ifndef SL_PS_COORDINATOR_INTERNAL_H
#define SL_PS_COORDINATOR_INTERNAL_H

#include "core/log.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/waiter.h"

/* Completed barriers kept per member, by request id: as many as it may have to ask for again. */
#define SL_COORDINATOR_DONE_IDS           16

#define SL_COORDINATOR_CLUSTER_OF_RECORDS UINT32_MAX

struct sl_coordinator_member {
    struct sl_message_hello hello;
    sl_coordinator_peer peer;
    char name[SL_MESSAGE_NAME_BYTES];
    bool connected;          /* false: disconnected, and peer is invalid */
    uint64_t last_seen_ns;   /* when its last message arrived */
    uint64_t lease_from_ns;  /* the lease counts from the later of this and last_seen_ns: a grace
                                period when messages could not be read or sent */
    uint64_t replacement_id; /* client_id of a process that wants this task; 0: none */
    uint64_t rival_ns;       /* when that process first asked */
    bool registered;
    bool waits_for_cluster;
    struct sl_coordinator_waiter cluster_waiter; /* its Register, while waits_for_cluster */
    uint32_t cluster_version; /* last one sent to it; 0: none; OF_RECORDS: unknown, loaded from
                                 records */

    /* Server: expirations since this time may not have reached it. SL_CLOCK_NEVER: it has them all;
     * 0: it is a new process and needs every worker that no longer counts. */
    uint64_t missed_expirations_since_ns;

    /* Ring of completed barriers sent to this member; 0: unused. */
    uint64_t done_ids[SL_COORDINATOR_DONE_IDS];
    uint32_t done_next;
};

/* State of a server task, whether or not a process holds it. */
struct sl_coordinator_ps {
    uint32_t shard_count;  /* 0: never registered, and the rest is unknown */
    uint64_t client_id;    /* of the last process that registered */
    uint64_t last_seen_ns; /* of that process, when its membership ended */
    bool restarted;        /* the task had an earlier process */
    bool gone;             /* the process expired or left early, and no other replaced it */
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char host[SL_MESSAGE_NAME_BYTES];
    bool serving;                         /* it was already serving when it first registered */
    uint64_t restore;                     /* checkpoint it restores; 0: none */
    struct sl_message_numbers complete;   /* restorable ones; used until the job begins */
    struct sl_message_numbers unfinished; /* likewise; files without a manifest */
    bool ack_pending;                     /* its CheckpointPart or CheckpointDone is outstanding */

    /* The replica group of this server's own shards: replica_group.c. */
    uint32_t replicas;   /* backups of each shard: 0 or 1 */
    uint64_t epoch;      /* 0: no backups, or the cluster is not ready */
    uint32_t primary;    /* task index: this server or the next one */
    uint32_t backup;     /* the other of the two, or SL_MESSAGE_NO_BACKUP */
    bool in_sync;        /* the backup has all acknowledged writes */
    uint64_t deposed_id; /* client_id of the primary that was last replaced by promotion */
    uint64_t degraded_since_ns, degraded_told_ns; /* degraded since; last warning; 0: in sync */
    uint32_t failures; /* failed catch-ups since the backup was last in sync */
    uint64_t retry_ns; /* when the next epoch begins after a failure; 0: none is due */

    /* Replica reports of this server; used until the cluster is ready. */
    struct sl_message_replica_report reports[SL_MESSAGE_REPLICA_REPORTS_MAX];
    uint32_t report_count;
};

enum sl_coordinator_end {
    SL_COORDINATOR_END_NONE,
    SL_COORDINATOR_END_LEFT,
    SL_COORDINATOR_END_EXPIRED,
    SL_COORDINATOR_END_REPLACED,
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
    uint32_t told_count;
};

struct sl_coordinator_barrier {
    char name[SL_MESSAGE_NAME_BYTES];
    uint32_t count; /* 0: all workers of the job */
    uint32_t arrived;
    uint32_t workers_arrived;               /* part of `arrived` */
    struct sl_coordinator_waiter *arrivals; /* [arrived], of one member each */
    uint32_t arrivals_max;
    struct sl_coordinator_barrier *next;
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
    uint32_t owed;                            /* servers with ack_pending */
    struct sl_message_checkpoint_file *files; /* [file_count], by shard; NULL in IDLE */
    uint32_t file_count;
    bool has_worker;     /* some shard in it has served a worker */
    uint64_t max_seen;   /* greatest number known to any server */
    uint64_t delta_base; /* complete checkpoint the next incremental is based on; 0: the next must
                            be full */
    uint64_t last_on_all_servers; /* newest complete checkpoint that all servers have; 0: unknown */
    uint64_t job_latest;   /* newest complete one, or the one the job restored; servers that join
                              later restore none above it */
    uint32_t incrementals; /* complete incrementals since the last full one */
    uint64_t next_ns;      /* when the next is due; SL_CLOCK_NEVER: never */
};

struct sl_coordinator {
    struct sl_coordinator_options options;
    uint64_t ticked_ns;            /* last tick; 0: none yet */
    struct sl_log_limit log_limit; /* for lines about disconnecting members */
    /* Parallel arrays, so that a search by peer touches little memory; unordered. */
    sl_coordinator_peer *peers;
    struct sl_coordinator_member **members;
    uint32_t member_count, member_max;
    struct sl_coordinator_ps *ps;                  /* [ps_count] */
    struct sl_coordinator_worker *workers;         /* [SL_LIMIT_WORKERS] */
    uint32_t worker_count;                         /* of the job; 0: unknown */
    char worker_count_from[SL_MESSAGE_NAME_BYTES]; /* the member or option that set it */
    uint32_t unnotified_count;                     /* workers with `unnotified` */
    bool job_workers_known;                        /* job_workers is valid */
    uint32_t job_workers;
    uint32_t cluster_version;     /* from 1; grows when the cluster changes */
    struct sl_table_spec *tables; /* by id; empty name: id is free */
    uint32_t table_count;         /* ids in use are below it */
    uint32_t table_max;
    struct sl_coordinator_barrier *barriers;
    uint32_t barrier_count;
    bool has_older_tables; /* the job is older than this coordinator: a server that is serving, or a
                              table opened with keep_id, proves it */
    uint32_t values_lost;  /* 1 + index of the server that restarted without values; 0: none */
    bool cluster_ready;    /* the cluster was complete once and sent to members */
    uint64_t restore;      /* checkpoint that the job began from; 0: none */
    uint64_t abandoned_to; /* checkpoints above `restore` up to this one are abandoned */
    struct sl_coordinator_checkpoint checkpoint;
    struct sl_coordinator_checkpoint_request *asks; /* newest first */
    uint32_t ask_count;
    struct sl_coordinator_done done[SL_COORDINATOR_DONE_BARRIERS]; /* ring; for `changed` */
    uint64_t done_number;            /* serial number of the last one */
    uint64_t recovery_deadline_ns;   /* of loaded records (sl_coordinator_record_end); 0: none */
    enum sl_coordinator_stage stage; /* WAITING_FOR_MEMBERS if stages are not tracked */
    uint64_t stage_ns;  /* when the stage began; WAITING_FOR_MEMBERS: first tick, 0 before */
    uint64_t remind_ns; /* when to log the missing tasks again */
    bool never_began;   /* the job ended before it began */
    int end_err;        /* of ENDING; DEADLINE: start timeout */
    char end_why[SL_MESSAGE_TEXT_BYTES];
};

static inline bool sl_coordinator_is_ps(const struct sl_coordinator_member *member)
{
    return member->hello.role == SL_MESSAGE_ROLE_PS;
}

static inline bool sl_coordinator_is_worker(const struct sl_coordinator_member *member)
{
    return member->hello.role == SL_MESSAGE_ROLE_WORKER;
}

/* coordinator.c */

/* Sends a message, unless the member is disconnected. */
void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message);

/* Reports a changed record. Every change of a field that record.c writes must call it before a
 * message that depends on the change is sent. */
void sl_coordinator_note(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                         uint32_t index);

/* Resets the coordinator to an empty job and erases its records. */
void sl_coordinator_forget(struct sl_coordinator *coordinator);

/* Answers request `id` with an Error, and logs it. */
void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Returns the member with this role and task index, or NULL. Clients have no task. */
struct sl_coordinator_member *sl_coordinator_find(const struct sl_coordinator *coordinator,
                                                  enum sl_message_role role, uint32_t task_index);

/* Reallocates *items to `max` items. Returns false if there is no memory. */
bool sl_coordinator_grow(void **items, size_t item_bytes, uint32_t max);

/* member.c */

/* Returns the member of a connection, or NULL. */
struct sl_coordinator_member *sl_coordinator_member_of(const struct sl_coordinator *coordinator,
                                                       sl_coordinator_peer peer);

/* Handles a goodbye: removes and frees the member. */
void sl_coordinator_member_leave(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member, uint64_t now_ns);

/* expiry.c */

/* Notifies all servers and workers that a member ended. A server that has not received the cluster
 * on its connection is notified after it does. */
void sl_coordinator_expiry_notify(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *expired,
                                  enum sl_coordinator_end end);

/* Notifies restarted servers that workers left, one lease after they left. A leaving worker
 * notifies the shards it is connected to, but a restarted server may have shards that it never
 * reached and that still wait for it. After a lease its own notification can no longer be in
 * flight. */
void sl_coordinator_expiry_notify_departures(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Sends a server, which has just received the cluster, the expirations that it may have missed. */
void sl_coordinator_expiry_notify_missed(struct sl_coordinator *coordinator,
                                         struct sl_coordinator_member *ps);

/* Records that a promoted server may have missed expirations, given when the former primary was
 * last seen. */
void sl_coordinator_expiry_owe(struct sl_coordinator *coordinator, struct sl_coordinator_member *ps,
                               uint64_t heard_ns);

/* Returns the time from which a server last seen at heard_ns may have missed expirations: messages
 * sent up to one lease earlier may not have arrived. */
uint64_t sl_coordinator_expiry_since(const struct sl_coordinator *coordinator, uint64_t heard_ns);

/* member.c, continued */

/* Expires members whose lease has ended. */
void sl_coordinator_member_expire(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Reports the changed record of a member. Clients have no record. */
void sl_coordinator_member_note(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member);

/* Adds a member from the records, disconnected. Errors: NO_MEMORY. */
int sl_coordinator_member_restore(struct sl_coordinator *coordinator, enum sl_message_role role,
                                  uint32_t task, uint64_t client_id, bool registered);

/* Counts the workers of the job, i.e. those that a barrier of count 0 waits for: tasks below
 * worker_count that have not left or expired, and joined workers beyond it. */
uint32_t sl_coordinator_member_job_workers(struct sl_coordinator *coordinator);

/* task.c */

/* Assigns a task_index to a hello with any_task. Errors: AGAIN (none is free), with reason. */
int sl_coordinator_task_choose(const struct sl_coordinator *coordinator,
                               struct sl_message_hello *hello, char *reason, size_t reason_bytes);

/* job.c */

/* Appends the workers without which the job cannot begin. total: entries so far; returns the new
 * total. */
uint32_t sl_coordinator_job_missing(const struct sl_coordinator *coordinator, uint32_t total,
                                    struct sl_message_waiting *waiting);

/* Starts the job, unless it has begun. Call when every task has registered. */
void sl_coordinator_job_begin(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Advances the stage of the job after a change or a tick. missing_count: missing tasks on a tick,
 * else 0. */
void sl_coordinator_job_update(struct sl_coordinator *coordinator, uint32_t missing_count,
                               uint64_t now_ns);

/* Sends the end of the job to a server, if the job is ending. */
void sl_coordinator_job_notify_end(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member);

/* Refuses a registration if the job ended before it began. Returns true if so. */
bool sl_coordinator_job_refuses(struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member, uint64_t request);

/* Checks that the job has not ended. Servers of the job are always admitted. Errors: REFUSED. */
int sl_coordinator_job_admits(const struct sl_coordinator *coordinator,
                              const struct sl_message_hello *hello, char *reason,
                              size_t reason_bytes);

/* cluster.c */

void sl_coordinator_cluster_register(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member,
                                     const struct sl_message *message, uint64_t now_ns);

/* Appends the missing servers. Returns their number. */
uint32_t sl_coordinator_cluster_list_missing_ps(const struct sl_coordinator *coordinator,
                                                struct sl_message_waiting *waiting);

/* Sends the cluster, or Waiting messages, to members that need them. */
void sl_coordinator_cluster_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Sends the cluster to members that have an older version, as far as missing servers allow. */
void sl_coordinator_cluster_update(struct sl_coordinator *coordinator, uint64_t now_ns);

/* restore.c */

/* Before the job begins: checks that all registered servers and this one share a restorable
 * checkpoint, or that none has one. Otherwise refuses the registration and returns false. */
bool sl_coordinator_restore_agrees(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member,
                                   const struct sl_message *message);

/* Chooses the checkpoint to restore, once every server has registered. */
void sl_coordinator_restore_form(struct sl_coordinator *coordinator);

/* Returns the checkpoint that a replacement server restores while the job runs. */
uint64_t sl_coordinator_restore_later(const struct sl_coordinator *coordinator,
                                      const struct sl_message_register *reg);

/* Call when a server process has started after the job's tables were created. If it serves shards
 * but restored no values, the function sets values_lost: later checkpoints are refused, and every
 * member is informed. */
void sl_coordinator_restore_check_values(struct sl_coordinator *coordinator, uint32_t task);

/* replica_group.c */

/* Counts the degraded shards. */
uint32_t sl_coordinator_replica_alone(const struct sl_coordinator *coordinator);

/* Retries failed catch-ups, and logs degraded shards once a minute. */
void sl_coordinator_replica_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Returns true if the job cannot run without this server: it is the primary of some shards. */
bool sl_coordinator_replica_needs(const struct sl_coordinator *coordinator, uint32_t task);

/* Returns the primary of the shards that belong to `owner`. */
uint32_t sl_coordinator_replica_primary(const struct sl_coordinator *coordinator, uint32_t owner);

/* Returns the error in the replica settings of a registering server, or NULL. */
const char *sl_coordinator_replica_check(const struct sl_coordinator *coordinator,
                                         const struct sl_coordinator_member *member,
                                         const struct sl_message_register *reg);

/* Creates the replica groups, once every server has registered. */
void sl_coordinator_replica_begin(struct sl_coordinator *coordinator);

/* Makes a registered server the backup of groups that need one, and applies its replica reports. */
void sl_coordinator_replica_register(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member,
                                     const struct sl_message_register *reg, bool is_new,
                                     uint64_t now_ns);

/* Updates the groups of a server that is no longer a member; heard_ns: when it was last seen. */
void sl_coordinator_replica_lose(struct sl_coordinator *coordinator, uint32_t task,
                                 uint64_t heard_ns);

/* Fills in the replica group of a server for the Cluster message. */
void sl_coordinator_replica_fill(const struct sl_coordinator *coordinator, uint32_t task,
                                 struct sl_message_ps *out);

/* table.c */

void sl_coordinator_table_open(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message);

/* Answers with table names only; the shards have their statistics. */
void sl_coordinator_table_stats(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member, uint64_t id);

/* barrier.c */

void sl_coordinator_barrier_come(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member,
                                 const struct sl_message *message, uint64_t now_ns);

/* Removes the member from all barriers. */
void sl_coordinator_barrier_leave(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member);

/* Completes barriers of all workers after the number of workers has fallen. */
void sl_coordinator_barrier_update(struct sl_coordinator *coordinator);

/* Sends Waiting messages and fails timed-out requests. */
void sl_coordinator_barrier_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_barrier_fini(struct sl_coordinator *coordinator);

/* checkpoint.c */

void sl_coordinator_checkpoint_part(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns);
void sl_coordinator_checkpoint_done(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns);

/* Starts the checkpoint interval when the cluster is first ready. */
void sl_coordinator_checkpoint_formed(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Takes checkpoint numbers from a Register. Call before the server counts as registered. is_new:
 * another process than before. */
void sl_coordinator_checkpoint_register(struct sl_coordinator *coordinator,
                                        const struct sl_coordinator_member *member,
                                        const struct sl_message_register *reg, bool is_new,
                                        uint64_t now_ns);

/* Repeats the pending message to a registered server: the first one, or its answer, may be lost
 * with a connection. */
void sl_coordinator_checkpoint_tell(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member);

/* Handles the end of a membership. */
void sl_coordinator_checkpoint_leave(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member, bool is_expired,
                                     uint64_t now_ns);

/* Aborts the current checkpoint because the job lost values (values_lost). */
void sl_coordinator_checkpoint_lose(struct sl_coordinator *coordinator);

/* Begins the next checkpoint if it is due or requested and no server is missing. */
void sl_coordinator_checkpoint_update(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Names the servers that the current checkpoint waits for, or that the next one needs. */
void sl_coordinator_checkpoint_list_missing(const struct sl_coordinator *coordinator,
                                            struct sl_message_waiting *waiting);

void sl_coordinator_checkpoint_tick(struct sl_coordinator *coordinator, uint64_t now_ns);
void sl_coordinator_checkpoint_fini(struct sl_coordinator *coordinator);

/* checkpoint_request.c */

void sl_coordinator_checkpoint_request_come(struct sl_coordinator *coordinator,
                                            struct sl_coordinator_member *member,
                                            const struct sl_message *message, uint64_t now_ns);

/* Drops the requests of a former member. */
void sl_coordinator_checkpoint_request_leave(struct sl_coordinator *coordinator,
                                             const struct sl_coordinator_member *member);

/* Returns true if a request is waiting. Requests of stopping servers count when every server has
 * asked, or after one second. */
bool sl_coordinator_checkpoint_request_is_due(const struct sl_coordinator *coordinator,
                                              uint64_t now_ns);

/* Refuses requests of stopping servers: they do not wait for a missing server to restart. */
void sl_coordinator_checkpoint_request_refuse_ps(struct sl_coordinator *coordinator,
                                                 const char *missing);

/* Assigns waiting requests to a checkpoint that begins. Returns true if one is from a server. */
bool sl_coordinator_checkpoint_request_take(struct sl_coordinator *coordinator, uint64_t number);

/* Answers the requests of a checkpoint; number 0: those that wait for the next one. */
void sl_coordinator_checkpoint_request_answer(struct sl_coordinator *coordinator, uint64_t number,
                                              const struct sl_message *answer);

/* Sends Waiting messages and fails timed-out requests. */
void sl_coordinator_checkpoint_request_tick(struct sl_coordinator *coordinator, uint64_t now_ns);
void sl_coordinator_checkpoint_request_fini(struct sl_coordinator *coordinator);
/* record.c */

/* While loaded records await a known server: admits only such a server. Errors: AGAIN. */
int sl_coordinator_record_admits(struct sl_coordinator *coordinator,
                                 const struct sl_message_hello *hello, char *reason,
                                 size_t reason_bytes);

/* Erases loaded records whose recovery deadline has passed. */
void sl_coordinator_record_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_record_fini(struct sl_coordinator *coordinator);

/* table.c, for the records */

/* Stores a table under a given id. Errors: NO_MEMORY. */
int sl_coordinator_table_restore(struct sl_coordinator *coordinator, uint32_t id,
                                 const struct sl_table_spec *spec);

/* barrier.c, for the records */

/* Records a completed barrier in the ring, and reports the changed record. */
void sl_coordinator_barrier_note_done(struct sl_coordinator *coordinator,
                                      const struct sl_coordinator_barrier *barrier);

#endif
