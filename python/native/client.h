/* The Python object of a client, as its steps, tables and memory use it. client_type.c has its
 * Python type. The GIL protects every member: all functions need it, and release it while they
 * wait. */
#ifndef SL_NATIVE_CLIENT_H
#define SL_NATIVE_CLIENT_H

#include <starling_training.h>
#include <stdbool.h>

#include "python/native/python.h"

struct sl_native_memory;
struct sl_native_step;

struct sl_native_client {
    PyObject_HEAD struct sl_client *client; /* NULL: destroyed */
    bool closed;
    bool accepts_loss;            /* of connect: calls succeed after a server has lost its values */
    uint32_t calls;               /* blocking calls that threads are in */
    uint32_t abandoned_count;     /* steps without a Python object */
    struct sl_native_step *steps; /* all of the client, linked */
    struct sl_native_memory *memories; /* all of the client, linked */
    uint32_t clock;                    /* iteration of the next step; starts at sl_client_clock */
    uint32_t timeout_ms;               /* default of calls without a timeout */
    uint32_t worker_count;             /* workers of the job; 0: not known */
    struct sl_training training;       /* as it was set last */
};

/* Sets the type of clients. At import. */
void sl_native_client_set_type(PyTypeObject *type);

/* Returns an object of that type as a client; raises TypeError for another object. */
struct sl_native_client *sl_native_client_of(PyObject *object);

/* Whether the client may be used; raises ClosedError if not. */
bool sl_native_client_check(const struct sl_native_client *self);

/* Whether no server has lost its values, or the client accepts that; raises CorruptError if not.
 * The client is open. */
bool sl_native_client_check_values(const struct sl_native_client *self);

#endif
