/* A ps as a member, against a coordinator that the case plays, over the loop transport. */
#ifndef SL_TESTS_UNIT_PS_AGENT_FIXTURE_H
#define SL_TESTS_UNIT_PS_AGENT_FIXTURE_H

#include "net/outbox.h"
#include "ps/agent/agent.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"

#define PORT             4000
#define LEASE_MS         1000
#define START_TIMEOUT_NS (5 * SL_CLOCK_NS_PER_S)
#define INCARNATION      77
#define FIXTURE_FILES    300

/* Side a has the member, side b plays the coordinator. */
struct fixture {
    bool has_bypass;       /* the member, an endpoint of rdma */
    bool has_no_directory; /* for checkpoints */
    bool wants_reports;    /* the coordinator */
    uint64_t restore, checkpoint_newest, cluster_restore;
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_outbox outbox;
    struct sl_outbox_queue queue;
    struct sl_conn *conn;
    uint32_t accepted_count;
    struct sl_message_hello hello;
    struct sl_message_register reg;
    struct sl_message_replica_report reported; /* the first of it */
    uint64_t register_id;
    uint32_t hello_count, register_count, heartbeat_count, goodbye_count;
    uint32_t report_count, report_bytes; /* the last one's */

    struct sl_agent *member;
    uint32_t joined_count, first_shard, shard_count;
    uint64_t lease_ns;
    uint32_t failed_count;
    int failed_err;
    uint32_t lost_count, absent_count;
    struct sl_message_expired lost;

    /* Checkpoints: what the coordinator was told, and the process. */
    struct sl_message_checkpoint_part part;
    struct sl_message_checkpoint_file part_files[FIXTURE_FILES];
    uint64_t done_number;
    uint32_t part_count, done_count;
    struct sl_message_checkpoint begun;
    struct sl_message_checkpoint_publish complete;
    uint32_t completed; /* number */
    struct sl_message_checkpoint_file complete_files[FIXTURE_FILES];
    uint32_t begun_count, complete_count;
    struct sl_message request; /* CHECKPOINT_ASK or TABLE_OPEN */
    uint32_t request_count;
};

/* For CMocka: the member is open, and nobody listens yet. */
void fixture_setup(struct fixture *f);
void fixture_teardown(struct fixture *f);

/* As f says; the one before has been closed. */
void open_member(struct fixture *f);
void listen_now(struct fixture *f);

/* From the coordinator. The ps of the case is task 1, with 2 shards; task 0 has shards_0. */
void send_message(struct fixture *f, const struct sl_message *message);
void send_error(struct fixture *f, uint64_t id, int err);
void send_cluster(struct fixture *f, uint64_t id, uint32_t shards_0);
void send_lost(struct fixture *f, enum sl_message_role role);

/* Turns of 1 ms until the counter has grown to `least`. */
void until(struct fixture *f, const uint32_t *counter, uint32_t least);
void pass(struct fixture *f, uint32_t turns);

/* Up to the member's next Register, the hello being welcomed. */
void greet_with(struct fixture *f, uint32_t lease_ms);
void greet(struct fixture *f);

/* The coordinator listens, and the member is told the cluster. */
void join(struct fixture *f);

/* The connection breaks. */
void disconnect(struct fixture *f);

#endif
