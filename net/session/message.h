/* Control messages as C structs: encodes and decodes them as protobuf, and validates every field
 * that a peer sent. Any thread; allocates. */
#ifndef SL_NET_SESSION_MESSAGE_H
#define SL_NET_SESSION_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/reason.h"
#include "net/session/message_checkpoint.h"
#include "net/session/message_dropped.h"
#include "net/session/message_placement.h"
#include "net/session/message_relay.h"
#include "net/session/message_stats.h"
#include "net/session/message_transfer.h"

/* names in a Waiting; the last one gives the number of further names */
#define SL_MESSAGE_MISSING_COUNT 16
#define SL_MESSAGE_NONCE_BYTES   32
#define SL_MESSAGE_PROOF_BYTES   32

enum sl_message_kind {
    SL_MESSAGE_HELLO = 2, /* values are the field numbers of control.proto */
    SL_MESSAGE_WELCOME,
    SL_MESSAGE_ERROR,
    SL_MESSAGE_REGISTER,
    SL_MESSAGE_CLUSTER,
    SL_MESSAGE_WAITING,
    SL_MESSAGE_TABLE_OPEN,
    SL_MESSAGE_TABLE_OPENED,
    SL_MESSAGE_BARRIER,
    SL_MESSAGE_BARRIER_DONE,
    SL_MESSAGE_STATS_GET,
    SL_MESSAGE_STATS,
    SL_MESSAGE_GOODBYE,
    SL_MESSAGE_CHALLENGE,
    SL_MESSAGE_PROOF,
    SL_MESSAGE_HEARTBEAT,
    SL_MESSAGE_EXPIRED,
    SL_MESSAGE_JOIN,
    SL_MESSAGE_JOINED,
    SL_MESSAGE_ENDED,
    SL_MESSAGE_CHECKPOINT,
    SL_MESSAGE_CHECKPOINT_PART,
    SL_MESSAGE_CHECKPOINT_PUBLISH,
    SL_MESSAGE_CHECKPOINT_ASK,
    SL_MESSAGE_CHECKPOINT_DONE,
    SL_MESSAGE_SEGMENT_GET, /* this and the next: message_transfer.h */
    SL_MESSAGE_SEGMENT,
    SL_MESSAGE_BUFFER_ADDED,
    SL_MESSAGE_BUFFER_GONE,
    SL_MESSAGE_BUFFER_RELEASED,
    SL_MESSAGE_NOTICE,
    SL_MESSAGE_NOTICE_TAKEN,
    SL_MESSAGE_FENCE,
    SL_MESSAGE_FENCED,
    SL_MESSAGE_REPORT,
    SL_MESSAGE_TABLE_DROP,
    SL_MESSAGE_TABLE_DROPPED,
    SL_MESSAGE_TABLES_GET = 41,
    SL_MESSAGE_TABLES,
    SL_MESSAGE_OPERATION,
    SL_MESSAGE_OPERATION_ALLOWED,
    SL_MESSAGE_PLACEMENT_CHANGE,
    SL_MESSAGE_PLACEMENT_CHANGED,
    SL_MESSAGE_ATTACH,
    SL_MESSAGE_RELAY,
    SL_MESSAGE_RELAY_ANSWER,
};

enum sl_message_purpose {
    SL_MESSAGE_PURPOSE_CONTROL = 1,
    SL_MESSAGE_PURPOSE_DATA = 2,
    SL_MESSAGE_PURPOSE_REPLICA = 3,  /* from the primary of a shard to its backup */
    SL_MESSAGE_PURPOSE_TRANSFER = 4, /* from a transfer engine to another */
};
enum sl_message_secret { SL_MESSAGE_SECRET_CLUSTER, SL_MESSAGE_SECRET_OPERATOR };
enum sl_message_role {
    SL_MESSAGE_ROLE_PS = 1,
    SL_MESSAGE_ROLE_WORKER = 2,
    SL_MESSAGE_ROLE_CLIENT = 3,
};

struct sl_message_hello {
    uint32_t protocol_version;
    enum sl_message_purpose purpose;
    enum sl_message_role role;
    uint32_t task_index;
    uint64_t client_id;
    uint32_t shard; /* data: index of the reactor; replica: of the shard in the cluster */
    bool checksum;
    bool join_running; /* task_index may be above the job's count of workers or servers */
    bool any_task;     /* control: the coordinator chooses task_index, which is 0 here */
    uint64_t epoch;    /* replica: of the shard */
    uint64_t state;    /* replica: `incarnation` of the primary's welcomes */
    /* transfer: the expected `incarnation` of the welcome; 0: any */
    uint64_t incarnation;
    uint32_t lane;                 /* transfer: 0: control messages only; else data frames only */
    uint64_t lane_epoch;           /* transfer: of a lane above 0; ascends with its connections */
    enum sl_message_secret secret; /* the one that the sender proves, if any */
    uint32_t beside;               /* client: SL_MESSAGE_BESIDE_...; 0: of no process */
    bool has_nonce;
    uint8_t nonce[SL_MESSAGE_NONCE_BYTES]; /* valid if has_nonce; see net/session/auth.h */
    char software[SL_MESSAGE_NAME_BYTES];
};

