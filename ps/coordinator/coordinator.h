/* Coordinator tracks the members, tables, barriers, checkpoints and placements of a job. A pure
 * state machine: messages and ticks go in, messages to members come out. Owner reactor: reactor 0
 * of ps/0, of the elected leader, or of the scheduler. Allocates as members, tables and barriers
 * arrive, within SL_LIMIT_*.
 *
 * A member has a lease, which every message from it renews. If its connection breaks, the same
 * process (same client_id) may resume until the lease ends; then the member expires. Another
 * process may replace a member that left, expired or is disconnected, but not a connected one.
 * Registrations wait while a needed server is missing. Further rules are in job.h (stages),
 * barrier.h, checkpoint.h, restore.h, placement.h, move.h and task.h (task assignment). */
#ifndef SL_PS_COORDINATOR_COORDINATOR_H
#define SL_PS_COORDINATOR_COORDINATOR_H

#include "core/cell.h"
#include "core/reason.h"
#include "net/session/message.h"

/* Limit of disconnected clients (members that are clients, but no workers). Their number is
 * unbounded, so the client that was silent longest is removed first. */
#define SL_COORDINATOR_DISCONNECTED_MAX    1024

#define SL_COORDINATOR_BARRIERS            1024 /* in use at one time */
#define SL_COORDINATOR_CHECKPOINT_REQUESTS 4096 /* pending requests */

/* Messages of members to each other: without an answer, of one sender, and the bodies that the
 * coordinator keeps of them; delivered to one receiver; of all. */
#define SL_COORDINATOR_RELAYS_SENT         1024
#define SL_COORDINATOR_RELAYS_SENT_BYTES   (4U << 20)
#define SL_COORDINATOR_RELAYS_RECEIVED     64
#define SL_COORDINATOR_RELAYS              65536

/* Completed barriers that the coordinator log keeps for the next leader: as many as a member may
 * still ask for again. */
#define SL_COORDINATOR_DONE_BARRIERS       16

#define SL_COORDINATOR_NO_TASK             UINT32_MAX /* e.g. instead of a backup */
#define SL_COORDINATOR_RECORD_SHARDS_EACH  64         /* shards of a SHARDS record */

struct sl_coordinator;
struct sl_coordinator_cells;

/* Handle of a control connection, chosen by the server. */
typedef uint64_t sl_coordinator_peer;

/* Stages of a job; used only if stage_changed is set. */
enum sl_coordinator_stage {
    SL_COORDINATOR_WAITING_FOR_MEMBERS, /* some tasks have not registered yet */
    SL_COORDINATOR_RUNNING,
    SL_COORDINATOR_ENDING, /* no worker is left; servers are asked to stop */
    SL_COORDINATOR_OVER,
};

/* Records of the coordinator log, by index (record.c). A record has a few hundred bytes, but a DONE
 * record has about 20 bytes for each member that was at the barrier. */
enum sl_coordinator_record {
    SL_COORDINATOR_RECORD_JOB,    /* one: counts, stage of the job */
    SL_COORDINATOR_RECORD_PS,     /* [SL_LIMIT_PS], by task index */
    SL_COORDINATOR_RECORD_WORKER, /* [SL_LIMIT_WORKERS], by task index */
    SL_COORDINATOR_RECORD_TABLE,  /* [SL_LIMIT_TABLES], by table id */
    SL_COORDINATOR_RECORD_DONE,
    SL_COORDINATOR_RECORD_SHARDS, /* placements, by index of the shard / 64 */
    SL_COORDINATOR_RECORD_ALL     /* all records were erased: the job restarts empty */
};

/* Reports of members; counted by the coordinator. */
struct sl_coordinator_report_cells {
    struct sl_cell received;
    struct sl_cell too_long, too_frequent, no_room; /* dropped, part of `received` */
};

/* If a client opens a restored table with another policy: */
enum sl_coordinator_restore_policy {
    SL_COORDINATOR_RESTORE_POLICY_REFUSE,
    SL_COORDINATOR_RESTORE_POLICY_KEEP, /* that of the checkpoint stays */
    SL_COORDINATOR_RESTORE_POLICY_NEW,  /* the first client's replaces it */
};

