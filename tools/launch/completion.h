/* How launchers on several machines, each with one process of the job, learn that the workers are
 * done: a worker's launcher tells every ps's launcher its worker's exit status, in a datagram that
 * it repeats until it is answered. Only needed where srun has started one launcher a process.
 *
 * A datagram is "starling-done TOKEN WORKER STATUS"; the token is the job's and the step's number,
 * so that a stray one of another job is not believed. Main thread. */
#ifndef SL_TOOLS_LAUNCH_COMPLETION_H
#define SL_TOOLS_LAUNCH_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "tools/launch/shell_split.h"

struct sl_completion {
    char token[48];
    int fd;                      /* a ps's launcher: where reports arrive; -1: none do */
    uint8_t *heard;              /* one for each worker */
    uint32_t worker_count;       /* a ps's launcher: of the job */
    uint32_t workers_left;       /* likewise: not yet heard of */
    uint32_t worker;             /* a worker's launcher: which */
    struct sl_shell_words peers; /* a worker's launcher: "host:port" of every ps's launcher */
};

#define SL_COMPLETION_NONE                                                                         \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* A ps's launcher. Errors, with reason: IN_USE, IO, NO_MEMORY. */
int sl_completion_listen(struct sl_completion *report, uint16_t port, uint32_t worker_count,
                         char *reason, size_t reason_bytes);

/* To poll for, or -1. */
int sl_completion_fd(const struct sl_completion *report);

/* The next worker that has ended, each once; false when there is none now. */
bool sl_completion_take(struct sl_completion *report, uint32_t *worker, int *status);

/* A worker's launcher: tells every peer, for 10 s at most each; does nothing for others. A peer
 * that cannot be told is logged. */
void sl_completion_send(const struct sl_completion *report, int status);

void sl_completion_fini(struct sl_completion *report);

#endif
