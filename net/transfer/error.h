/* Errors of the public functions: the reason of the calling thread's last failure. Any thread. */
#ifndef SL_NET_TRANSFER_ERROR_H
#define SL_NET_TRANSFER_ERROR_H

/* Sets the reason of the thread and returns err. */
int sl_transfer_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forgets the reason: the call succeeded. Returns 0. */
int sl_transfer_succeed(void);

#endif
