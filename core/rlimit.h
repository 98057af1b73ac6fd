/* What the system lets this process use: a soft limit, which it may raise itself up to a hard one.
 * Any thread; no allocation. */
#ifndef SL_CORE_RLIMIT_H
#define SL_CORE_RLIMIT_H

/* Raises the soft limit of RLIMIT_NOFILE, RLIMIT_MEMLOCK or another to the hard one, where that can
 * be. For programs, at their start: a library leaves the limits of its process alone. */
void sl_rlimit_raise(int resource);

#endif
