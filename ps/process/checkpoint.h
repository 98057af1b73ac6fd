/* Checkpoints of a process: on the coordinator's message each core writes its shard's file; when
 * all servers have their files, the process writes the manifest and removes old checkpoints. */
#ifndef SL_PS_PROCESS_CHECKPOINT_H
#define SL_PS_PROCESS_CHECKPOINT_H

#include "ps/process/state.h"

/* Creates the state of the process, if there is a directory. Reactor 0. Errors: NO_MEMORY, IO,
 * TOO_LARGE. */
int sl_process_checkpoint_create(struct sl_process *process);

/* Prepares a shard's new server for checkpoints, if there is a directory, or for snapshots that
 * something beside it reads. The shard's reactor. Errors: NO_MEMORY, IO, TOO_LARGE. */
int sl_process_checkpoint_open(struct sl_process_hosted *hosted);

/* Callbacks of the agent. */
void sl_process_on_checkpoint(void *process, const struct sl_message_checkpoint *begun);
void sl_process_on_checkpoint_publish(void *process,
                                      const struct sl_message_checkpoint_publish *complete);
void sl_process_on_checkpoint_completed(void *process, uint64_t number);

/* Returns the disk of the checkpoints. Any thread. */
const struct sl_disk *sl_process_disk(const struct sl_process_checkpoint *options);

/* A job on the directory of the checkpoints. Owned by the offload thread while posted. */
struct sl_process_disk_job {
    struct sl_offload_job job; /* must be first */
    void (*work)(struct sl_process_disk_job *job);
    void (*done)(struct sl_process_disk_job *job);
    struct sl_process *process;
    const struct sl_disk *disk;
    const char *directory;
    int err; /* set by `work`, or because there is no thread */
    struct sl_reason reason;
};

/* Posts a zeroed job. `work` runs on the offload thread, then `done` on reactor 0, which frees the
 * job. */
void sl_process_disk_job_post(struct sl_process *process, struct sl_offload *offload,
                              struct sl_process_disk_job *job,
                              void (*work)(struct sl_process_disk_job *job),
                              void (*done)(struct sl_process_disk_job *job));

/* A mail to the first core: fences writes, and makes a last checkpoint if there are writes to save.
 * One answer follows. */
void sl_process_checkpoint_last(void *core, uint64_t unused, uint64_t unused_too);

/* Call when the agent is closed. Reactor 0. */
void sl_process_checkpoint_close(struct sl_process *process);

#endif
