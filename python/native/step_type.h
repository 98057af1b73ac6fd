/* The Python type starling._native.Step, the base of starling.Step. table.c adds operations. */
#ifndef SL_NATIVE_STEP_TYPE_H
#define SL_NATIVE_STEP_TYPE_H

#include <stdbool.h>

#include "python/native/step.h"

/* Adds the type to the module. At import. Returns false with an exception. */
bool sl_native_step_type_init(PyObject *module);

/* Returns the step of a Python object if this thread may use it and the step is in this state;
 * raises TypeError, RuntimeError or ClosedError if not. Needs the GIL. */
struct sl_native_step *sl_native_step_type_use(PyObject *object, enum sl_native_step_state state);

#endif
