/* Notify sends the state of this process to the service manager that started it: one datagram to
 * $NOTIFY_SOCKET, as sd_notify(3) describes. Any thread; no allocation. */
#ifndef SL_CORE_NOTIFY_H
#define SL_CORE_NOTIFY_H

/* Sends lines NAME=VALUE, at most 511 bytes; waits at most one second. Returns 0, also without
 * $NOTIFY_SOCKET. Errors: INVALID: the variable is neither a path nor "@" and an abstract name, or
 * too long; others: the service manager does not listen there or does not read. */
__attribute__((format(printf, 1, 2))) int sl_notify_send(const char *format, ...);

#endif
