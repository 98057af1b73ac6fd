/* What the coordinator's files share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_COORDINATOR_INTERNAL_H
#define SL_PS_COORDINATOR_INTERNAL_H

#include "core/log.h"
#include "ps/coordinator/coordinator.h"

/* Barriers that were done, by request id: as many as a member may have to ask for again. */
#define SL_COORDINATOR_DONE_IDS           16

#define SL_COORDINATOR_CLUSTER_OF_RECORDS UINT32_MAX

struct sl_coordinator_member {
    struct sl_message_hello hello;
    sl_coordinator_peer peer;
    char name[SL_MESSAGE_NAME_BYTES]; /* "ps/1", "worker/3", "client ..." */
    bool connected;                   /* else it is away, and peer means nothing */
    uint64_t last_seen_ns;            /* when it last sent something */
    uint64_t lease_from_ns;           /* likewise as far as its lease goes: we read nothing then */
    uint64_t replacement_id;          /* the process that wants its place; 0: none does */
    uint64_t rival_ns;                /* when that one first said so */
    bool registered;
    bool waits_for_cluster;
    uint64_t cluster_request; /* whose answer it waits for */
    uint32_t cluster_version; /* that it was told; 0: none; OF_RECORDS: it may have been */
    uint64_t remind_ns;       /* when to send it the next Waiting */

    /* ps: losses from this time on may not have reached it. SL_CLOCK_NEVER: all have; 0: it is a
     * new process, which has to know who does not count. */
    uint64_t missed_expirations_since_ns;

    /* Barriers that it was told are done, in a ring; an id is not 0. */
    uint64_t done_ids[SL_COORDINATOR_DONE_IDS];
    uint32_t done_next;
};

/* What is known of a ps, member or not. */
struct sl_coordinator_ps {
    uint32_t shard_count;  /* since it first registered; else 0, and nothing is known */
    uint64_t client_id;    /* of the process that registered last */
    uint64_t last_seen_ns; /* of that process, when its membership ended */
    bool restarted;        /* it is not the first process of its task */
    bool gone;             /* that process was lost, or left before the end, and none came since */
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char host[SL_MESSAGE_NAME_BYTES];     /* as it registered */
    bool serving;                         /* it had begun when it registered first */
    uint64_t restore;                     /* the checkpoint that it begins from; 0: none */
    struct sl_message_numbers complete;   /* as it registered; of use before the job begins */
    struct sl_message_numbers unfinished; /* likewise */
    bool ack_pending; /* its part of the one that is being made, or its manifest */

    /* Of its shards: coordinator_replica.c. */
    uint32_t replicas;   /* as it registered */
    uint64_t epoch;      /* 0: there are no backups, or the cluster has not come together */
    uint32_t primary;    /* a task: itself or the one behind */
    uint32_t backup;     /* likewise, the other; SL_MESSAGE_NO_BACKUP: none */
    bool in_sync;        /* the backup has all that was acknowledged */
    uint64_t deposed_id; /* the process that the last take-over was from */
    uint64_t degraded_since_ns, degraded_told_ns; /* has no backup in step; 0: has one */
    uint32_t failures; /* epochs since it was in step whose backup failed before it was */
    uint64_t retry_ns; /* when the next epoch begins after such a failure; 0: none is due */

    /* What it has said of its pairs: of use before the cluster comes together here. */
    struct sl_message_replica_report reports[SL_MESSAGE_REPLICA_REPORTS_MAX];
    uint32_t report_count;
};

enum sl_coordinator_end {
    SL_COORDINATOR_END_NONE,
    SL_COORDINATOR_END_LEFT,
    SL_COORDINATOR_END_EXPIRED,
    SL_COORDINATOR_END_REPLACED,
};

/* How the last process that had a worker's index and is no member any more has ended. */
struct sl_coordinator_worker {
    enum sl_coordinator_end end;
    uint64_t end_ns;
    uint64_t client_id;
    bool left_job;   /* the job does not count it until it comes again */
    bool unnotified; /* a ps that was restarted is yet to be told that it has left */
};

/* One who waits at a barrier. */
struct sl_coordinator_arrival {
    struct sl_coordinator_member *member;
    uint64_t request;
    uint64_t remind_ns;
    uint64_t deadline_ns; /* SL_CLOCK_NEVER: none */
    uint32_t timeout_ms;
};

/* A barrier that is done: who was told so, under which request. */
struct sl_coordinator_notified {
    uint64_t client_id, request;
};

