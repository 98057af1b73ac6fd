/* Errors of libstarling as Python exceptions, and timeouts. Every function needs the GIL. */
#ifndef SL_NATIVE_ERRORS_H
#define SL_NATIVE_ERRORS_H

#include <stdbool.h>

#include "python/native/python.h"

/* Finds the Python functions that make exceptions. At import. Returns false with an exception. */
bool sl_native_errors_init(void);

/* Raises the class of starling.errors for an enum sl_err, with the text "WHAT: REASON". Raises
 * nothing if an exception is set, as by a signal handler that ended a wait. reason: "" means the
 * library's last error of this thread. Returns NULL. */
PyObject *sl_native_errors_raise(int err, const char *what, const char *reason);

/* The library's option `interrupted`: runs the handlers of signals that came, and returns whether
 * one has raised an exception. Takes the GIL itself. */
bool sl_native_errors_interrupted(void *unused);

/* Converts seconds to milliseconds, rounded up. NULL and None: default_ms. Returns false with a
 * TypeError or ValueError that names the argument `timeout`. */
bool sl_native_errors_timeout(PyObject *seconds, uint32_t default_ms, uint32_t *out);

#endif
