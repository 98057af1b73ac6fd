/* The Python type starling._native.Memory: a buffer of sl_client_buffer_create, which servers on
 * this machine and RDMA devices access directly. It has the buffer protocol; NumPy arrays lie in
 * it. It keeps the client until that is closed, and is freed when no array uses it any more. */
#ifndef SL_NATIVE_MEMORY_H
#define SL_NATIVE_MEMORY_H

#include <stdbool.h>

#include "python/native/client.h"

/* Adds the type to the module. At import. Returns false with an exception. */
bool sl_native_memory_init(PyObject *module);

/* Before the library's client ends: its memory stays for the arrays in it. */
void sl_native_memory_keep_all(struct sl_native_client *client);

#endif
