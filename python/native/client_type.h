/* The Python type starling._native.Client, the base of starling.Client. */
#ifndef SL_NATIVE_CLIENT_TYPE_H
#define SL_NATIVE_CLIENT_TYPE_H

#include <stdbool.h>

#include "python/native/python.h"

/* Adds the type to the module. At import. Returns false with an exception. */
bool sl_native_client_type_init(PyObject *module);

#endif
