/* The coordinator: membership, table registry, barriers. A pure state machine: a message from a
 * member, or the passing of time, gives messages to members; the server on its reactor carries
 * them. Owner reactor (reactor 0 of ps task 0, or of the scheduler).
 *
 * Membership: a member has a lease, renewed by whatever it sends. One whose connection breaks is
 * away, and the same process (its client_id) may take its place again until the lease ends. Then it
 * is lost: ps and workers are told, a ps that was away when it is back. Another process may take
 * the name of one that has left, is lost, or is away (which is lost at that moment); while the
 * first is heard it is refused. While any ps is gone, who registers waits for it; a ps that comes
 * back is told to the others.
 *
 * Tasks: a process that says hello with any_task gets the place that it has or had; else the lowest
 * that nobody has, or is lost from (but for that of a worker that has left, once the job has
 * begun); else the lowest that somebody is away from, who is lost then; else none yet.
 *
 * The course of a job, where the options ask for it (a scheduler): nobody is told the cluster
 * before every ps and every worker has registered once; the job ends when every worker has left or
 * is lost and none has come in its place, or when sl_coordinator_end_job says so; then every ps is
 * told, and it is over when none is left. A ps that is lost, or leaves before, and that nobody
 * replaces, makes it end badly. One that has not begun within the start timeout is over, and who
 * waits is refused.
 *
 * The job's workers are tasks 0 to worker_count - 1 and those that have joined (Hello.joins), less
 * those that have left or are lost. A barrier of count 0 is one of all of them, and is looked at
 * again when they change. Tables: a name has one id and one specification for the life of the
 * coordinator. Barriers: one of a name is complete when `count` members have come; then the name
 * may be used anew; a member that asks again under the same request id, since its connection broke
 * in between, is answered again. A member that comes again to a barrier at which it waits has given
 * up waiting before: it still counts once, and is answered under its last request. One that said
 * how long it waits is told who is missing shortly before. Allocates as members, tables and
 * barriers come, within SL_LIMIT_*; never on the data path.
 *
 * Checkpoints: one at a time, in two steps. Every ps writes the files of its shards, then every ps
 * the manifest; a checkpoint is complete when all have said so, and only then is who asked told.
 * Numbers ascend, also where a coordinator has started anew, for every ps says the greatest that it
 * knows of. A ps that fails, leaves, is lost or is started anew ends the one that is being made;
 * one that is away for less than a lease is told again what it owes. The first one is full, and so
 * is the next after one that was given up, or after a ps was started anew. Who asks while one is
 * being made waits for the next one. A ps asks since it ends: it begins when all ps have asked, or
 * a second later; who asks later is answered by the same one, and nobody waits for a ps that is
 * missing.
 *
 * Restore: before the first time that the cluster is told, every ps has said what checkpoint it can
 * begin from, or all that they have none; all are told the least. A ps that comes later is told its
 * own, and so is everyone where a ps is serving already. */
#ifndef SL_PS_COORDINATOR_COORDINATOR_H
#define SL_PS_COORDINATOR_COORDINATOR_H

#include "net/control/message.h"

/* Clients (members that are neither ps nor worker) whose connection broke, at most: there may be
 * any number of them, so the one that is away longest is forgotten for another. */
#define SL_COORDINATOR_CLIENTS_AWAY        1024

#define SL_COORDINATOR_BARRIERS            1024 /* in use at one time */
#define SL_COORDINATOR_CHECKPOINT_REQUESTS 4096 /* that wait for a checkpoint */

/* Barriers that were complete, which a coordinator that takes over has to know: as many as a member
 * may have to ask for again. */
#define SL_COORDINATOR_DONE_BARRIERS       16

struct sl_coordinator;

/* A control connection, by a handle of the server's. */
typedef uint64_t sl_coordinator_peer;

/* Of a job whose course is followed. */
enum sl_coordinator_stage {
    SL_COORDINATOR_WAITING_FOR_MEMBERS, /* not all have come */
    SL_COORDINATOR_RUNNING,
    SL_COORDINATOR_ENDING, /* no worker is left; ps are told */
    SL_COORDINATOR_OVER,
};

/* What a coordinator must not forget, in records of a few hundred bytes (but DONE, of which each
 * member at the barrier has about twenty), by index: coordinator_record.c. */
enum sl_coordinator_record {
    SL_COORDINATOR_RECORD_JOB,    /* one: counts, the course of the job */
    SL_COORDINATOR_RECORD_PS,     /* [server_count], by task */
    SL_COORDINATOR_RECORD_WORKER, /* [SL_LIMIT_WORKERS], by task */
    SL_COORDINATOR_RECORD_TABLE,  /* [SL_LIMIT_TABLES], by id */
    SL_COORDINATOR_RECORD_DONE,   /* [SL_COORDINATOR_DONE_BARRIERS] */
    SL_COORDINATOR_RECORD_ALL     /* none is left: the job begins anew */
};

