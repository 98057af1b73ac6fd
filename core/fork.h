/* Forked children: a process forked from one that uses the library has its memory and descriptors,
 * but none of its threads. */
#ifndef SL_CORE_FORK_H
#define SL_CORE_FORK_H

#include <stdint.h>

/* Not for callers. */
extern uint32_t sl_fork_counted;

/* Returns the number of forks between the process that first called this function and the calling
 * one. An object that keeps it knows in a forked child that it is the parent's. Any thread. */
uint32_t sl_fork_count(void);

/* The same, for code that runs after a call of sl_fork_count. Any thread. */
static inline uint32_t sl_fork_count_again(void)
{
    return sl_fork_counted;
}

/* A forked child closes the descriptor at once: else the peer of a connection would not notice the
 * end of the parent. It is unregistered before it is closed. Any thread. */
void sl_fork_register(int fd);
void sl_fork_unregister(int fd);

/* Unregisters and closes a descriptor. Any thread. */
void sl_fork_close(int fd);

#endif