struct sl_coordinator_done {
    uint64_t number; /* of the barrier, from 1; 0: none */
    struct sl_coordinator_notified *notified;
    uint32_t told_count;
};

struct sl_coordinator_barrier {
    char name[SL_MESSAGE_NAME_BYTES];
    uint32_t count; /* 0: all workers of the job */
    uint32_t arrived;
    uint32_t workers_arrived;                /* of them */
    struct sl_coordinator_arrival *arrivals; /* [arrivals_max] */
    uint32_t arrivals_max;
    struct sl_coordinator_barrier *next;
};

/* One who waits for a checkpoint. */
struct sl_coordinator_checkpoint_request {
    struct sl_coordinator_checkpoint_request *next;
    const struct sl_coordinator_member *member;
    uint64_t request;
    uint64_t number; /* that answers it; 0: the next that begins */
    uint64_t asked_ns;
    uint64_t remind_ns;
    uint64_t deadline_ns; /* SL_CLOCK_NEVER: none */
    uint32_t timeout_ms;
};

enum sl_coordinator_checkpoint_stage {
    SL_COORDINATOR_CHECKPOINT_IDLE,
    SL_COORDINATOR_CHECKPOINT_WRITING,    /* the ps write their files */
    SL_COORDINATOR_CHECKPOINT_PUBLISHING, /* all have; they write the manifest */
};

struct sl_coordinator_checkpoint {
    enum sl_coordinator_checkpoint_stage stage;
    uint64_t number, base;                    /* of the one that is being made, or was last */
    uint64_t begun_ns, stage_ns, ended_ns;    /* stage_ns: since when it is in its stage */
    uint64_t time_ms;                         /* when it began */
    bool is_last;                             /* a ps has asked for it, since it ends */
    uint32_t owed;                            /* ps that have not said what this stage waits for */
    struct sl_message_checkpoint_file *files; /* [file_count], by shard; NULL in IDLE */
    uint32_t file_count;
    bool has_worker;              /* one of them is of a shard that knew a worker */
    uint64_t max_seen;            /* the greatest number that anyone knows of */
    uint64_t delta_base;          /* that the next may add to; 0: it has to be a full one */
    uint64_t last_on_all_servers; /* the newest complete one, which every ps has; 0: not known */
    uint64_t
        job_latest; /* of the job, or that it began from: who comes later begins from none above */
    uint32_t incrementals; /* complete ones since the last full one */
    uint64_t next_ns;      /* when the next is due; SL_CLOCK_NEVER: never */
};

struct sl_coordinator {
    struct sl_coordinator_options options;
    uint64_t ticked_ns;            /* 0: never */
    struct sl_log_limit log_limit; /* of lines about members that disconnect */
    /* Side by side, so that a search by peer reads little memory; in no order. */
    sl_coordinator_peer *peers;
    struct sl_coordinator_member **members;
    uint32_t member_count, member_max;
    struct sl_coordinator_ps *ps;                  /* [server_count] */
    struct sl_coordinator_worker *workers;         /* [SL_LIMIT_WORKERS] */
    uint32_t worker_count;                         /* of the job; 0: nobody has said */
    char worker_count_from[SL_MESSAGE_NAME_BYTES]; /* who said it first */
    uint32_t unnotified_count;                     /* of workers */
    bool job_workers_known;                        /* else they have to be counted anew */
    uint32_t job_workers;
    uint32_t cluster_version;     /* grows when a ps has come back or moved; from 1 */
    struct sl_table_spec *tables; /* by id; an empty name: the id is free */
    uint32_t table_count;         /* ids below it may be in use */
    uint32_t table_max;
    struct sl_coordinator_barrier *barriers;
    uint32_t barrier_count;
    bool has_older_tables; /* the job is older than this coordinator: a ps that serves, or a worker
                            * that keeps a table's id, has tables of it */
    uint32_t values_lost;  /* 1 + the task of a ps that came back without its values; 0: none */
    bool cluster_ready;    /* the cluster has been told */
    uint64_t restore;      /* that the job began from */
    uint64_t abandoned_to; /* those above `restore` up to this were there then */
    struct sl_coordinator_checkpoint checkpoint;
    struct sl_coordinator_checkpoint_request *asks; /* the last first */
    uint32_t ask_count;
    struct sl_coordinator_done done[SL_COORDINATOR_DONE_BARRIERS]; /* where it has `changed` */
    uint64_t done_number;                                          /* of the last */
    uint64_t recovery_deadline_ns;   /* the records may be of another job; 0: they are not */
    enum sl_coordinator_stage stage; /* of a job whose course is not followed: GATHERING */
    uint64_t stage_ns;               /* since when; GATHERING: since the first tick, 0 before */
    uint64_t remind_ns;              /* when to log the next time who is missing */
    bool never_began;                /* it has ended before */
    int end_err;                     /* of ENDING; DEADLINE: it was never begun */
    char end_why[SL_MESSAGE_TEXT_BYTES];
};

