/* A step of the library together with the arrays that its operations use. The arrays are kept until
 * the step is complete, also if no Python object is left that knows it: a step that a signal
 * interrupted is *abandoned*, and freed by a later call of its thread or when the client closes.
 * All functions need the GIL, and release it while they wait. */
#ifndef SL_NATIVE_STEP_H
#define SL_NATIVE_STEP_H

#include <stdbool.h>

#include "python/native/client.h"

enum sl_native_step_state {
    SL_NATIVE_STEP_BUILDING,
    SL_NATIVE_STEP_SUBMITTED,
    SL_NATIVE_STEP_COMPLETE,
};

struct sl_native_step_array; /* one array in use */
struct sl_native_step_copy;  /* values that are narrowed when the step has succeeded */

enum sl_native_step_content {
    SL_NATIVE_STEP_EMPTY,
    SL_NATIVE_STEP_OPERATIONS,
    SL_NATIVE_STEP_ADVANCES /* a tick, and perhaps operations */
};

struct sl_native_step {
    struct sl_native_client *client;
    struct sl_native_step *previous, *next; /* of the client */
    struct sl_step *step;                   /* NULL: ended, and no longer one of the client's */
    struct sl_native_step_array *arrays;
    struct sl_native_step_copy *copies;
    unsigned long thread; /* that began it, and may use it */
    enum sl_native_step_state state;
    enum sl_native_step_content content;
    bool is_abandoned;
    bool is_in_use; /* by a call, during which other Python code may run */
    uint32_t clock;
    int err; /* of a complete step */
};

/* Begins a step. Returns NULL with an exception. */
struct sl_native_step *sl_native_step_begin(struct sl_native_client *client, uint32_t clock);

/* Returns an empty place for the view of an array, which is released with the step; or NULL with an
 * exception. */
Py_buffer *sl_native_step_array(struct sl_native_step *step);

/* Narrows `copy` to `to` (sl_native_arrays_narrow) when the step has succeeded. Consumes `copy`.
 * Returns false with an exception. */
bool sl_native_step_narrow(struct sl_native_step *step, PyObject *to, PyObject *copy);

/* Submits the step. Returns false with an exception; then nothing was sent. */
bool sl_native_step_submit(struct sl_native_step *step, uint32_t timeout_ms);

/* Waits until the step is complete, for timeout_ms at most; UINT32_MAX: until its deadline. Returns
 * 1 if it is complete, 0 if not, -1 with the exception of a signal handler. */
int sl_native_step_wait(struct sl_native_step *step, uint32_t timeout_ms);

/* Whether a complete step succeeded, and no server has lost its values; raises the error if not. */
bool sl_native_step_check(const struct sl_native_step *step, const char *what);

/* Frees a step that may end here, and abandons another. Sets *step to NULL. */
void sl_native_step_free(struct sl_native_step **step);

/* Waits for all submitted steps of a client that closes, and ends all. Returns false with the
 * exception of a signal handler; then some are left. */
bool sl_native_step_end_all(struct sl_native_client *client);

#endif
