/* Command-line options of starling-launch. Before start. */
#ifndef SL_PROGRAMS_LAUNCH_OPTIONS_H
#define SL_PROGRAMS_LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/settings.h"
#include "programs/launch/words.h"

/* Reaction to a worker that failed and is not restarted. */
enum sl_launch_loss { SL_LAUNCH_LOSS_FAIL, SL_LAUNCH_LOSS_CONTINUE };

/* Options of all servers, or of all workers. */
struct sl_launch_role {
    uint64_t count;    /* 0: not given */
    uint32_t reactors; /* of servers, if not given: as on this host */
    bool polling;
    uint64_t restarts;     /* of all together */
    const char *devices;   /* of DPDK (device.h), or NULL */
    struct sl_words flags; /* for each one; of workers that are a command: NAME=VALUE */
};

struct sl_launch_options {
    struct sl_launch_role ps, worker;
    uint32_t core_count; /* available on this host */
    bool objects, agents;
    const char *ps_args; /* split like shell words; or NULL */
    struct {
        char **args;     /* NULL-terminated: the words after -- */
        bool is_command; /* args run instead of starling-worker */
    } worker_program;
    const char *bin_dir;   /* of the programs; NULL: beside this one, else PATH */
    const char *bind;      /* local: 127.0.0.1 or ::1 */
    const char *host_list; /* ssh: the file's name, or NULL */
    const char *ssh;       /* ssh: the command, split like ps_args */
    bool slurm;
    uint64_t port_base;   /* ssh, Slurm: ps i uses port_base + i; 0: not given */
    uint32_t master_port; /* MASTER_PORT of the workers; 0: not given */
    const char *log_dir;
    uint64_t job_timeout_ns;     /* 0: none */
    uint64_t grace_ns;           /* from the request to end until the kill */
    int on_worker_loss;          /* enum sl_launch_loss */
    struct sl_settings settings; /* as given; not resolved */
    struct sl_words agent_flags;
};

#endif