struct sl_message_welcome {
    uint32_t protocol_version;
    uint64_t credit_bytes;
    uint32_t credit_requests;
    uint32_t shard, shard_count;
    uint32_t payload_bytes_max;
    uint64_t incarnation; /* of the process; attach: of the shard's state */
    uint64_t position;    /* replica, resumed: the last log entry that the backup has */
    bool resumed;         /* attach: the shard has a session for client_id */
    bool restored;        /* attach: the session, if any, is as old as a checkpoint */
    bool counts;          /* attach, worker: its clock counts on this shard */
    /* attach, worker: its clock if it counts, else the first iteration that it may join at */
    uint32_t clock;
    uint32_t lease_ms;   /* control; 0: no lease */
    uint32_t spread_ms;  /* control: clients that lose this process return spread over it */
    uint32_t task_index; /* control: of the member; the coordinator may have chosen it */
    char software[SL_MESSAGE_NAME_BYTES];
    bool wants_reports;                 /* control: send a REPORT once a second */
    char http[SL_LIMIT_ENDPOINT_BYTES]; /* control: the coordinator's HTTP address, or "" */
    uint32_t knows;                     /* SL_MESSAGE_SPEC_KNOWS of the peer; 0 from an older one */
};

struct sl_message_challenge {
    uint8_t nonce[SL_MESSAGE_NONCE_BYTES];
};

struct sl_message_proof {
    uint8_t proof[SL_MESSAGE_PROOF_BYTES];
};

struct sl_message_expired {
    enum sl_message_role role; /* ps or worker */
    uint32_t task_index;
    uint64_t client_id;
    char why[SL_MESSAGE_NAME_BYTES];
};

struct sl_message_error {
    int err; /* negative sl_err; an unknown code becomes SL_ERR_PROTOCOL */
    char text[SL_MESSAGE_TEXT_BYTES];
    /* In answer to a hello: the coordinator's current endpoint (tcp), or "" */
    char coordinator[SL_LIMIT_ENDPOINT_BYTES];
};

#define SL_MESSAGE_NUMBERS_MAX   64
#define SL_MESSAGE_SPREAD_MS_MAX 60000

/* Checkpoint numbers, descending. */
struct sl_message_numbers {
    uint64_t items[SL_MESSAGE_NUMBERS_MAX];
    uint32_t count;
};

struct sl_message_register {
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    uint32_t shard_count;   /* ps: at the job's start; 0: it joins a running job, with none */
    uint32_t reactor_count; /* 0: one for each shard */
    uint32_t ps_count, worker_count;
    /* ps: see net/shm/shm.h; "": not reachable over shared memory */
    char host[SL_MESSAGE_NAME_BYTES];
    /* ps: RDMA or DPDK endpoint beside data_endpoint, or "" */
    char bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    /* ps: the checkpoint to restore. If serving: the newest known checkpoint of the job. 0: none.
     * The decoder does not check this and the next field: the coordinator refuses numbers above the
     * limit, with a reason. */
    uint64_t restore;
    uint64_t checkpoint_newest;           /* ps: highest known number; 0: none */
    struct sl_message_numbers complete;   /* ps: its complete checkpoints, `restore` among them */
    struct sl_message_numbers unfinished; /* ps: checkpoints with files but no manifest */
    bool serving;                         /* ps: is already running and restores nothing */
    bool has_tables;                      /* ps: its shards have tables */
    uint64_t job;       /* identity of the job that the sender is in; 0: none yet */
    uint64_t unclaimed; /* ps: newest checkpoint of its directory, if that is neither to be restored
                           nor to be kept beside a new job; 0: none */
    uint32_t replicas;  /* ps: backups of each shard, 0 or 1 */
    /* ps: of the shards that it has, and of others whose epoch it knows. Owned. */
    struct sl_message_replica_report *replica_reports;
    uint32_t replica_report_count;
    struct sl_message_dropped dropped; /* ps: of the last cluster */
};

struct sl_message_ps {
    uint32_t task_index;
    /* Its home shards, those that it had at the job's start; it may have others now. */
    uint32_t first_shard, shard_count; /* shard_count 0: it joined later */
    uint32_t reactor_count;            /* as in sl_message_register */
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char host[SL_MESSAGE_NAME_BYTES];              /* as in sl_message_register */
    char bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* as in sl_message_register */
};

