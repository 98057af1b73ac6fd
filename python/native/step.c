#include "python/native/step.h"

#include "python/native/arrays.h"
#include "python/native/errors.h"

struct sl_native_step_array {
    struct sl_native_step_array *next;
    Py_buffer view; /* may point into itself: never moved */
};

struct sl_native_step_copy {
    struct sl_native_step_copy *next;
    PyObject *to, *copy;
};

static void link_step(struct sl_native_step *step)
{
    step->next = step->client->steps;
    if (step->next != NULL) {
        step->next->previous = step;
    }
    step->client->steps = step;
}

static void unlink_step(struct sl_native_step *step)
{
    struct sl_native_step **from =
        step->previous == NULL ? &step->client->steps : &step->previous->next;
    *from = step->next;
    if (step->next != NULL) {
        step->next->previous = step->previous;
    }
    step->previous = step->next = NULL;
}

/* Ends a step that is not outstanding: frees the library's step and releases the arrays, which may
 * run Python code. */
static void native_step_end(struct sl_native_step *step)
{
    unlink_step(step);
    sl_step_destroy(&step->step);
    while (step->arrays != NULL) {
        struct sl_native_step_array *array = step->arrays;
        step->arrays = array->next;
        PyBuffer_Release(&array->view);
        PyMem_Free(array);
    }
    while (step->copies != NULL) {
        struct sl_native_step_copy *copy = step->copies;
        step->copies = copy->next;
        Py_DECREF(copy->to);
        Py_DECREF(copy->copy);
        PyMem_Free(copy);
    }
}

static void end_abandoned(struct sl_native_step *step)
{
    step->client->abandoned_count--;
    native_step_end(step);
    PyMem_Free(step);
}

/* Ends the abandoned steps of this thread that are complete by now. */
static void collect_abandoned(struct sl_native_client *client)
{
    const unsigned long thread = PyThread_get_thread_ident();
    struct sl_native_step *step = client->abandoned_count > 0 ? client->steps : NULL;
    while (step != NULL) {
        if (step->is_abandoned && step->thread == thread &&
            (step->state != SL_NATIVE_STEP_SUBMITTED || sl_step_done(step->step))) {
            end_abandoned(step);
            step = client->steps; /* Python code may have changed the list */
        } else {
            step = step->next;
        }
    }
}

struct sl_native_step *sl_native_step_begin(struct sl_native_client *client, uint32_t clock)
{
    if (!client->closed) {
        collect_abandoned(client);
    }
    if (!sl_native_client_check(client)) {
        return NULL;
    }
    struct sl_native_step *step = PyMem_Calloc(1, sizeof *step);
    if (step == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int err = sl_step_begin(client->client, clock, &step->step);
    if (err != 0) {
        PyMem_Free(step);
        (void)sl_native_errors_raise(err, "step", sl_last_error());
        return NULL;
    }
    step->client = client;
    step->thread = PyThread_get_thread_ident();
    step->clock = clock;
    link_step(step);
    return step;
}

Py_buffer *sl_native_step_array(struct sl_native_step *step)
{
    struct sl_native_step_array *array = PyMem_Calloc(1, sizeof *array);
    if (array == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    array->next = step->arrays;
    step->arrays = array;
    return &array->view;
}

bool sl_native_step_narrow(struct sl_native_step *step, PyObject *to, PyObject *copy)
{
    struct sl_native_step_copy *added = PyMem_Calloc(1, sizeof *added);
    if (added == NULL) {
        Py_DECREF(copy);
        PyErr_NoMemory();
        return false;
    }
    *added = (struct sl_native_step_copy){.next = step->copies, .to = Py_NewRef(to), .copy = copy};
    step->copies = added;
    return true;
}

/* An operation that was added later writes later. */
static bool narrow_all(const struct sl_native_step_copy *copy)
{
    return copy == NULL ||
           (narrow_all(copy->next) && sl_native_arrays_narrow(copy->to, copy->copy));
}

bool sl_native_step_submit(struct sl_native_step *step, uint32_t timeout_ms)
{
    int err;
    if (!sl_native_client_check_values(step->client)) {
        return false;
    }
    step->client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_step_submit(step->step, timeout_ms);
    Py_END_ALLOW_THREADS;
    step->client->calls--;
    if (err != 0) {
        (void)sl_native_errors_raise(err, "step", sl_last_error());
        return false;
    }
    step->state = SL_NATIVE_STEP_SUBMITTED;
    if (step->content == SL_NATIVE_STEP_ADVANCES) {
        step->client->clock = step->clock + 1;
    }
    return true;
}

int sl_native_step_wait(struct sl_native_step *step, uint32_t timeout_ms)
{
    if (step->state != SL_NATIVE_STEP_SUBMITTED) {
        return 1;
    }
    int err;
    step->client->calls++; /* also while a signal handler runs */
    step->is_in_use = true;
    Py_BEGIN_ALLOW_THREADS;
    err = timeout_ms == UINT32_MAX ? sl_step_wait(step->step)
                                   : sl_step_wait_for(step->step, timeout_ms);
    Py_END_ALLOW_THREADS;
    step->is_in_use = false;
    step->client->calls--;
    if (err == SL_ERR_AGAIN || PyErr_Occurred() != NULL) {
        return err == SL_ERR_AGAIN ? 0 : -1;
    }
    step->state = SL_NATIVE_STEP_COMPLETE;
    step->err = err;
    if (err == SL_ERR_INVALID && step->content == SL_NATIVE_STEP_ADVANCES &&
        step->client->clock == step->clock + 1) {
        step->client->clock = step->clock; /* a refused step does not end its iteration */
    }
    return err != 0 || narrow_all(step->copies) ? 1 : -1;
}

bool sl_native_step_check(const struct sl_native_step *step, const char *what)
{
    if (step->err != 0) {
        (void)sl_native_errors_raise(step->err, what, sl_step_error(step->step));
    }
    return step->err == 0 && sl_native_client_check_values(step->client);
}

void sl_native_step_free(struct sl_native_step **step)
{
    struct sl_native_step *freed = *step;
    *step = NULL;
    const bool may_end =
        freed->state != SL_NATIVE_STEP_SUBMITTED && freed->thread == PyThread_get_thread_ident();
    if (freed->step != NULL && !may_end) {
        freed->is_abandoned = true;
        freed->client->abandoned_count++;
        return;
    }
    if (freed->step != NULL) {
        native_step_end(freed);
    }
    PyMem_Free(freed);
}

bool sl_native_step_end_all(struct sl_native_client *client)
{
    struct sl_native_step *step;
    while ((step = client->steps) != NULL) {
        if (sl_native_step_wait(step, UINT32_MAX) < 0) {
            return false;
        }
        if (step->is_abandoned) {
            end_abandoned(step);
        } else {
            native_step_end(step);
        }
    }
    return true;
}
