/* Resource limits of the process. Any thread; no allocation. */
#ifndef SL_CORE_RLIMIT_H
#define SL_CORE_RLIMIT_H

/* Raises the soft limit of a resource, such as RLIMIT_NOFILE or RLIMIT_MEMLOCK, to the hard limit
 * if possible. Only for programs at start: a library must not change the limits of its process. */
void sl_rlimit_raise(int resource);

#endif