struct sl_message_cluster {
    struct sl_message_ps *ps; /* owned; by ascending task, with gaps where one was drained */
    uint32_t ps_count;
    struct sl_message_placement *placements; /* owned; by shard; they name tasks in `ps` only */
    uint32_t shard_count;
    uint32_t worker_count;
    uint64_t restore;                       /* to a ps: the checkpoint to restore; 0: none */
    uint64_t abandoned_above, abandoned_to; /* to a ps: checkpoints in (above, to] are abandoned */
    uint32_t values_lost; /* 1 + the task of a ps that restarted without its values; 0: none */
    uint64_t kept_to;     /* to a ps: checkpoints up to this are of earlier jobs; 0: none */
    uint64_t job;         /* identity of the job; 0: unknown */
    struct sl_message_dropped dropped; /* tables */
};

/* Returns the server of the task, or NULL. */
const struct sl_message_ps *sl_message_cluster_find_ps(const struct sl_message_cluster *cluster,
                                                       uint32_t task);

struct sl_message_waiting {
    char missing[SL_MESSAGE_MISSING_COUNT][SL_MESSAGE_NAME_BYTES];
    uint32_t missing_count;
};

struct sl_message_barrier {
    char name[SL_MESSAGE_NAME_BYTES];
    uint32_t count;      /* 0: every worker of the job */
    uint32_t timeout_ms; /* 0: unknown */
    bool leaves;         /* the sender waits no more; no answer */
    uint32_t groups;     /* of all processes of these SL_MESSAGE_GROUP_...; 0: as count says */
};

struct sl_message {
    enum sl_message_kind kind;
    uint64_t id;
    union {
        struct sl_message_hello hello;
        struct sl_message_welcome welcome;
        struct sl_message_error error;
        struct sl_message_register reg;
        struct sl_message_cluster cluster;
        struct sl_message_waiting waiting;
        struct sl_message_table_open table_open;
        struct { /* TABLE_OPENED; TABLE_DROPPED: table_id; TABLES_GET: tables from this id on */
            uint32_t table_id;
            bool reject_nonfinite; /* as in the specification: false also from an older peer */
            uint32_t knows;        /* SL_MESSAGE_SPEC_KNOWS of the peer; 0 from an older one */
            bool keeps_policy;     /* of the coordinator: `policy` holds, not that of the open */
            struct sl_policy_spec policy;
        };
        struct sl_message_tables tables;
        struct sl_message_barrier barrier;
        struct sl_message_stats stats;
        struct sl_message_challenge challenge;
        struct sl_message_proof proof;
        struct sl_message_expired expired;
        uint32_t clock;                  /* JOIN, JOINED */
        char why[SL_MESSAGE_TEXT_BYTES]; /* ENDED; OPERATION: what is done */
        struct sl_message_checkpoint checkpoint;
        struct sl_message_checkpoint_part checkpoint_part;
        struct sl_message_checkpoint_publish checkpoint_publish;
        uint32_t timeout_ms;        /* CHECKPOINT_ASK; 0: unknown */
        uint64_t checkpoint_number; /* CHECKPOINT_DONE */
        uint64_t above;             /* SEGMENT_GET: buffers at addresses above this; 0: all */
        struct sl_message_segment segment;
        struct sl_message_buffers buffers;  /* BUFFER_ADDED */
        struct sl_message_buffer_keys keys; /* BUFFER_GONE, BUFFER_RELEASED */
        struct sl_message_notice notice;
        struct sl_message_fence fence;
        struct sl_message_report report;
        struct sl_message_placement_change placement_change;
        struct sl_message_moves moves; /* PLACEMENT_CHANGED */
        struct sl_message_relay relay;
        char table_name[SL_TABLE_NAME_BYTES]; /* TABLE_DROP */
    };
};

/* Returns the bytes that encode will write. Asserts that counts are within limits and that strings
 * end with NUL. */
size_t sl_message_encoded_bytes(const struct sl_message *message);

/* Writes the message as protobuf into to[sl_message_encoded_bytes]. */
void sl_message_encode(const struct sl_message *message, uint8_t *to);

/* Decodes and validates a message. On success *out needs sl_message_fini; on error it is not
 * written. Does not check the protocol_version of a hello or welcome. Errors, with the reason
 * logged at debug level: NO_MEMORY; PROTOCOL: not a Control message, an enum, number or length out
 * of range, a string with a NUL inside, or a name that is not printable ASCII. */
int sl_message_decode(const uint8_t *from, size_t bytes, struct sl_message *out);

void sl_message_fini(struct sl_message *message);

/* Names the sender of a hello for messages: "ps/1", "worker/3", "client 00000000000000ff", "the
 * client of ps/1", or "a worker" if it accepts any task. */
void sl_message_hello_name(const struct sl_message_hello *hello, char name[SL_MESSAGE_NAME_BYTES]);

#endif