struct sl_coordinator_options {
    uint32_t ps_count;     /* servers that must register before members receive the cluster */
    uint32_t worker_count; /* workers of the job; 0: unknown */
    const char *worker_count_source; /* origin, e.g. "--worker-hosts"; NULL: unknown */
    bool needs_operator;             /* to change tables by hand: hello.secret */
    enum sl_coordinator_restore_policy restore_policy;
    uint64_t waiting_interval_ns; /* between two Waiting messages to a waiting member; 0: 3 s */
    uint64_t identity;            /* random; of a job that begins here; 0: none is checked */
    uint64_t elections;           /* with a cluster store: of this process, so far */
    uint64_t lease_ns;            /* a member silent for this long expires; 0: 10 s;
                                     SL_CLOCK_NEVER: no leases */
    /* Sends one message. The coordinator keeps no pointer into it. */
    void (*send)(void *ctx, sl_coordinator_peer peer, const struct sl_message *message);
    /* Closes the connection of a member that expired or has a newer connection. Later messages and
     * sl_coordinator_gone for this peer are ignored. NULL: such connections stay open. */
    void (*close)(void *ctx, sl_coordinator_peer peer, const char *why);
    /* Reports a new stage of the job. NULL: stages are not tracked; else worker_count is not 0.
     * `why` is valid during the call.
     * - RUNNING: why counts servers, shards and workers.
     * - ENDING, err 0: all workers left, or no member was there. ENDING, CLOSED: the job had not
     *   begun, or why names the workers that expired or have not left, and the servers that are
     *   gone.
     * - OVER, err 0; OVER, CLOSED: why names servers that expired while the job ended; OVER,
     *   DEADLINE: the start timeout passed; why names the tasks that never registered and,
     *   separately, those that registered and left. */
    void (*stage_changed)(void *ctx, enum sl_coordinator_stage stage, int err, const char *why);
    uint64_t start_timeout_ns;       /* counts from the first tick; 0: none */
    uint64_t checkpoint_interval_ns; /* least time from start to start; 0: only on request */
    uint32_t incrementals_max;       /* incrementals after each full checkpoint */
    uint64_t checkpoint_timeout_ns;  /* for writing the manifests, and without leases also for the
                                        files, which otherwise have no timeout; 0: one hour */
    uint64_t (*time_ms)(void *ctx);  /* since 1970, for the manifest; NULL: unknown */
    /* Reports a changed record. Messages sent from now on may depend on the change: hold them until
     * the record is in the metastore. NULL: no other process can take over. */
    void (*changed)(void *ctx, enum sl_coordinator_record kind, uint32_t index);
    /* Receives the report of a member (net/session/report.h, not decoded); false: there is no room
     * for it. NULL: members send none. With `report_cells`, which outlive the coordinator. */
    bool (*report)(void *ctx, const struct sl_message_hello *member,
                   const struct sl_message_report *report);
    struct sl_coordinator_report_cells *report_cells;
    const char *http; /* HOST:PORT of this process's HTTP server; NULL: none */
    void *ctx;
    struct sl_coordinator_cells *cells; /* outlive it; NULL: nothing is counted */
};

/* Errors: NO_MEMORY. */
int sl_coordinator_create(const struct sl_coordinator_options *options,
                          struct sl_coordinator **out);
void sl_coordinator_destroy(struct sl_coordinator **coordinator);

/* Admits a member, or fails with a reason:
 * - EXISTS: a live member has this role and task index. It has sent something since this process
 *   first asked.
 * - AGAIN: the holder of this task has not sent anything since and may be dead; or no task is free
 *   for any_task; or records still wait for a known server.
 * - INVALID: the task index is out of range.
 * - REFUSED: the job has ended.
 * - NO_MEMORY. */
int sl_coordinator_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message_hello *hello, uint64_t now_ns,
                         struct sl_reason *reason);

/* Returns the task index of an admitted member: its own, or the assigned one. */
uint32_t sl_coordinator_task_index(const struct sl_coordinator *coordinator,
                                   sl_coordinator_peer peer);

/* Handles a message of an admitted member: REGISTER, TABLE_OPEN, BARRIER, RELAY, RELAY_ANSWER,
 * STATS_GET, HEARTBEAT, GOODBYE, CHECKPOINT_ASK, REPORT, PLACEMENT_CHANGE; from servers also
 * CHECKPOINT_PART and CHECKPOINT_DONE. Other kinds get an Error. */
void sl_coordinator_message(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message, uint64_t now_ns);

/* Reports a closed connection; unknown peers are ignored. expected: this process closed it during
 * its own shutdown, so the member is removed without counting as disconnected or expired. */
void sl_coordinator_gone(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         bool expected, uint64_t now_ns);

/* Ends the job now, e.g. because of SIGTERM (`why`). Members that still wait for the start are
 * refused. No effect if the job is ending already. Needs stage_changed. */
void sl_coordinator_end_job(struct sl_coordinator *coordinator, const char *why, uint64_t now_ns);

/* Returns the lease in force. */
uint64_t sl_coordinator_lease_ns(const struct sl_coordinator *coordinator);

/* Writes the fields of a member's Welcome that the coordinator knows: lease, reports, HTTP. */
void sl_coordinator_welcome(const struct sl_coordinator *coordinator,
                            struct sl_message_welcome *welcome);

/* Taking over from a former leader; only with options.changed. */

/* Writes the current content of a record. *value: the caller frees it. Errors: NO_MEMORY. */
int sl_coordinator_record_write(const struct sl_coordinator *coordinator,
                                enum sl_coordinator_record kind, uint32_t index, uint8_t **value,
                                size_t *value_bytes);

/* Loads a record, before the first hello. Errors, with reason: INVALID (other server or worker
 * counts, or a checkpoint number above the limit), CORRUPT, NO_MEMORY. */
int sl_coordinator_record_read(struct sl_coordinator *coordinator, enum sl_coordinator_record kind,
                               uint32_t index, const uint8_t *value, size_t value_bytes,
                               struct sl_reason *reason);

/* Ends loading and starts the lease of every loaded member. Hellos are refused until a server that
 * the records name says hello. If none does within a lease (3 s if the records name no worker and
 * no promotion), the records belong to a dead job and are erased. */
void sl_coordinator_record_end(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Removes the server with this task index as if it had said goodbye: the process that hosts the
 * coordinator uses it when it stops. */
void sl_coordinator_depart(struct sl_coordinator *coordinator, uint32_t ps_task, uint64_t now_ns);

/* Returns true if neither a server nor a worker is a member. */
bool sl_coordinator_is_deserted(const struct sl_coordinator *coordinator);

/* Sends a message to a member on the same path as the coordinator's own messages. Used for the
 * Welcome, which depends on the outcome of the hello. */
void sl_coordinator_send_to(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message);

/* Call several times a lease: expires members, sends Waiting messages, fails timed-out requests. If
 * the coordinator did not run for a quarter of a lease, every member gets half a lease from now,
 * because messages that arrived meanwhile are still unread. */
void sl_coordinator_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

#endif
