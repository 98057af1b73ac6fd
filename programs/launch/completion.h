/* Reports the exit status of workers between launchers on several hosts, each of which runs one
 * process of the job. A worker's launcher sends a datagram to the launcher of every ps, and repeats
 * it until it is acknowledged. Needed only when srun starts one launcher per process.
 *
 * A datagram is "starling-done TOKEN WORKER STATUS". The token, from job and step number, rejects
 * datagrams of other jobs. Main thread. */
#ifndef SL_PROGRAMS_LAUNCH_COMPLETION_H
#define SL_PROGRAMS_LAUNCH_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/reason.h"
#include "programs/launch/words.h"

struct sl_completion {
    char token[48];
    int fd;                /* of a ps's launcher: to poll, receives reports; -1: none */
    uint8_t *reported;     /* [worker_count]: the worker's report arrived */
    uint32_t worker_count; /* of a ps's launcher: workers of the job */
    uint32_t workers_left; /* of a ps's launcher: without a report */
    uint32_t worker;       /* of a worker's launcher: index */
    struct sl_words peers; /* of a worker's launcher: "host:port" of each ps's launcher */
};

#define SL_COMPLETION_NONE                                                                         \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Starts a ps's launcher. Errors, with reason: IN_USE, IO, NO_MEMORY. */
int sl_completion_listen(struct sl_completion *completion, uint16_t port, uint32_t worker_count,
                         struct sl_reason *reason);

/* Returns the next worker that has ended, each once; false: none now. */
bool sl_completion_take(struct sl_completion *completion, uint32_t *worker, int *status);

/* Reports to every peer, for at most 10 s each, and logs failures. No effect unless this is a
 * worker's launcher. */
void sl_completion_send(const struct sl_completion *completion, int status);

void sl_completion_fini(struct sl_completion *completion);

#endif
