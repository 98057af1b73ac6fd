/* Command-line options of starling-launch. Before start. */
#ifndef SL_TOOLS_LAUNCH_OPTIONS_H
#define SL_TOOLS_LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/checkpoint_settings.h"
#include "config/security.h"

/* Reaction to a worker that failed and is not restarted. */
enum sl_launch_loss { SL_LAUNCH_LOSS_FAIL, SL_LAUNCH_LOSS_CONTINUE };

struct sl_launch_options {
    uint64_t ps_count;
    uint64_t worker_count;    /* 0: not given */
    uint64_t ps_reactors;     /* 0: from the environment */
    uint64_t worker_reactors; /* 0: from the environment */
    const char *ps_args;      /* split like shell words; or NULL */
    char **worker_args;       /* NULL-terminated: the arguments after -- */
    const char *bin_dir;      /* of the programs; NULL: beside this one, else PATH */
    const char *bind;         /* local: 127.0.0.1 or ::1 */
    const char *host_list;    /* ssh: the file's name, or NULL */
    const char *ssh;          /* ssh: the command, split like ps_args */
    bool slurm;
    uint64_t port_base; /* ssh, Slurm: ps i uses port_base + i; 0: not given */
    const char *log_dir;
    uint64_t timeout_s; /* 0: none */
    uint64_t grace_s;   /* from the request to end until the kill */
    uint64_t restarts;  /* of all workers together */
    uint64_t ps_restarts;
    uint64_t replicas;  /* of each shard, 0 or 1 */
    bool has_store;     /* a metastore has the coordinator's records: ps 0 may die */
    int on_worker_loss; /* enum sl_launch_loss */
    struct sl_security_flags security;
    bool rdma;                                      /* every ps also serves over RDMA */
    const char *ps_devices, *worker_devices;        /* of DPDK (device.h), or NULL */
    bool insecure;                                  /* no secret required on any network */
    const char *store;                              /* config/cluster_store_settings.h, or NULL */
    uint64_t lease_s;                               /* of the cluster; 0: default of the ps */
    struct sl_checkpoint_settings_flags checkpoint; /* of every ps */
};

#endif