struct sl_coordinator_options {
    uint32_t ps_count;               /* that must register before anyone is told the cluster */
    uint32_t worker_count;           /* that the job has; 0: unknown */
    const char *worker_count_source; /* "--worker-hosts", ...: where it is from; NULL: unknown */
    uint64_t waiting_interval_ns;    /* between two Waiting messages to who waits; 0: 3 s */
    uint64_t lease_ns;               /* a member that is not heard for so long is lost; 0: 10 s */
    /* Sends one message; the coordinator keeps nothing of it. */
    void (*send)(void *ctx, sl_coordinator_peer peer, const struct sl_message *message);
    /* Closes a connection whose member has another now, or is lost; `gone` may follow, and has no
     * effect, like whatever else still comes from it. NULL: such connections are left alone. */
    void (*close)(void *ctx, sl_coordinator_peer peer, const char *why);
    /* NULL: the job's course is not followed; else worker_count is known. RUNNING: why says who has
     * come. ENDING: err is 0, and all workers have left, or nobody had come; or CLOSED, and why
     * names those that are lost, or have not left. OVER: 0; CLOSED, when ps were lost since, and
     * why names them; or DEADLINE when the job has not begun within the start timeout, and why
     * names who never came, and apart from them who came and left. `why` is valid during the call.
     */
    void (*stage_changed)(void *ctx, enum sl_coordinator_stage stage, int err, const char *why);
    uint64_t start_timeout_ns;       /* from the first tick on; 0: none */
    uint64_t checkpoint_interval_ns; /* from the beginning of one to that of the next, at least; 0:
                                      * only when somebody asks */
    uint32_t incrementals_max;       /* incremental ones after each full one, at most */
    uint64_t checkpoint_timeout_ns;  /* for the manifests of one; without leases for its files too,
                                      * which else end when a ps says so; 0: an hour */
    uint64_t (*time_ms)(void *ctx);  /* since 1970, for the manifest; NULL: unknown */
    /* A record is another than before: what is sent from now on may rest on it, until the record is
     * written where the next coordinator finds it. NULL: nobody takes over from this one. */
    void (*changed)(void *ctx, enum sl_coordinator_record kind, uint32_t index);
    void *ctx;
};

/* Errors: NO_MEMORY. */
int sl_coordinator_create(const struct sl_coordinator_options *options,
                          struct sl_coordinator **out);
void sl_coordinator_destroy(struct sl_coordinator **coordinator);

/* A member said hello. Errors, which refuse it: EXISTS (another live member has that role and
 * task, and has been heard since this process first asked; until then AGAIN: it may have died),
 * INVALID (task index outside the cluster), REFUSED (the job has ended), NO_MEMORY; reason says it.
 * One with any_task is refused AGAIN when there is no place for it. */
int sl_coordinator_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message_hello *hello, uint64_t now_ns, char *reason,
                         size_t reason_bytes);

/* The task of a member that said hello: its own, or the one that was chosen. */
uint32_t sl_coordinator_task_index(const struct sl_coordinator *coordinator,
                                   sl_coordinator_peer peer);

/* A message of a member that said hello: REGISTER, TABLE_OPEN, BARRIER, STATS_GET, HEARTBEAT,
 * GOODBYE, CHECKPOINT_ASK, and of a ps CHECKPOINT_PART and CHECKPOINT_DONE; others are answered
 * with an Error. */
void sl_coordinator_message(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message, uint64_t now_ns);

/* The connection has closed; a peer that never said hello, or was refused, is ignored. expected: we
 * closed it since we are shutting down, so that the lack of a goodbye means nothing: the member is
 * neither away nor will it be lost. */
void sl_coordinator_gone(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         bool expected, uint64_t now_ns);

/* Of a job whose course is followed: it shall end now, since `why` ("SIGTERM") came. Who still
 * gathers is refused. Without effect when the job ends already. */
void sl_coordinator_end_job(struct sl_coordinator *coordinator, const char *why, uint64_t now_ns);

/* What Welcome tells of it. */
uint64_t sl_coordinator_lease_ns(const struct sl_coordinator *coordinator);

/* ---- Taking over from a coordinator that is no more; with `changed` only ---- */

/* The record as it is now. *value: the caller's to free; NULL: there is none. Errors: NO_MEMORY. */
int sl_coordinator_record_write(const struct sl_coordinator *coordinator,
                                enum sl_coordinator_record kind, uint32_t index, uint8_t **value,
                                size_t *value_bytes);

/* Takes a record over, before the first hello. Errors: INVALID (another number of ps: it is of
 * another cluster), CORRUPT (it is no such record), NO_MEMORY, with reason. */
int sl_coordinator_record_read(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                               uint32_t index, const uint8_t *value, size_t value_bytes,
                               char *reason, size_t reason_bytes);

/* All records have been read: every member has a lease from now to be heard in. Nobody is let in
 * before a ps is that the records know: without one in time (a lease, or 3 s where they know of no
 * worker) they are of a job that is no more, and are forgotten. */
void sl_coordinator_record_end(struct sl_coordinator *coordinator, uint64_t now_ns);

/* The ps of that task leaves, as if it had said goodbye: one that hosts the coordinator, and ends.
 */
void sl_coordinator_depart(struct sl_coordinator *coordinator, uint32_t ps_task, uint64_t now_ns);

/* No ps and no worker is a member. */
bool sl_coordinator_is_deserted(const struct sl_coordinator *coordinator);

/* Sends a message to a member, as the coordinator's own go: the Welcome, which tells what was
 * decided with the hello. */
void sl_coordinator_tell(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message *message);

/* To be called several times a lease: ends leases, reminds those who wait, answers those who give
 * up. A coordinator that was held up for a quarter of a lease gives every member half a lease from
 * now, since what it sent meanwhile has not been read. */
void sl_coordinator_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

#endif
