/* A ps process of a simulated cluster: the real servers, member and, for task 0, coordinator, put
 * together as ps/process/process.c does with threads. One thread. */
#ifndef SL_TESTS_SIM_PS_H
#define SL_TESTS_SIM_PS_H

#include "ps/process/checkpoint.h"
#include "ps/process/placement.h"
#include "ps/process/restore.h"
#include "ps/replication/replication.h"
#include "tests/sim/app.h"
#include "tests/sim/disks.h"
#include "tests/sim/oracle.h"
#include "tests/sim/process.h"
#include "tests/sim/records.h"
#include "tests/sim/views.h"

/* Where the node beside a ps stores versions: on the disk of the ps, this and its number. */
#define SL_SIM_PS_OBJECTS SL_SIM_DISK_FOLDER "/o"

struct sl_sim_ps;

struct sl_sim_ps_options {
    struct sl_sim_network *network;
    uint32_t host, coordinator_host;
    uint32_t task_index, ps_count, shard_count, worker_count;
    uint32_t reactor_count; /* at most shard_count */
    uint64_t lease_ns, start_timeout_ns;
    uint32_t peer_timeout_ms;
    const struct sl_secret *secret;
    uint64_t seed, offset_ns, gap_ns;
    bool joins; /* a running job */
    bool hosts_coordinator;
    bool is_scheduler;              /* it does nothing else: no shards, one reactor */
    struct sl_sim_records *records; /* of the coordinator; NULL: it begins anew each time */
    bool has_replica;
    uint32_t snapshot_keys;
    struct sl_sim_disk *disk;     /* NULL: it has none, and there are no checkpoints */
    struct sl_sim_oracle *oracle; /* NULL: nobody looks, and there is no disk */
    bool has_views;               /* somebody reads them: views.h */
    size_t memory_bytes_max;      /* of the tables of a shard; 0: no limit */
    /* It has started; it ends, but its reactors have still turns. NULL: nothing is beside it. */
    void (*started)(struct sl_sim_ps *ps);
    void (*ends)(struct sl_sim_ps *ps, bool silent);
};

struct sl_sim_ps {
    struct sl_sim_process process;
    struct sl_sim_ps_options options;
    struct sl_process wiring; /* what a process has, with its own code */
    struct sl_process_core cores[SL_SIM_REACTORS_MAX];
    struct sl_server *servers[SL_SIM_REACTORS_MAX];
    struct sl_process_sim_hooks sim_hooks;
    struct sl_endpoint bound;
    struct sl_sim_views views;
    bool running;              /* between start and stop */
    bool failed;               /* it gave up: to be killed */
    bool is_over;              /* likewise: it was drained */
    struct sl_sim_app *beside; /* reads its tables (publish.h); NULL: nothing does */
};

/* Fills in the options of its checkpoints. It has a disk. */
void sl_sim_ps_wire_disk(struct sl_sim_ps *ps);

/* Of the member, which is about to be opened: what it is told of checkpoints. */
void sl_sim_ps_wire_member(struct sl_sim_ps *ps, struct sl_agent_options *member);

/* Of the sim_hooks: it has begun, or has failed. */
void sl_sim_ps_answer(void *ctx, uint32_t core, int result);
int64_t sl_sim_ps_time_s(void *ctx);

/* It has joined: what the oracle is told of the shards of which it is the primary, which begin from
 * checkpoint `restore`. */
void sl_sim_ps_note_begin(struct sl_sim_ps *ps, uint64_t restore);

/* Sends its coordinator the request of an operator, whom the answer does not reach. */
void sl_sim_ps_change_placement(struct sl_sim_ps *ps,
                                const struct sl_message_placement_change *change);

/* Asserts that there is memory. The ps stays where it is until it is killed. */
void sl_sim_ps_start(struct sl_sim_ps *ps, const struct sl_sim_ps_options *options);

/* It is gone from one moment to the next: sl_sim_network_kill, then its memory is freed. */
void sl_sim_ps_kill(struct sl_sim_ps *ps, bool silent);

#endif
