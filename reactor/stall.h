/* Detects turns that take too long, and their longest phase. Reading the clock costs as much as an
 * idle turn, so it is read only after phases that did work. The time of a phase that reports no
 * work is charged to the next that does.
 *
 * A long turn is a stall only if the thread computed or blocked in it, not if it waited for a
 * processor. The processor time and context switches since a sample, at most one turn limit older,
 * show the difference. One per reactor; owner thread only; no allocation. */
#ifndef SL_REACTOR_STALL_H
#define SL_REACTOR_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"

struct sl_stall_sample {
    uint64_t at_ns;
    uint64_t cpu_ns; /* of the thread */
    uint64_t blocks; /* voluntary context switches of the thread */
    uint64_t sleeps; /* intended sleeps since; each is at most one such switch */
};

struct sl_stall {
    const struct sl_clock *clock;
    const char *reactor_name;
    struct sl_stall_sample sample;

    /* The current turn. */
    uint64_t begin_ns;
    uint64_t mark_ns; /* end of the last marked phase */
    uint64_t longest_ns;
    const char *longest_phase; /* NULL: none marked */
    bool excused;              /* long on purpose: no stall */

    uint64_t logged_ns; /* time of the last log line; 0: none yet */
    bool logged_long;   /* the last line was a warning */
    uint64_t unlogged;  /* stalls since that line */
};

enum sl_stall_verdict { SL_STALL_NONE, SL_STALL_PREEMPTED, SL_STALL_STALLED };

/* Call on the watched thread. Both pointers must outlive *stall. */
void sl_stall_init(struct sl_stall *stall, const struct sl_clock *clock, const char *reactor_name,
                   uint64_t now_ns);

static inline void sl_stall_begin(struct sl_stall *stall, uint64_t now_ns)
{
    stall->begin_ns = now_ns;
    stall->mark_ns = now_ns;
    stall->longest_ns = 0;
    stall->longest_phase = NULL;
    stall->excused = false;
}

/* Ends a phase that did work. Keeps the name: static storage. */
void sl_stall_mark(struct sl_stall *stall, const char *phase);

/* Ends the turn; the unmarked time is charged to `last_phase`. Logs a stall, at most one a second,
 * and then writes the longest phase to *out_phase. */
enum sl_stall_verdict sl_stall_end(struct sl_stall *stall, uint64_t now_ns, const char *last_phase,
                                   const char **out_phase);

/* Reports an intended sleep, so that it does not count against the next turn. */
void sl_stall_slept(struct sl_stall *stall);

#endif
