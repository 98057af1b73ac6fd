/* A coordinator with members that the test scripts. What it sends and closes is kept as text:
 * "7#3 opened 0" is the answer of kind TABLE_OPENED to request 3 of peer 7; "7 closed" means that
 * peer 7 shall be closed. */
#ifndef SL_TESTS_UNIT_PS_COORDINATOR_FIXTURE_H
#define SL_TESTS_UNIT_PS_COORDINATOR_FIXTURE_H

#include "core/clock.h"
#include "ps/coordinator/coordinator.h"
#include "tests/support/unit.h"

#define FIXTURE_SENT_MAX 64
#define SECOND           SL_CLOCK_NS_PER_S

#define FIXTURE_RECORDS  16 /* of each kind */

/* A record of the coordinator's, as it was written last. */
struct fixture_record {
    uint8_t *value; /* NULL: there is none */
    size_t value_bytes;
    bool changed; /* since */
};

struct fixture {
    struct sl_coordinator *coordinator;
    uint64_t now_ns;
    char sent[FIXTURE_SENT_MAX][1024];
    uint32_t sent_count;
    struct sl_reason reason;
    enum sl_coordinator_restore_policy restore_policy; /* for the next remake or takeover */
    uint64_t checkpoint_interval_ns;                   /* for the next remake */
    uint32_t checkpoint_adds;                          /* likewise */
    struct fixture_record records[SL_COORDINATOR_RECORD_ALL][FIXTURE_RECORDS];
    uint32_t ps_count, worker_count; /* of the coordinator */
    const char *worker_count_source; /* likewise */
    bool remembers;                  /* it has records */
    uint32_t completed_count;        /* servers notified that a checkpoint is complete */
    bool shows_whole;                /* "checkpoint 3 on 2, 2 whole" */
    uint64_t identity;               /* for the next remake or takeover */
    bool knows_worker;               /* the ps whose part comes next */
    bool follows; /* the job's course: its stages are among what is sent, "stage 1 err 0: …" */
};

/* For cases: 2 ps, 3 workers, Waiting every 3 s, a lease of 10 s, at time 0; the second with
 * records. At the end everything that was sent has been expected (asserted). */
void fixture_setup(struct fixture *f);
void fixture_setup_records(struct fixture *f);
void fixture_teardown(struct fixture *f);
#define CASE(name) SL_CASE_USING(name, struct fixture, f, fixture_setup, fixture_teardown)
#define CASE_WITH_RECORDS(name)                                                                    \
    SL_CASE_USING(name, struct fixture, f, fixture_setup_records, fixture_teardown)

/* Another coordinator instead. */
void fixture_remake(struct fixture *f, uint32_t ps_count, uint32_t worker_count);

/* Likewise, one that follows the job's course, with a start timeout of a minute. */
void fixture_follow(struct fixture *f, uint32_t ps_count, uint32_t worker_count);

/* The coordinator dies, and another has its records: every connection is gone. */
void fixture_take_over(struct fixture *f);

/* The next thing sent or closed is `text`; takes it. */
void expect(struct fixture *f, const char *text);

/* The next thing sent contains `text`; takes it. */
void expect_part(struct fixture *f, const char *text);
void expect_nothing(struct fixture *f);

/* This was sent among other things; takes all of them. */
void expect_among(struct fixture *f, const char *text);

/* As many things have been sent; takes them. */
void expect_count(struct fixture *f, uint32_t count);

/* With the peer's number as client_id. */
int hello(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role, uint32_t task);

/* The process `client_id` on connection `peer`. */
int hello_as(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role, uint32_t task,
             uint64_t client_id);

/* Any task will do. Returns its index, or the error. */
int hello_any(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role,
              uint64_t client_id);

/* Workers 0 to 2 as peers 1 to 3. */
void workers_join(struct fixture *f);

void say(struct fixture *f, sl_coordinator_peer peer, struct sl_message message);
void heartbeat(struct fixture *f, sl_coordinator_peer peer);
void goodbye(struct fixture *f, sl_coordinator_peer peer);

/* The connection breaks. */
void disconnect(struct fixture *f, sl_coordinator_peer peer);

/* A ps at tcp://host<peer>:1. */
void register_ps(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint32_t shards);
void register_worker(struct fixture *f, sl_coordinator_peer peer, uint64_t id);

/* Likewise, after the hello of the process `client_id`. */
void join_ps(struct fixture *f, sl_coordinator_peer peer, uint32_t task, uint64_t client_id,
             uint64_t id, uint32_t shards);
void join_worker(struct fixture *f, sl_coordinator_peer peer, uint32_t task, uint64_t client_id,
                 uint64_t id);

/* ps 0 and 1 as peers 11 and 12, registered and told; what was sent is forgotten. */
void cluster_start(struct fixture *f);

struct sl_message table_message(const char *name, uint32_t dim, uint64_t id);
struct sl_message barrier_message(const char *name, uint32_t count, uint64_t id);

/* Sets the time, then a tick. */
void tick_at(struct fixture *f, uint64_t now_ns);

/* Lets the time pass in steps of half a second, each with a tick, while those peers (up to a 0)
 * send heartbeats. */
void pass(struct fixture *f, uint64_t ns, const sl_coordinator_peer *alive);

#endif
