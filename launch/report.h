/* How launchers on several machines, each with one process of the job, learn that the workers are
 * done: a worker's launcher tells every ps's launcher its worker's exit status, in a datagram that
 * it repeats until it is answered. Only needed where srun has started one launcher a process.
 *
 * A datagram is "starling-done TOKEN WORKER STATUS"; the token is the job's and the step's number,
 * so that a stray one of another job is not believed. Main thread. */
#ifndef SL_LAUNCH_REPORT_H
#define SL_LAUNCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "launch/words.h"

struct sl_report {
    char token[48];
    int fd;                /* a ps's launcher: where reports arrive; -1: none do */
    uint8_t *heard;        /* one for each worker */
    uint32_t worker_count; /* a ps's launcher: of the job */
    uint32_t workers_left; /* likewise: not yet heard of */
    uint32_t worker;       /* a worker's launcher: which */
    struct sl_words peers; /* a worker's launcher: "host:port" of every ps's launcher */
};

#define SL_REPORT_NONE                                                                             \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* A ps's launcher. Errors, with reason: IN_USE, IO, NO_MEMORY. */
int sl_report_listen(struct sl_report *report, uint16_t port, uint32_t worker_count, char *reason,
                     size_t reason_bytes);

/* To poll for, or -1. */
int sl_report_fd(const struct sl_report *report);

/* The next worker that has ended, each once; false when there is none now. */
bool sl_report_take(struct sl_report *report, uint32_t *worker, int *status);

/* A worker's launcher: tells every peer, for 10 s at most each; does nothing for others. A peer
 * that cannot be told is logged. */
void sl_report_send(const struct sl_report *report, int status);

void sl_report_fini(struct sl_report *report);

#endif
