/* Table specifications from the arguments that starling.specs makes of Python's. */
#ifndef SL_NATIVE_SPEC_H
#define SL_NATIVE_SPEC_H

#include <stdbool.h>

#include "python/native/client.h"

/* check_spec(optimizer, initializer, {name of a member: value}): checks the values of an optimizer
 * or an initializer, by kind; members without a value have defaults. */
PyObject *sl_native_spec_check(PyObject *module, PyObject *args);

/* Returns {name of a member: value}, with those of all kinds, and optimizer, initializer, mode,
 * staleness and order; NULL with an exception. Needs the GIL. */
PyObject *sl_native_spec_members(const struct sl_table_spec *spec);

/* Reads (client, name, kind, dim, length, optimizer, initializer, consistency, policy,
 * reject_nonfinite, timeout), with
 * - optimizer, initializer, policy: (kind, {name of a member: value}); the others keep their
 *   defaults; the policy also has the precisions;
 * - consistency: (mode, staleness, worker count).
 * *client and *timeout are borrowed. Returns false with an exception. Needs the GIL. */
bool sl_native_spec_read(PyObject *args, struct sl_native_client **client,
                         struct sl_table_spec *spec, PyObject **timeout);

#endif
