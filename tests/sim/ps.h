/* A ps process of a simulated cluster: the real servers, member and, for task 0, coordinator, put
 * together as ps/process/process.c does with threads. One thread. */
#ifndef SL_TESTS_SIM_PS_H
#define SL_TESTS_SIM_PS_H

#include "ps/process/checkpoint.h"
#include "ps/process/replica_groups.h"
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

/* One reactor's part: what mail is about. */
struct sl_sim_core {
    struct sl_sim_ps *ps;
    uint32_t index;
};

struct sl_sim_lost; /* news on their way to the reactors; freed with the ps */

struct sl_sim_ps {
    struct sl_sim_process process;
    struct sl_sim_ps_options options;
    struct sl_sim_core cores[2 * SL_SIM_REACTORS_MAX];
    struct sl_server *servers[2 * SL_SIM_REACTORS_MAX]; /* with backups, those behind the own */
    struct sl_coordinator *coordinator;
    struct sl_agent *member;
    struct sl_endpoint bound;
    struct sl_sim_lost *lost;
    struct sl_sim_views views;
    uint64_t lease_ns; /* as the coordinator says */
    uint64_t incarnation;
    bool running; /* between start and stop */
    bool failed;  /* it gave up: to be killed */

    /* With a disk: what of a process makes checkpoints and restores them, unmodified; with backups,
     * what knows who has them. */
    struct sl_process wiring;
    struct sl_process_core wired[SL_SIM_REACTORS_MAX];
    struct sl_process_sim_hooks sim_hooks;
    struct sl_replication_options replication; /* of the server that is created next */
    bool was_checked;                          /* what it has restored */
    struct sl_sim_app *beside; /* reads its tables (publish.h); NULL: nothing does */
};

/* The reactor of a server, by its index in `servers`. */
static inline uint32_t sl_sim_ps_reactor_of(const struct sl_sim_ps *ps, uint32_t index)
{
    return index % ps->options.shard_count % ps->options.reactor_count;
}

/* Its servers are there. */
void sl_sim_ps_wire(struct sl_sim_ps *ps);

/* Of the member, which is about to be opened: what it is told of checkpoints. */
void sl_sim_ps_wire_member(struct sl_sim_ps *ps, struct sl_agent_options *member);

/* The cluster is known: the checkpoint that it begins from. */
uint64_t sl_sim_ps_wire_joined(struct sl_sim_ps *ps, uint32_t first_shard, uint32_t shard_count);

/* The member is gone. */
void sl_sim_ps_unwire(struct sl_sim_ps *ps);

/* Of the sim_hooks: a thread of what is beside it waits for its reactors. ctx: the ps. */
void sl_sim_ps_wait(void *ctx);

/* Before its servers are made. */
void sl_sim_ps_pair(struct sl_sim_ps *ps);

/* Of the server, which is about to be created. */
void sl_sim_ps_pair_server(struct sl_sim_ps *ps, struct sl_server_options *server);

/* Of the member, which is about to be opened. */
void sl_sim_ps_pair_member(const struct sl_sim_ps *ps, struct sl_agent_options *member);

/* The servers have been told their shards. */
void sl_sim_ps_pair_joined(struct sl_sim_ps *ps);

/* Its own, and those with the backups of others. */
uint32_t sl_sim_ps_server_count(const struct sl_sim_ps *ps);

void sl_sim_ps_join(struct sl_sim_ps *ps);

/* Asserts that there is memory. The ps stays where it is until it is killed. */
void sl_sim_ps_start(struct sl_sim_ps *ps, const struct sl_sim_ps_options *options);

/* It is gone from one moment to the next: sl_sim_network_kill, then its memory is freed. */
void sl_sim_ps_kill(struct sl_sim_ps *ps, bool silent);

#endif