/* ---- coordinator.c ---- */

/* To a member that is away nothing is sent. */
void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message);

/* The record has changed. Whoever changes what coordinator_record.c writes says so here, before he
 * sends what rests on it. */
void sl_coordinator_note(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                         uint32_t index);

/* As before the first hello, of a job that nobody has come to. */
void sl_coordinator_forget(struct sl_coordinator *coordinator);

/* Answers request `id` with an Error, and logs it. */
void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The member of that role and task, or NULL. Not for clients, which have no task. */
struct sl_coordinator_member *sl_coordinator_find(const struct sl_coordinator *coordinator,
                                                  enum sl_message_role role, uint32_t task_index);

/* Appends a name; the last place of a full list says how many more there are. */
void sl_coordinator_list_missing(struct sl_message_waiting *waiting, uint32_t *missing_total,
                                 const char *role, uint32_t task_index);

/* Makes room in an array that is allocated anew when full; false: no memory. */
bool sl_coordinator_grow(void **items, size_t item_bytes, uint32_t max);

/* ---- coordinator_member.c ---- */

/* The member that the connection belongs to, or NULL. */
struct sl_coordinator_member *sl_coordinator_member_of(const struct sl_coordinator *coordinator,
                                                       sl_coordinator_peer peer);

/* It said goodbye: it is no member any more. Frees it. */
void sl_coordinator_member_leave(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member, uint64_t now_ns);

/* ---- coordinator_loss.c ---------------------------------------------------------------------- */

/* Tells every ps and every worker that a member has ended; a ps that does not know the cluster
 * (yet, or since its connection broke) is told when it does. */
void sl_coordinator_expiry_notify(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *expired,
                                  enum sl_coordinator_end end);

/* Those who left have told the shards that they reached. A ps that was restarted shortly before may
 * have shards that they never reached, which wait for them: it is told when a lease has passed, for
 * then no shard that they did reach is changed by it any more. */
