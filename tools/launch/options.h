/* What the command line of starling-launch says. Before start. */
#ifndef SL_TOOLS_LAUNCH_OPTIONS_H
#define SL_TOOLS_LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/checkpoint_settings.h"
#include "config/security.h"

/* What becomes of the job when a worker that is not started again has ended badly. */
enum sl_launch_loss { SL_LAUNCH_LOSS_FAIL, SL_LAUNCH_LOSS_CONTINUE };

struct sl_launch_options {
    uint64_t ps_count;
    uint64_t worker_count;    /* 0: not said */
    uint64_t ps_reactors;     /* 0: as the environment says */
    uint64_t worker_reactors; /* likewise */
    const char *ps_args;      /* split into words, quotes and backslashes as in a shell; or NULL */
    char **worker_args;       /* up to NULL: what came after -- */
    const char *bin_dir;      /* of the programs, or NULL: beside this one, else on PATH */
    const char *bind;         /* local: 127.0.0.1 or ::1 */
    const char *host_list;    /* ssh: the file's name, or NULL */
    const char *ssh;          /* ssh: the command, split like ps_args */
    bool slurm;
    uint64_t port_base; /* ssh, Slurm: port of ps 0; ps i has the i-th after it; 0: not said */
    const char *log_dir;
    uint64_t timeout_s; /* 0: none */
    uint64_t grace_s;   /* between asking a process to end and killing it */
    uint64_t restarts;  /* of workers, in all */
    uint64_t ps_restarts;
    uint64_t replicas;  /* of each shard, 0 or 1 */
    bool has_store;     /* a cluster store has what the coordinator knows: ps 0 may die */
    int on_worker_loss; /* enum sl_launch_loss */
    struct sl_security_flags security;
    bool rdma;                               /* every ps serves by RDMA beside TCP */
    const char *ps_devices, *worker_devices; /* of DPDK: tools/launch/device.h; or NULL */
    bool insecure;                           /* no secret is needed, whoever can reach the ps */
    const char *store;                       /* config/cluster_store_settings.h, or NULL */
    uint64_t lease_s;                        /* of the cluster; 0: the ps' own */
    struct sl_checkpoint_settings_flags checkpoint; /* of every ps */
};

#endif
