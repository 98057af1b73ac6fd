/* The Python type starling._native.Scan, which SparseTable.scan iterates over. */
#ifndef SL_NATIVE_SCAN_H
#define SL_NATIVE_SCAN_H

#include <starling_rows.h>
#include <stdbool.h>

#include "python/native/client.h"

/* Begins a scan of a table of the client. Returns NULL with an exception. */
PyObject *sl_native_scan_open(struct sl_native_client *client, struct sl_table *table,
                              const struct sl_scan_options *options);

/* Adds the type to the module. At import. Returns false with an exception. */
bool sl_native_scan_init(PyObject *module);

#endif
