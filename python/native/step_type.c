#include "python/native/step_type.h"

#include <float.h>
#include <stddef.h>
#include <structmember.h>

#include "python/native/errors.h"

struct step {
    PyObject_HEAD struct sl_native_client *client;
    struct sl_native_step *step; /* NULL: complete, or dropped */
    uint32_t clock, staleness;
};

static PyTypeObject *step_type;

struct sl_native_step *sl_native_step_type_use(PyObject *object, enum sl_native_step_state state)
{
    const struct step *self = (struct step *)object;
    if (!PyObject_TypeCheck(object, step_type)) {
        PyErr_Format(PyExc_TypeError, "step: %R; accepted: a starling.Step", object);
        return NULL;
    }
    if (!sl_native_client_check(self->client)) {
        return NULL;
    }
    const char *reason = NULL;
    if (self->step == NULL) {
        reason = "this step is complete; begin another";
    } else if (self->step->thread != PyThread_get_thread_ident()) {
        reason = "only the thread that began this step may use it; begin one in this thread";
    } else if (self->step->is_in_use) {
        reason = "a call of this step is under way";
    } else if (self->step->state != state) {
        reason = state == SL_NATIVE_STEP_BUILDING
                     ? "this step is submitted; begin another"
                     : "this step is not submitted yet; call submit() first";
    }
    if (reason != NULL) {
        PyErr_SetString(PyExc_RuntimeError, reason);
        return NULL;
    }
    return self->step;
}

/* Step(client, clock) */
static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    struct sl_native_client *client;
    unsigned int clock;
    if (!PyArg_ParseTuple(args, "OI", &given, &clock) ||
        (client = sl_native_client_of(given)) == NULL) {
        return NULL;
    }
    struct sl_native_step *begun = sl_native_step_begin(client, clock);
    struct step *self = begun == NULL ? NULL : (struct step *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        Py_INCREF((PyObject *)client);
        self->client = client;
        self->step = begun;
        self->clock = clock;
    } else if (begun != NULL) {
        sl_native_step_free(&begun);
    }
    return (PyObject *)self;
}

static void step_type_dealloc(PyObject *object)
{
    struct step *self = (struct step *)object;
    if (self->step != NULL) {
        sl_native_step_free(&self->step);
    }
    Py_XDECREF((PyObject *)self->client);
    sl_native_python_free(object);
}

static PyObject *step_type_advance(PyObject *object, PyObject *unused)
{
    struct sl_native_step *step = sl_native_step_type_use(object, SL_NATIVE_STEP_BUILDING);
    if (step == NULL) {
        return NULL;
    }
    if (sl_client_task_index(step->client->client) < 0 ||
        step->content == SL_NATIVE_STEP_ADVANCES) {
        PyErr_SetString(PyExc_RuntimeError,
                        step->content == SL_NATIVE_STEP_ADVANCES
                            ? "advance: this step has advanced already"
                            : "advance: this client has no task; connect(task=...) or "
                              "the launcher gives it one");
        return NULL;
    }
    int err = sl_step_tick(step->step);
    if (err != 0) {
        return sl_native_errors_raise(err, "advance", sl_last_error());
    }
    step->content = SL_NATIVE_STEP_ADVANCES;
    Py_RETURN_NONE;
}

static PyObject *set_rate(PyObject *object, PyObject *given)
{
    struct sl_native_step *step = sl_native_step_type_use(object, SL_NATIVE_STEP_BUILDING);
    const float factor = step == NULL ? -1 : (float)PyFloat_AsDouble(given);
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (!(factor > 0 && factor <= FLT_MAX)) {
        PyErr_Format(PyExc_ValueError, "factor: %R; accepted: a finite number above 0", given);
        return NULL;
    }
    int err = sl_step_set_rate(step->step, factor);
    if (err != 0) {
        return sl_native_errors_raise(err, "set_rate", sl_last_error());
    }
    Py_RETURN_NONE;
}

/* _set_encoding(pull, push) */
static PyObject *step_type_set_encoding(PyObject *object, PyObject *args)
{
    struct sl_native_step *step = sl_native_step_type_use(object, SL_NATIVE_STEP_BUILDING);
    int pull, push;
    if (step == NULL || !PyArg_ParseTuple(args, "ii", &pull, &push)) {
        return NULL;
    }
    const int err =
        sl_step_set_encoding(step->step, (enum sl_precision)pull, (enum sl_precision)push);
    return err == 0 ? Py_NewRef(Py_None)
                    : sl_native_errors_raise(err, "set_encoding", sl_last_error());
}

