#include "python/native/arrays.h"

#include <string.h>

#define LAYOUT (PyBUF_FORMAT | PyBUF_STRIDES)

/* Of NumPy and of starling._arrays. */
static struct {
    PyObject *empty, *float32, *keys, *floats, *receiver, *narrow, *bag_ends;
} python;

static PyObject *attribute(const char *module, const char *name)
{
    PyObject *found = PyImport_ImportModule(module);
    PyObject *value = found == NULL ? NULL : PyObject_GetAttrString(found, name);
    Py_XDECREF(found);
    return value;
}

bool sl_native_arrays_init(void)
{
    return (python.empty = attribute("numpy", "empty")) != NULL &&
           (python.float32 = attribute("numpy", "float32")) != NULL &&
           (python.keys = attribute("starling._arrays", "keys")) != NULL &&
           (python.floats = attribute("starling._arrays", "floats")) != NULL &&
           (python.receiver = attribute("starling._arrays", "receiver")) != NULL &&
           (python.narrow = attribute("starling._arrays", "narrow")) != NULL &&
           (python.bag_ends = attribute("starling._arrays", "bag_ends")) != NULL;
}

/* Views memory whose layout the caller checks. Returns false without an exception. */
static bool view(PyObject *given, int flags, Py_buffer *out)
{
    if (!PyObject_CheckBuffer(given)) {
        return false;
    }
    if (PyObject_GetBuffer(given, out, flags) != 0) {
        PyErr_Clear();
        return false;
    }
    return true;
}

static bool is_array_of(const Py_buffer *buffer, const char *formats, Py_ssize_t item_bytes)
{
    return buffer->format != NULL && buffer->format[0] != '\0' && buffer->format[1] == '\0' &&
           strchr(formats, buffer->format[0]) != NULL && buffer->itemsize == item_bytes &&
           (uintptr_t)buffer->buf % (size_t)item_bytes == 0 &&
           PyBuffer_IsContiguous(buffer, 'C') != 0;
}

static bool view_keys(PyObject *given, Py_buffer *out)
{
    if (!view(given, LAYOUT, out)) {
        return false;
    }
    if (out->ndim == 1 && is_array_of(out, "lLqQ", sizeof(uint64_t))) {
        return true;
    }
    PyBuffer_Release(out);
    return false;
}

static bool has_shape(const Py_buffer *buffer, struct sl_native_shape shape)
{
    return buffer->ndim == (shape.columns < 0 ? 1 : 2) && buffer->shape[0] == shape.rows &&
           (shape.columns < 0 || buffer->shape[1] == shape.columns);
}

static bool view_floats(PyObject *given, struct sl_native_shape shape, bool writable,
                        Py_buffer *out)
{
    if (!view(given, LAYOUT | (writable ? PyBUF_WRITABLE : 0), out)) {
        return false;
    }
    if (has_shape(out, shape) && is_array_of(out, "f", sizeof(float))) {
        return true;
    }
    PyBuffer_Release(out);
    return false;
}

/* Ends a conversion by starling._arrays, whose result must have the accepted layout. Consumes
 * `converted`. */
static bool check_converted(PyObject *converted, bool is_viewed, const char *name)
{
    if (converted != NULL && !is_viewed) {
        PyErr_Format(PyExc_SystemError, "%s: starling._arrays returned %R", name, converted);
    }
    Py_XDECREF(converted);
    return is_viewed;
}

bool sl_native_arrays_keys(PyObject *given, const char *name, Py_buffer *out)
{
    if (view_keys(given, out)) {
        return true;
    }
    PyObject *converted = PyObject_CallFunction(python.keys, "Os", given, name);
    return check_converted(converted, converted != NULL && view_keys(converted, out), name);
}

bool sl_native_arrays_floats(PyObject *given, const char *name, struct sl_native_shape shape,
                             Py_buffer *out)
{
    if (view_floats(given, shape, false, out)) {
        return true;
    }
    PyObject *converted =
        PyObject_CallFunction(python.floats, "Osnn", given, name, shape.rows, shape.columns);
    return check_converted(converted,
                           converted != NULL && view_floats(converted, shape, false, out), name);
}

bool sl_native_arrays_receiver(PyObject *given, const char *name, struct sl_native_shape shape,
                               Py_buffer *out, PyObject **copy)
{
    *copy = NULL;
    if (view_floats(given, shape, true, out)) {
        return true;
    }
    PyObject *converted =
        PyObject_CallFunction(python.receiver, "Osnn", given, name, shape.rows, shape.columns);
    PyObject *array = converted == NULL ? NULL : PyTuple_GetItem(converted, 0);
    const bool is_viewed = array != NULL && view_floats(array, shape, true, out);
    if (is_viewed && PyTuple_GetItem(converted, 1) == Py_True) {
        *copy = Py_NewRef(array);
    }
    return check_converted(converted, is_viewed, name);
}

bool sl_native_arrays_narrow(PyObject *to, PyObject *copy)
{
    PyObject *done = PyObject_CallFunctionObjArgs(python.narrow, to, copy, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

bool sl_native_arrays_bag_ends(PyObject *offsets, Py_ssize_t key_count, Py_buffer *out)
{
    PyObject *ends = PyObject_CallFunction(python.bag_ends, "On", offsets, key_count);
    bool is_viewed = ends != NULL && PyObject_GetBuffer(ends, out, PyBUF_ND) == 0;
    Py_XDECREF(ends);
    return is_viewed;
}

PyObject *sl_native_arrays_new(struct sl_native_shape shape)
{
    return shape.columns < 0 ? PyObject_CallFunction(python.empty, "nO", shape.rows, python.float32)
                             : PyObject_CallFunction(python.empty, "(nn)O", shape.rows,
                                                     shape.columns, python.float32);
}
