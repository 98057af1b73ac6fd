/* Notices turns that take too long, and in which phase. Reading the clock costs as much as an idle
 * turn does otherwise, so it is read only at the end of phases that did something; a phase that
 * reports no work is charged to the next that does.
 *
 * A long turn is a stall only if the thread worked or blocked in it: whether it merely waited for a
 * processor is found out afterwards, from its processor time and context switches since a sample
 * that is at most a turn limit old. Of one reactor; owner thread only; no allocation. */
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
    uint64_t sleeps; /* on purpose, since: each is one such switch at most */
};

struct sl_stall {
    const struct sl_clock *clock;
    const char *reactor_name;
    struct sl_stall_sample sample;

    /* Of the turn in progress. */
    uint64_t begin_ns;
    uint64_t mark_ns; /* the end of the last phase that was marked */
    uint64_t longest_ns;
    const char *longest_phase; /* NULL: none was marked */
    bool excused;              /* it is long on purpose */

    uint64_t logged_ns; /* when the last line was written; 0: never */
    bool logged_long;   /* it was a warning */
    uint64_t unlogged;  /* stalls since */
};

enum sl_stall_verdict { SL_STALL_NONE, SL_STALL_PREEMPTED, SL_STALL_STALLED };

/* On the thread that is to be watched. Both pointers must outlive *stall. */
void sl_stall_init(struct sl_stall *stall, const struct sl_clock *clock, const char *reactor_name,
                   uint64_t now_ns);

/* A turn begins. */
static inline void sl_stall_begin(struct sl_stall *stall, uint64_t now_ns)
{
    stall->begin_ns = now_ns;
    stall->mark_ns = now_ns;
    stall->longest_ns = 0;
    stall->longest_phase = NULL;
    stall->excused = false;
}

/* A phase ends that did something. The name is kept: static storage. */
void sl_stall_mark(struct sl_stall *stall, const char *phase);

/* The turn has ended; what was not marked goes to `last_phase`. Logs a stall, at most one a second;
 * writes the phase that took longest to *out_phase when it is one. */
enum sl_stall_verdict sl_stall_end(struct sl_stall *stall, uint64_t now_ns, const char *last_phase,
                                   const char **out_phase);

/* The thread has slept because it meant to, which is no fault of the next turn's. */
void sl_stall_slept(struct sl_stall *stall);

#endif
