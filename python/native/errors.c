#include "python/native/errors.h"

#include <math.h>

#define TIMEOUT_MS_MAX 4294967 /* of sl_step_submit */

static PyObject *make_error; /* starling.errors.of(code, text) */

bool sl_native_errors_init(void)
{
    PyObject *errors = PyImport_ImportModule("starling.errors");
    make_error = errors == NULL ? NULL : PyObject_GetAttrString(errors, "of");
    Py_XDECREF(errors);
    return make_error != NULL;
}

PyObject *sl_native_errors_raise(int err, const char *what, const char *reason)
{
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    PyObject *text =
        PyUnicode_FromFormat("%s: %s", what, reason[0] == '\0' ? sl_err_name(err) : reason);
    PyObject *error = text == NULL ? NULL : PyObject_CallFunction(make_error, "iO", err, text);
    Py_XDECREF(text);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

bool sl_native_errors_interrupted(void *unused)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool is_raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return is_raised;
}

bool sl_native_errors_timeout(PyObject *seconds, uint32_t default_ms, uint32_t *out)
{
    if (seconds == NULL || seconds == Py_None) {
        *out = default_ms;
        return true;
    }
    double milliseconds = ceil(PyFloat_AsDouble(seconds) * 1000);
    if (PyErr_Occurred() != NULL) {
        return false;
    }
    if (!(milliseconds >= 1 && milliseconds <= TIMEOUT_MS_MAX)) {
        PyErr_Format(PyExc_ValueError,
                     "timeout: %R; accepted: seconds, more than 0 and at most 4294.967", seconds);
        return false;
    }
    *out = (uint32_t)milliseconds;
    return true;
}
