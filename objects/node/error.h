/* Errors of the public functions: the reason of the calling thread's last failure. Any thread. */
#ifndef SL_OBJECTS_NODE_ERROR_H
#define SL_OBJECTS_NODE_ERROR_H

#include "core/reason.h"

/* Sets the reason of the thread and returns err. */
int sl_objects_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forgets the reason: the call succeeded. Returns 0. */
int sl_objects_succeed(void);

/* Functions that clean up keep the reason of the failure before. */
struct sl_reason sl_objects_error_save(void);
void sl_objects_error_restore(const struct sl_reason *saved);

#endif
