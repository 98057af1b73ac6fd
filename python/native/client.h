/* The Python object of a client, as its steps, tables and memory use it. client_type.c has its
 * Python type. The GIL protects every member: all functions need it, and release it while they
 * wait. */
#ifndef SL_NATIVE_CLIENT_H
#define SL_NATIVE_CLIENT_H

#include <stdbool.h>

#include "python/native/python.h"

struct sl_native_step;

struct sl_native_client {
    PyObject_HEAD struct sl_client *client; /* NULL: destroyed */
    bool closed;
    uint32_t calls;               /* blocking calls that threads are in */
    uint32_t memory_count;        /* buffers of sl_client_buffer_create that exist */
    uint32_t abandoned_count;     /* steps without a Python object */
    struct sl_native_step *steps; /* all, linked */
    uint32_t clock;               /* iteration of the next step; starts at sl_client_clock */
    uint32_t timeout_ms;          /* default of calls without a timeout */
    uint32_t worker_count;        /* workers of the job; 0: not known */
};

/* Sets the type of clients. At import. */
void sl_native_client_set_type(PyTypeObject *type);

/* Returns an object of that type as a client; raises TypeError for another object. */
struct sl_native_client *sl_native_client_of(PyObject *object);

/* Whether the client may be used; raises ClosedError if not. */
bool sl_native_client_check(const struct sl_native_client *self);

/* Destroys the library's client after it was closed and its steps have ended. Memory of the client
 * may be in use by arrays: then only finishes the worker's clock, and the last of that memory
 * destroys the client. finishes: the worker has finished, see sl_client_destroy and
 * sl_client_leave. */
void sl_native_client_end(struct sl_native_client *self, bool finishes);

/* Counts out one buffer, after it was freed. */
void sl_native_client_drop_memory(struct sl_native_client *self);

#endif
