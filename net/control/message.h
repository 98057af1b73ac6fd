/* Control messages as structs of ours: encode and decode around protobuf-c, and the checks of every
 * field that comes from a peer. Only net/control sees protobuf-c. Any thread; allocates. */
#ifndef SL_NET_CONTROL_MESSAGE_H
#define SL_NET_CONTROL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"

#define SL_MESSAGE_TEXT_BYTES    512
#define SL_MESSAGE_MISSING_COUNT 16 /* names in a Waiting; the last says how many more */
#define SL_MESSAGE_NAME_BYTES    64
#define SL_MESSAGE_NONCE_BYTES   32
#define SL_MESSAGE_PROOF_BYTES   32

enum sl_message_kind {
    SL_MESSAGE_HELLO = 2, /* the field numbers of control.proto */
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
    SL_MESSAGE_CHECKPOINT_COMPLETE,
    SL_MESSAGE_CHECKPOINT_ASK,
    SL_MESSAGE_CHECKPOINT_DONE,
};

enum sl_message_purpose {
    SL_MESSAGE_PURPOSE_CONTROL = 1,
    SL_MESSAGE_PURPOSE_DATA = 2,
    SL_MESSAGE_PURPOSE_REPLICA = 3, /* from the primary of a shard to its backup */
};
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
    uint32_t shard;
    bool checksum;
    bool join_running; /* worker: its index may be beyond the job's worker count */
    bool any_task;     /* control: the coordinator chooses task_index, which is 0 here */
    uint64_t epoch;    /* replica: of the shard */
    uint64_t state;    /* replica: the primary's: `incarnation` of its welcomes */
    bool has_nonce;
    uint8_t nonce[SL_MESSAGE_NONCE_BYTES]; /* when it has one: net/control/auth.h */
    char software[SL_MESSAGE_NAME_BYTES];
};

struct sl_message_welcome {
    uint32_t protocol_version;
    uint64_t credit_bytes;
    uint32_t credit_requests;
    uint32_t shard, shard_count;
    uint32_t payload_bytes_max;
    uint64_t incarnation; /* control: of the process; data: of the shard's state */
    uint64_t position;    /* replica, resumed: the last entry that the backup has */
    bool resumed;         /* data: the shard remembers the client_id */
    bool restored;        /* data: that memory, if any, is as old as a checkpoint */
    bool counts;          /* data, worker: its clock counts on this shard */
    uint32_t clock;       /* data, worker: its clock where it counts, else where it may join now */
    uint32_t lease_ms;    /* control; 0: none */
    uint32_t task_index;  /* control: the member's, who may not have known it */
    char software[SL_MESSAGE_NAME_BYTES];
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
    int err; /* an sl_err, negative; an unknown code becomes SL_ERR_PROTOCOL */
    char text[SL_MESSAGE_TEXT_BYTES];
    char coordinator[SL_LIMIT_ENDPOINT_BYTES]; /* of a hello: where it is now, of tcp; "" */
};

/* What a ps is of shards that it and another have. */
enum sl_message_replica_role {
    SL_MESSAGE_REPLICA_PRIMARY,
    SL_MESSAGE_REPLICA_BACKUP,
    SL_MESSAGE_REPLICA_NEITHER, /* the other is alone */
};

/* How it is with them, as the sender knows. */
struct sl_message_replica_report {
    uint32_t task_index; /* whose shards */
    uint64_t epoch;
    enum sl_message_replica_role role;
    bool in_sync; /* the backup is, says the primary; or the backup: so the coordinator has said */
    bool is_undecided; /* the primary does not know yet; else, without in_sync: it will not be */
};

#define SL_MESSAGE_REPLICA_REPORTS_MAX 2 /* a ps has its own shards and those of another */

#define SL_MESSAGE_NUMBERS_MAX         64

/* Of checkpoints, the newest first. */
struct sl_message_numbers {
    uint64_t items[SL_MESSAGE_NUMBERS_MAX];
    uint32_t count;
};

struct sl_message_register {
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    uint32_t shard_count;
    uint32_t ps_count, worker_count;
    char host[SL_MESSAGE_NAME_BYTES]; /* ps: net/shm/shm.h; "": not through shared memory */
    char
        bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* ps: rdma or dpdk beside data_endpoint, or "" */
    uint64_t restore; /* ps: the checkpoint that it shall begin from; serving: the newest of the job
                       * that it knows; 0: none. Not checked by the decoder, like the next: the
                       * coordinator refuses what is above the limit, with words */
    uint64_t checkpoint_newest;           /* ps: the greatest number that it knows of; 0: none */
    struct sl_message_numbers complete;   /* ps: those that it has whole, `restore` among them */
    struct sl_message_numbers unfinished; /* ps: of which it has files, and no manifest */
    bool serving;                         /* ps: it has begun already, and restores nothing */
    bool has_tables;                      /* ps: its shards do */
    uint32_t replicas;                    /* ps: backups of each shard, 0 or 1 */
    struct sl_message_replica_report replica_reports[SL_MESSAGE_REPLICA_REPORTS_MAX];
    uint32_t replica_report_count;
};

#define SL_MESSAGE_NO_BACKUP UINT32_MAX

struct sl_message_ps {
    uint32_t task_index;
    uint32_t shard_count;
    char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    char host[SL_MESSAGE_NAME_BYTES];              /* likewise */
    char bypass_endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* likewise */
    uint64_t epoch;                                /* of its shards; 0: they have no backups */
    uint32_t primary; /* the task that serves them: with epoch 0 its own */
    uint32_t backup;  /* the task that has their backups; SL_MESSAGE_NO_BACKUP: none */
    bool in_sync;     /* that one has all that was acknowledged */
};

