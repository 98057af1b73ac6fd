/* A benchmark's own code in further processes, each on a core of its own, which tell what they
 * found by a pipe and are killed by the kernel when the benchmark dies. One thread: the kernel
 * means the thread that forked. */
#ifndef SL_BENCH_FORK_H
#define SL_BENCH_FORK_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"

/* As fork(): in the child 0. The child is pinned to the core (-1: any) and killed with its parent;
 * what is buffered is the parent's to write. Only system calls are safe in the child of a process
 * with several threads. */
pid_t sl_bench_fork_process(int core);

struct sl_bench_fork {
    pid_t pid; /* 0: none runs */
    int from;  /* read end of the pipe; -1: none */
};

/* Forks, pinned to the core (-1: any). In the child 0 is returned in process->pid, and *to is where
 * its words go; it ends by _exit. Errors, logged: IO. */
int sl_bench_fork_start(struct sl_bench_fork *process, int core, int *to);

/* In a child: a word, whole. One that nobody hears any more ends the process. */
void sl_bench_fork_tell(int to, const void *word, size_t bytes);

/* In the parent: the next word. Errors: DEADLINE; CLOSED: the child ended without one. */
int sl_bench_fork_hear(struct sl_bench_fork *process, uint64_t timeout_ms, void *word,
                       size_t bytes);

/* Kills the child, if it runs. */
void sl_bench_fork_end(struct sl_bench_fork *process);

/* This thread on one core: the threads and processes that it starts meanwhile stay there. Figures
 * of another core would mislead, so that a core that cannot be had is an error. */

/* From now on; -1: nothing changes. Errors, logged: INVALID. */
int sl_bench_pin_thread(int core);

/* Until sl_bench_pin_end, which *before is for, also after an error. */
int sl_bench_pin_begin(int core, cpu_set_t *before);
void sl_bench_pin_end(const cpu_set_t *before);

#endif
