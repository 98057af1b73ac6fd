/* A whole parameter server cluster inside a test's process: ps processes with their reactors and
 * servers on free ports of loopback, the coordinator with ps 0. Everything is real but the process
 * boundary. Assertions of the test program fail when something cannot start. */
#ifndef SL_TESTS_SUPPORT_CLUSTER_H
#define SL_TESTS_SUPPORT_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

struct sl_cluster;

struct sl_cluster_options {
    uint32_t ps_count;         /* at least 1 */
    uint32_t shards_of_ps;     /* reactors of each; at least 1 */
    uint32_t worker_count;     /* that the coordinator expects; 0: unknown */
    uint32_t ps_expected;      /* that the coordinator waits for; 0: server_count */
    uint64_t memory_bytes_max; /* of one shard's tables; 0: no limit */
    bool shm;                  /* the ps are reached through shared memory too */
    bool shm_is_deaf;          /* so they say; but nobody listens there */
};

/* The cluster serves when it returns, unless fewer ps processes run than are expected. */
struct sl_cluster *sl_cluster_start(const struct sl_cluster_options *options);

/* Closes all connections, frees everything. Nulls *cluster. */
void sl_cluster_stop(struct sl_cluster **cluster);

/* "127.0.0.1:40123". */
const char *sl_cluster_coordinator(const struct sl_cluster *cluster);

/* Holds a ps process's reactors still: they keep their connections and do nothing. */
void sl_cluster_pause(struct sl_cluster *cluster, uint32_t ps);
void sl_cluster_resume(struct sl_cluster *cluster, uint32_t ps);

/* Breaks all connections that were made to a ps process, in whatever state they are; with ps 0, the
 * members' to the coordinator too. The process goes on. */
void sl_cluster_cut(struct sl_cluster *cluster, uint32_t ps);

/* Ends a ps process as a crash would: it says goodbye to nobody, and forgets everything. */
void sl_cluster_kill(struct sl_cluster *cluster, uint32_t ps);

/* Starts it anew at the same port, killing it before if need be: other incarnation, no tables. It
 * serves when this returns. */
void sl_cluster_restart(struct sl_cluster *cluster, uint32_t ps);

#endif
