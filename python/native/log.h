/* Log lines of the library as records in a pipe, which starling/_log.py reads: the digit of the
 * level, the text, a newline. No thread of the library takes the GIL or waits: a full pipe drops
 * lines, and a later record has their number. */
#ifndef SL_NATIVE_LOG_H
#define SL_NATIVE_LOG_H

#include "python/native/python.h"

/* log_to(pipe, level): sends the lines from this level on to a non-blocking pipe, which stays open
 * until the next call; -1: to standard error. */
PyObject *sl_native_log_to(PyObject *module, PyObject *args);

/* The callback for the log of another library; its ctx is the pipe. */
sl_log_fn *sl_native_log_line(void);

#endif