struct sl_message_cluster {
    struct sl_message_ps *ps; /* owned by the message: sl_message_fini frees it */
    uint32_t ps_count;
    uint32_t worker_count;
    uint64_t restore; /* the checkpoint that the receiver, a ps, begins from; 0: none */
    uint64_t abandoned_above, abandoned_to; /* ps: (above, to] the job does not go on from */
    uint32_t values_lost; /* 1 + the task of a ps that came back without its values; 0: none */
};

struct sl_message_waiting {
    char missing[SL_MESSAGE_MISSING_COUNT][SL_MESSAGE_NAME_BYTES];
    uint32_t missing_count;
};

struct sl_message_table_open {
    struct sl_table_spec spec; /* for the receiver to check: sl_message_check_spec */
    uint32_t table_id;
    bool keep_id; /* coordinator: the sender has had the table under table_id */
    bool asks; /* coordinator: only spec.name is looked at, and the answer is a TABLE_OPEN with the
                * table's specification and id */
};

struct sl_message_barrier {
    char name[SL_MESSAGE_NAME_BYTES];
    uint32_t count;      /* 0: every worker of the job */
    uint32_t timeout_ms; /* 0: unknown */
};

struct sl_message_table_stats {
    char name[SL_TABLE_NAME_BYTES];
    uint64_t rows, bytes, pulled_rows, pushed_rows;
};

struct sl_message_stats {
    struct sl_message_table_stats *tables; /* owned by the message */
    uint32_t table_count;
    uint64_t requests, bytes_in, bytes_out, stalls;
    uint64_t degraded_writes, degraded_ms; /* of a shard with replicas: without a backup in step */
    uint64_t degraded_shards;              /* of the coordinator */
};

struct sl_message_checkpoint {
    uint64_t number;   /* 1 to SL_LIMIT_CHECKPOINT_NUMBER */
    uint64_t base;     /* the checkpoint that it adds to, below number; 0: it is a full one */
    uint64_t complete; /* the newest that every ps has whole, below number; 0: not known */
};

/* Of one shard, in the checkpoint's folder. */
struct sl_message_checkpoint_file {
    char name[SL_MESSAGE_NAME_BYTES]; /* at least one character; no '/', and no '.' first */
    uint32_t shard;                   /* in the cluster */
    uint64_t bytes, hash;             /* XXH3, 64 bits, of all of them */
    uint64_t rows;                    /* records in it */
};

struct sl_message_checkpoint_part {
    uint64_t number;
    struct sl_message_checkpoint_file *files; /* owned by the message; by ascending shard */
    uint32_t file_count;                      /* at least 1; with an err 0 */
    int err;                                  /* 0, or an sl_err */
    char text[SL_MESSAGE_TEXT_BYTES];         /* of the err */
    bool has_worker;                          /* one of its shards knew a worker then */
};

struct sl_message_checkpoint_complete {
    uint64_t number, base;
    struct sl_message_checkpoint_file *files; /* owned by the message; by ascending shard */
    uint32_t file_count;                      /* at least 1 */
    uint64_t time_ms;                         /* since 1970, when it was begun; 0: unknown */
    bool has_worker;                          /* a shard knew a worker: the job was not over */
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
        uint32_t table_id; /* TABLE_OPENED */
        struct sl_message_barrier barrier;
        struct sl_message_stats stats;
        struct sl_message_challenge challenge;
        struct sl_message_proof proof;
        struct sl_message_expired expired;
        uint32_t clock;                  /* JOIN, JOINED */
        char why[SL_MESSAGE_TEXT_BYTES]; /* ENDED */
        struct sl_message_checkpoint checkpoint;
        struct sl_message_checkpoint_part checkpoint_part;
        struct sl_message_checkpoint_complete checkpoint_complete;
        uint32_t timeout_ms;        /* CHECKPOINT_ASK; 0: unknown */
        uint64_t checkpoint_number; /* CHECKPOINT_DONE */
    };
};

/* Bytes that encode will write. A message is encoded as it stands: counts over the limits and
 * strings without a NUL are asserted. */
size_t sl_message_encoded_bytes(const struct sl_message *message);

/* Writes the message's protobuf into to[sl_message_encoded_bytes]. */
void sl_message_encode(const struct sl_message *message, uint8_t *to);

/* Errors: PROTOCOL (not a Control message; an enum, a number or a length outside its range; a
 * string with a NUL or control characters inside; the reason is logged at debug level), NO_MEMORY.
 * Written on success only, *out then needs sl_message_fini. A hello's and a welcome's
 * protocol_version are for the receiver to check. */
int sl_message_decode(const uint8_t *from, size_t bytes, struct sl_message *out);

void sl_message_fini(struct sl_message *message);

/* What messages call who said the hello: "ps/1", "worker/3", "client 00000000000000ff"; "a worker"
 * that wants any task. */
void sl_message_hello_name(const struct sl_message_hello *hello, char name[SL_MESSAGE_NAME_BYTES]);

/* Checks every field of a table's specification; on error writes which field, what it is and what
 * is accepted into reason. Errors: INVALID. */
int sl_message_check_spec(const struct sl_table_spec *spec, char *reason, size_t reason_bytes);

/* 0 when both are equal; else EXISTS, with the first field that differs and both values in reason.
 */
int sl_message_compare_specs(const struct sl_table_spec *existing,
                             const struct sl_table_spec *asked, char *reason, size_t reason_bytes);

#endif