static PyObject *step_type_submit(PyObject *object, PyObject *timeout)
{
    uint32_t timeout_ms;
    struct sl_native_step *step = sl_native_step_type_use(object, SL_NATIVE_STEP_BUILDING);
    if (step == NULL || !sl_native_errors_timeout(timeout, step->client->timeout_ms, &timeout_ms) ||
        !sl_native_step_submit(step, timeout_ms)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *step_type_wait_for(PyObject *object, PyObject *timeout)
{
    struct step *self = (struct step *)object;
    uint32_t timeout_ms;
    if (!sl_native_errors_timeout(timeout, UINT32_MAX, &timeout_ms)) {
        return NULL;
    }
    if (self->step == NULL && sl_native_client_check(self->client)) {
        Py_RETURN_TRUE;
    }
    struct sl_native_step *step = sl_native_step_type_use(object, SL_NATIVE_STEP_SUBMITTED);
    const int is_complete = step == NULL ? -1 : sl_native_step_wait(step, timeout_ms);
    if (is_complete != 1) {
        return is_complete < 0 ? NULL : PyBool_FromLong(0);
    }
    self->staleness = sl_step_staleness(step->step);
    const bool succeeded = sl_native_step_check(step, "step");
    sl_native_step_free(&self->step);
    return succeeded ? PyBool_FromLong(1) : NULL;
}

static PyObject *step_type_drop(PyObject *object, PyObject *unused)
{
    struct step *self = (struct step *)object;
    if (self->step != NULL && !self->step->is_in_use) {
        sl_native_step_free(&self->step);
    }
    Py_RETURN_NONE;
}

static PyObject *get_has_content(PyObject *object, void *closure)
{
    const struct step *self = (struct step *)object;
    return PyBool_FromLong(self->step != NULL && self->step->content != SL_NATIVE_STEP_EMPTY);
}

static PyObject *get_is_submitted(PyObject *object, void *closure)
{
    const struct step *self = (struct step *)object;
    return PyBool_FromLong(self->step == NULL || self->step->state != SL_NATIVE_STEP_BUILDING);
}

static PyObject *get_done(PyObject *object, void *closure)
{
    const struct step *self = (struct step *)object;
    if (self->step == NULL || self->step->state == SL_NATIVE_STEP_BUILDING) {
        return PyBool_FromLong(self->step == NULL);
    }
    struct sl_native_step *step = sl_native_step_type_use(object, SL_NATIVE_STEP_SUBMITTED);
    return step == NULL ? NULL : PyBool_FromLong(sl_step_done(step->step));
}

static PyMethodDef methods[] = {
    {"advance", step_type_advance, METH_NOARGS,
     "advance($self)\n--\n\n"
     "Ends the iteration of the step: operations before it belong to that iteration, operations\n"
     "after it to the next. At most once a step. Raises RuntimeError without a task."},
    {"set_rate", set_rate, METH_O,
     "set_rate($self, factor, /)\n--\n\n"
     "Scales the learning rate of the pushes that are added after this call.\n\n"
     "factor: finite, above 0; else ValueError."},
    {"_set_encoding", step_type_set_encoding, METH_VARARGS, NULL},
    {"_submit", step_type_submit, METH_O, NULL},
    {"_wait", step_type_wait_for, METH_O, NULL},
    {"_drop", step_type_drop, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"clock", T_UINT, offsetof(struct step, clock), READONLY, "Iteration of the step."},
    {"staleness", T_UINT, offsetof(struct step, staleness), READONLY,
     "After the wait: the largest staleness of the pulls, in iterations."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"done", get_done, NULL, "Whether the step is complete. Never blocks.", NULL},
    {"_has_content", get_has_content, NULL, NULL, NULL},
    {"_is_submitted", get_is_submitted, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_new, new),
    SL_NATIVE_SLOT(Py_tp_methods, methods),
    SL_NATIVE_SLOT(Py_tp_members, members),
    SL_NATIVE_SLOT(Py_tp_getset, properties),
    SL_NATIVE_SLOT(Py_tp_dealloc, step_type_dealloc),
    {0, NULL},
};

bool sl_native_step_type_init(PyObject *module)
{
    step_type =
        sl_native_python_add_type(module, "starling._native.Step", sizeof(struct step), slots);
    return step_type != NULL;
}
