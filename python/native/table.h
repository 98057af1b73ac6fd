/* The Python type starling._native.Table, the base of SparseTable and DenseTable. Its methods are
 * the operations. They read their arguments, check every array against the table, and add the
 * operation to a step of the caller, or run it as a step of its own. */
#ifndef SL_NATIVE_TABLE_H
#define SL_NATIVE_TABLE_H

#include <stdbool.h>

#include "python/native/python.h"

/* Adds the type to the module. At import. Returns false with an exception. */
bool sl_native_table_init(PyObject *module);

#endif