void sl_coordinator_expiry_notify_departures(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Tells a ps, which knows the cluster now, of the losses that it may have missed. */
void sl_coordinator_expiry_notify_missed(struct sl_coordinator *coordinator,
                                         struct sl_coordinator_member *ps);

/* A ps takes over from one that was heard last at that time: it may have missed losses since. */
void sl_coordinator_expiry_owe(struct sl_coordinator *coordinator, struct sl_coordinator_member *ps,
                               uint64_t heard_ns);

/* From when on a ps may have missed losses, when it was heard last at last_seen_ns: what was sent
 * to it less than a lease before may not have arrived. */
uint64_t sl_coordinator_expiry_since(const struct sl_coordinator *coordinator, uint64_t heard_ns);

/* Those whose lease has ended are lost. */
void sl_coordinator_member_expire(struct sl_coordinator *coordinator, uint64_t now_ns);

/* The record of a member has changed; not for clients, which have none. */
void sl_coordinator_member_note(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member);

/* A member as the records have it: away from now on. Errors: NO_MEMORY. */
int sl_coordinator_member_restore(struct sl_coordinator *coordinator, enum sl_message_role role,
                                  uint32_t task, uint64_t client_id, bool registered);

/* Workers of the job: those that a barrier of count 0 waits for. */
uint32_t sl_coordinator_member_job_workers(struct sl_coordinator *coordinator);

/* ---- coordinator_task.c ---- */

/* Gives a hello with any_task its task_index. Errors: AGAIN (no place), with reason. */
int sl_coordinator_task_choose(const struct sl_coordinator *coordinator,
                               struct sl_message_hello *hello, char *reason, size_t reason_bytes);

/* ---- coordinator_job.c ---- */

/* Appends the workers without which the job does not begin; total: of those that are missing. */
uint32_t sl_coordinator_job_missing(const struct sl_coordinator *coordinator, uint32_t total,
                                    struct sl_message_waiting *waiting);

/* Nobody is missing: the job runs, if it did not. */
void sl_coordinator_job_begin(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Something has changed, or time has passed. missing_count: of those for whom the others wait, in
 * the latter case; else 0. */
void sl_coordinator_job_update(struct sl_coordinator *coordinator, uint32_t missing_count,
                               uint64_t now_ns);

/* Tells a ps that the job has ended, if it has. */
void sl_coordinator_job_notify_end(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member);

/* Refuses one that registers in vain, since the job has ended before it began; true: so it is. */
bool sl_coordinator_job_refuses(struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member, uint64_t request);

/* Whether it comes in time. Errors: REFUSED. */
int sl_coordinator_job_admits(const struct sl_coordinator *coordinator,
                              const struct sl_message_hello *hello, char *reason,
                              size_t reason_bytes);

/* ---- coordinator_cluster.c ---- */

void sl_coordinator_cluster_register(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member,
                                     const struct sl_message *message, uint64_t now_ns);

/* Appends the ps that are not there; returns how many. */
uint32_t sl_coordinator_cluster_list_missing_ps(const struct sl_coordinator *coordinator,
                                                struct sl_message_waiting *waiting);

/* Tells the cluster to those who do not know it, or for whom they wait. */
void sl_coordinator_cluster_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Tells the cluster at once to those who know an older one, unless somebody is missing. */
void sl_coordinator_cluster_update(struct sl_coordinator *coordinator, uint64_t now_ns);

/* ---- coordinator_restore.c ---- */

/* The job has not begun: whether there is one checkpoint that this ps and all that are there can
 * begin from, or all can begin with nothing; else refuses it. */
bool sl_coordinator_restore_agrees(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member,
                                   const struct sl_message *message);

/* Every ps has registered: which one each begins from. */
void sl_coordinator_restore_form(struct sl_coordinator *coordinator);

/* The job runs: which one a ps begins from that comes in the place of another. */
uint64_t sl_coordinator_restore_later(const struct sl_coordinator *coordinator,
                                      const struct sl_message_register *reg);

/* Call when a ps process has started after the job's tables were created. If the ps serves shards
 * and began them without values, the function marks the values lost: checkpoints are refused from
 * then on, and every member is informed. */
void sl_coordinator_restore_check_values(struct sl_coordinator *coordinator, uint32_t task);

/* ---- coordinator_replica.c ---- */

/* How many shards have no backup in step, though there shall be one. */
uint32_t sl_coordinator_replica_alone(const struct sl_coordinator *coordinator);

/* Says so now and then. */
void sl_coordinator_replica_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* The job cannot go on without that ps: it is the primary of some shards. */
bool sl_coordinator_replica_needs(const struct sl_coordinator *coordinator, uint32_t task);

/* Who serves the shards of that ps. */
uint32_t sl_coordinator_replica_primary(const struct sl_coordinator *coordinator, uint32_t owner);

/* What is wrong with the replicas of a ps that registers, or NULL. */
const char *sl_coordinator_replica_check(const struct sl_coordinator *coordinator,
                                         const struct sl_coordinator_member *member,
                                         const struct sl_message_register *reg);

/* Every ps has registered: the first epoch, where there are backups. */
void sl_coordinator_replica_begin(struct sl_coordinator *coordinator);

/* A ps has registered, as a new process or anew: it gets the backups that nobody has, and says how
 * those of its shards get on. */
void sl_coordinator_replica_register(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member,
                                     const struct sl_message_register *reg, bool is_new,
                                     uint64_t now_ns);

/* A ps, heard last at that time, is no member any more. */
void sl_coordinator_replica_lose(struct sl_coordinator *coordinator, uint32_t task,
                                 uint64_t heard_ns);

/* What the cluster says of the shards of that ps. */
void sl_coordinator_replica_fill(const struct sl_coordinator *coordinator, uint32_t task,
                                 struct sl_message_ps *out);

/* ---- coordinator_table.c ---- */

void sl_coordinator_table_open(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message);

/* Answers with the tables by name; what they hold is known to the shards only. */
void sl_coordinator_table_stats(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member, uint64_t id);

/* ---- coordinator_barrier.c ---- */

void sl_coordinator_barrier_come(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member,
                                 const struct sl_message *message, uint64_t now_ns);

/* It waits nowhere any more. */
void sl_coordinator_barrier_leave(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member);

/* The workers of the job are fewer: barriers of all of them may be complete. */
void sl_coordinator_barrier_update(struct sl_coordinator *coordinator);

/* Reminds those who wait for whom, and answers those who give up. */
void sl_coordinator_barrier_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_barrier_fini(struct sl_coordinator *coordinator);

/* ---- coordinator_checkpoint.c ---- */

void sl_coordinator_checkpoint_part(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns);
void sl_coordinator_checkpoint_done(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns);

/* The cluster has been told for the first time. */
void sl_coordinator_checkpoint_formed(struct sl_coordinator *coordinator, uint64_t now_ns);

/* A ps says what it knows, and is not counted as registered yet. is_new: it is another process than
 * the one before. */
void sl_coordinator_checkpoint_register(struct sl_coordinator *coordinator,
                                        const struct sl_coordinator_member *member,
                                        const struct sl_message_register *reg, bool is_new,
                                        uint64_t now_ns);

/* To a ps that has registered, and may have been so before: what it was told, and what it has said,
 * may have been lost with a connection. */
void sl_coordinator_checkpoint_tell(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member);

/* It is no member any more. */
void sl_coordinator_checkpoint_leave(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member, bool is_expired,
                                     uint64_t now_ns);

/* The job has lost values (values_lost): gives up the checkpoint that is being made, if there is
 * one. */
void sl_coordinator_checkpoint_lose(struct sl_coordinator *coordinator);

/* Begins the next one when it is due, or somebody waits for it, and nothing keeps it. */
void sl_coordinator_checkpoint_update(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Names the ps for which it waits, or without which none can begin. */
void sl_coordinator_checkpoint_list_missing(const struct sl_coordinator *coordinator,
                                            struct sl_message_waiting *waiting);

void sl_coordinator_checkpoint_tick(struct sl_coordinator *coordinator, uint64_t now_ns);
void sl_coordinator_checkpoint_fini(struct sl_coordinator *coordinator);

/* ---- coordinator_ask.c ---- */

void sl_coordinator_checkpoint_request_come(struct sl_coordinator *coordinator,
                                            const struct sl_coordinator_member *member,
                                            const struct sl_message *message, uint64_t now_ns);

/* It waits for nothing any more. */
void sl_coordinator_checkpoint_request_leave(struct sl_coordinator *coordinator,
                                             const struct sl_coordinator_member *member);

/* Somebody waits for the next one; a ps only when all ps do, or it has waited for them a while. */
bool sl_coordinator_checkpoint_request_is_due(const struct sl_coordinator *coordinator,
                                              uint64_t now_ns);

/* A ps that asks since it ends does not wait for another to be started again. */
void sl_coordinator_checkpoint_request_refuse_ps(struct sl_coordinator *coordinator,
                                                 const char *missing);

/* That one begins: it answers those who wait. True: a ps is among them. */
bool sl_coordinator_checkpoint_request_take(struct sl_coordinator *coordinator, uint64_t number);

/* Answers those who wait for that one; 0: for the next. */
void sl_coordinator_checkpoint_request_answer(struct sl_coordinator *coordinator, uint64_t number,
                                              const struct sl_message *answer);

/* Reminds those who wait for whom, and answers those who give up. */
void sl_coordinator_checkpoint_request_tick(struct sl_coordinator *coordinator, uint64_t now_ns);
void sl_coordinator_checkpoint_request_fini(struct sl_coordinator *coordinator);
/* ---- coordinator_record.c ---- */

/* Whether the records are still in doubt for it. Errors: AGAIN. */
int sl_coordinator_record_admits(struct sl_coordinator *coordinator,
                                 const struct sl_message_hello *hello, char *reason,
                                 size_t reason_bytes);

/* Forgets records that have been in doubt for too long. */
void sl_coordinator_record_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Frees what the records had. */
void sl_coordinator_record_fini(struct sl_coordinator *coordinator);

/* ---- coordinator_table.c, for the records ---- */

/* Puts a table under its id, above all others or not. Errors: NO_MEMORY. */
int sl_coordinator_table_restore(struct sl_coordinator *coordinator, uint32_t id,
                                 const struct sl_table_spec *spec);

/* ---- coordinator_barrier.c, for the records ---- */

/* A barrier is done: it goes where the one of SL_COORDINATOR_DONE_BARRIERS before was. */
void sl_coordinator_barrier_note_done(struct sl_coordinator *coordinator,
                                      const struct sl_coordinator_barrier *barrier);

#endif
