/* Restores a checkpoint at start, on reactor 0 unless noted:
 * 1. the process searches its directory, and registers the checkpoints it can restore;
 * 2. the coordinator chooses one for all servers;
 * 3. every shard is loaded;
 * 4. the tables are registered with the coordinator;
 * 5. clients are welcomed. */
#ifndef SL_PS_PROCESS_RESTORE_H
#define SL_PS_PROCESS_RESTORE_H

#include "ps/process/state.h"

/* Searches the directory for checkpoints, then calls `join`, which registers with the coordinator.
 * Reactor 0. Errors: NO_MEMORY, IO, TOO_LARGE; later errors, also of `join`, are answered. */
int sl_process_restore_begin(struct sl_process *process, int (*join)(struct sl_process *process));

/* Result of the search. */
struct sl_process_restore_candidate {
    uint64_t number;    /* checkpoint to restore; 0: none */
    uint64_t highest;   /* greatest number in the directory, complete or not; 0: none */
    uint64_t unclaimed; /* newest one, if neither `restores` nor `fresh` says what is meant; 0: none
                         */
    struct sl_message_numbers complete;   /* to be registered */
    struct sl_message_numbers unfinished; /* likewise */
};

/* Returns the result; zeros before the search ends, and without a directory. Reactor 0. */
struct sl_process_restore_candidate sl_process_restore_found(const struct sl_process *process);

/* Call when the placement is known. Returns the checkpoint to restore; 0: none. Reactor 0. */
uint64_t sl_process_restore_joined(struct sl_process *process);

/* Returns whether the process has not begun to serve because shards are restored. Reactor 0. */
bool sl_process_restore_is_needed(const struct sl_process *process);

/* Loads checkpoint `number` into a new shard; sl_process_hosted_started follows when all have
 * loaded. 0: it starts to serve. The shard's reactor. Errors: those of sl_server_restore_begin. */
int sl_process_restore_shard(struct sl_process_hosted *hosted, uint64_t number);

/* Reactor 0. */
void sl_process_restore_close(struct sl_process *process);

#endif
