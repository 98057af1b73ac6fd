#include "python/native/table.h"

#include <stdio.h>
#include <string.h>

#include "python/native/arrays.h"
#include "python/native/errors.h"
#include "python/native/spec.h"
#include "python/native/step.h"
#include "python/native/step_type.h"

struct table {
    PyObject_HEAD struct sl_native_client *client;
    struct sl_table *table;
    struct sl_table_spec spec;
};

/* An operation from the reading of its arguments to its result. */
struct operation {
    const char *name;
    const struct table *table;
    PyObject *caller_step, *timeout; /* arguments; None: a step of its own, the client's timeout */
    struct sl_native_step *native;
    struct sl_step *step;
    struct sl_table *to;
};

/* Begins an operation with the arguments `caller_step` and `timeout`. Returns false with an
 * exception. */
static bool begin(struct operation *operation, const char *name, PyObject *self)
{
    const struct table *table = (struct table *)self;
    operation->name = name;
    operation->table = table;
    if (operation->caller_step == Py_None) {
        operation->native = sl_native_step_begin(table->client, table->client->clock);
    } else if (operation->timeout != Py_None) {
        PyErr_Format(PyExc_TypeError, "timeout: not accepted with a step; submit takes it");
        return false;
    } else {
        operation->native =
            sl_native_step_type_use(operation->caller_step, SL_NATIVE_STEP_BUILDING);
    }
    if (operation->native == NULL) {
        return false;
    }
    if (operation->native->client != table->client) {
        PyErr_Format(PyExc_ValueError, "table: %s was opened by another client than this step's",
                     table->spec.name);
        return false;
    }
    operation->step = operation->native->step;
    operation->to = table->table;
    operation->native->is_in_use = true; /* conversion of arrays may run other Python code */
    table->client->calls++;
    return true;
}

/* Ends an operation. `result`: what it returns, consumed; NULL: an exception is set. err: of adding
 * it to the step. */
static PyObject *end(const struct operation *operation, int err, PyObject *result)
{
    const struct table *table = operation->table;
    char what[SL_TABLE_NAME_BYTES + 32];
    (void)snprintf(what, sizeof what, "%s, table %s", operation->name, table->spec.name);
    if (result != NULL && err != 0) {
        Py_CLEAR(result);
        (void)sl_native_errors_raise(err, what, "");
    }
    uint32_t timeout_ms = 0;
    if (result != NULL &&
        !sl_native_errors_timeout(operation->timeout, table->client->timeout_ms, &timeout_ms)) {
        Py_CLEAR(result);
    }
    operation->native->has_content |= result != NULL;
    operation->native->is_in_use = false;
    table->client->calls--;
    if (operation->caller_step != Py_None) {
        return result;
    }
    return sl_native_step_run(operation->native, result, what, timeout_ms);
}

static PyObject *none_if(bool succeeded)
{
    if (succeeded) {
        Py_RETURN_NONE;
    }
    return NULL;
}

/* Arrays of an operation, which the step keeps. The functions return false with an exception. */

struct keys {
    const uint64_t *values;
    uint32_t count;
};

static bool keep_keys(const struct operation *operation, PyObject *given, struct keys *out)
{
    Py_buffer *view = sl_native_step_array(operation->native);
    if (view == NULL || !sl_native_arrays_keys(given, "keys", view)) {
        return false;
    }
    if (view->shape[0] > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "keys: %zd; accepted: at most %lu in one operation",
                     view->shape[0], (unsigned long)UINT32_MAX);
        return false;
    }
    *out = (struct keys){.values = view->buf, .count = (uint32_t)view->shape[0]};
    return true;
}

static struct sl_native_shape rows_of(const struct operation *operation, Py_ssize_t count)
{
    return (struct sl_native_shape){.rows = count, .columns = operation->table->spec.dim};
}

static bool keep_floats(const struct operation *operation, PyObject *given, const char *name,
                        struct sl_native_shape shape, const float **out)
{
    Py_buffer *view = sl_native_step_array(operation->native);
    if (view == NULL || !sl_native_arrays_floats(given, name, shape, false, view)) {
        return false;
    }
    *out = view->buf;
    return true;
}

/* Returns the array that receives values: a new reference to `out`, or a new array if `out` is
 * None; or NULL with an exception. */
static PyObject *keep_out(const struct operation *operation, PyObject *out,
                          struct sl_native_shape shape, float **values)
{
    Py_buffer *view = sl_native_step_array(operation->native);
    if (view == NULL) {
        return NULL;
    }
    PyObject *array = out == Py_None ? sl_native_arrays_new(shape) : out;
    if (array == out) {
        Py_INCREF(array);
    }
    if (array != NULL && sl_native_arrays_floats(array, "out", shape, true, view)) {
        *values = view->buf;
        return array;
    }
    Py_XDECREF(array);
    return NULL;
}

/* Operations on rows */

static PyObject *pull(PyObject *self, PyObject *args)
{
    struct operation op;
    PyObject *given, *out;
    struct keys keys = {0};
    float *rows = NULL;
    if (!PyArg_ParseTuple(args, "OOOO", &op.caller_step, &given, &out, &op.timeout) ||
        !begin(&op, "pull", self)) {
        return NULL;
    }
    PyObject *result =
        keep_keys(&op, given, &keys) ? keep_out(&op, out, rows_of(&op, keys.count), &rows) : NULL;
    int err = result == NULL ? 0 : sl_step_pull(op.step, op.to, keys.values, keys.count, rows);
    return end(&op, err, result);
}

static PyObject *push(PyObject *self, PyObject *args)
{
    struct operation op;
    PyObject *given, *grads;
    struct keys keys = {0};
    const float *gradients = NULL;
    if (!PyArg_ParseTuple(args, "OOOO", &op.caller_step, &given, &grads, &op.timeout) ||
        !begin(&op, "push", self)) {
        return NULL;
    }
    const bool is_kept = keep_keys(&op, given, &keys) &&
                         keep_floats(&op, grads, "grads", rows_of(&op, keys.count), &gradients);
    int err = is_kept ? sl_step_push(op.step, op.to, keys.values, keys.count, gradients) : 0;
    return end(&op, err, none_if(is_kept));
}

static PyObject *push_pull(PyObject *self, PyObject *args)
{
    struct operation op;
    PyObject *given, *grads, *out, *result = NULL;
    struct keys keys = {0};
    const float *gradients = NULL;
    float *rows = NULL;
    if (!PyArg_ParseTuple(args, "OOOOO", &op.caller_step, &given, &grads, &out, &op.timeout) ||
        !begin(&op, "push_pull", self)) {
        return NULL;
    }
    if (keep_keys(&op, given, &keys) &&
        keep_floats(&op, grads, "grads", rows_of(&op, keys.count), &gradients)) {
        result = keep_out(&op, out, rows_of(&op, keys.count), &rows);
    }
    int err = result == NULL
                  ? 0
                  : sl_step_push_pull(op.step, op.to, keys.values, keys.count, gradients, rows);
    return end(&op, err, result);
}

static bool parse_mode(const char *mode, enum sl_pooling *out)
{
    *out = strcmp(mode, "mean") == 0 ? SL_POOLING_MEAN : SL_POOLING_SUM;
    if (*out == SL_POOLING_SUM && strcmp(mode, "sum") != 0) {
        PyErr_Format(PyExc_ValueError, "mode: '%s'; accepted: 'sum', 'mean'", mode);
        return false;
    }
    return true;
}

static PyObject *pull_bags(PyObject *self, PyObject *args)
{
    struct operation op;
    PyObject *given, *offsets, *out, *result = NULL;
    const char *mode;
    struct keys keys = {0};
    enum sl_pooling pooling;
    float *pooled = NULL;
    if (!PyArg_ParseTuple(args, "OOOsOO", &op.caller_step, &given, &offsets, &mode, &out,
                          &op.timeout) ||
        !parse_mode(mode, &pooling) || !begin(&op, "pull_bags", self)) {
        return NULL;
    }
    Py_buffer *ends = sl_native_step_array(op.native);
    if (ends != NULL && keep_keys(&op, given, &keys) &&
        sl_native_arrays_bag_ends(offsets, keys.count, ends)) {
        result = keep_out(&op, out, rows_of(&op, ends->shape[0]), &pooled);
    }
    int err = result == NULL
                  ? 0
                  : sl_step_pull_pooled(op.step, op.to, keys.values, keys.count, ends->buf,
                                        (uint32_t)ends->shape[0], pooling, pooled);
    return end(&op, err, result);
}

static PyObject *assign(PyObject *self, PyObject *args)
{
    struct operation op;
    PyObject *given, *rows;
    struct keys keys = {0};
    const float *values = NULL;
    if (!PyArg_ParseTuple(args, "OOOO", &op.caller_step, &given, &rows, &op.timeout) ||
        !begin(&op, "assign", self)) {
        return NULL;
    }
    const bool is_kept = keep_keys(&op, given, &keys) &&
                         keep_floats(&op, rows, "rows", rows_of(&op, keys.count), &values);
    int err = is_kept ? sl_step_assign(op.step, op.to, keys.values, keys.count, values) : 0;
    return end(&op, err, none_if(is_kept));
}

static PyObject *erase(PyObject *self, PyObject *args)
{
    struct operation op;
    PyObject *given;
    struct keys keys = {0};
    if (!PyArg_ParseTuple(args, "OOO", &op.caller_step, &given, &op.timeout) ||
        !begin(&op, "erase", self)) {
        return NULL;
    }
    const bool is_kept = keep_keys(&op, given, &keys);
    int err = is_kept ? sl_step_erase(op.step, op.to, keys.values, keys.count) : 0;
    return end(&op, err, none_if(is_kept));
}

/* Operations on the elements of a dense table. starling.DenseTable has checked that they are in the
 * table, and that the arrays have `count` elements or are None. */

/* Elements [start, start + count). */
struct range {
    unsigned long long start;
    Py_ssize_t count;
};

static struct sl_native_shape elements_of(struct range range)
{
    return (struct sl_native_shape){.rows = range.count, .columns = -1};
}

static PyObject *dense_pull(PyObject *self, PyObject *args)
{
    struct operation op;
    struct range range;
    PyObject *out;
    float *values = NULL;
    if (!PyArg_ParseTuple(args, "OKnOO", &op.caller_step, &range.start, &range.count, &out,
                          &op.timeout) ||
        !begin(&op, "pull", self)) {
        return NULL;
    }
    PyObject *result = keep_out(&op, out, elements_of(range), &values);
    int err = result == NULL
                  ? 0
                  : sl_step_dense_pull(op.step, op.to, range.start, (uint64_t)range.count, values);
    return end(&op, err, result);
}

static PyObject *dense_push(PyObject *self, PyObject *args)
{
    struct operation op;
    struct range range;
    PyObject *grads;
    const float *gradients = NULL;
    if (!PyArg_ParseTuple(args, "OKnOO", &op.caller_step, &range.start, &range.count, &grads,
                          &op.timeout) ||
        !begin(&op, "push", self)) {
        return NULL;
    }
    const bool is_kept = keep_floats(&op, grads, "grads", elements_of(range), &gradients);
    int err =
        is_kept ? sl_step_dense_push(op.step, op.to, range.start, (uint64_t)range.count, gradients)
                : 0;
    return end(&op, err, none_if(is_kept));
}

static PyObject *dense_push_pull(PyObject *self, PyObject *args)
{
    struct operation op;
    struct range range;
    PyObject *grads, *out, *result = NULL;
    const float *gradients = NULL;
    float *values = NULL;
    if (!PyArg_ParseTuple(args, "OKnOOO", &op.caller_step, &range.start, &range.count, &grads, &out,
                          &op.timeout) ||
        !begin(&op, "push_pull", self)) {
        return NULL;
    }
    if (keep_floats(&op, grads, "grads", elements_of(range), &gradients)) {
        result = keep_out(&op, out, elements_of(range), &values);
    }
    int err = result == NULL ? 0
                             : sl_step_dense_push_pull(op.step, op.to, range.start,
                                                       (uint64_t)range.count, gradients, values);
    return end(&op, err, result);
}

static PyObject *dense_assign(PyObject *self, PyObject *args)
{
    struct operation op;
    struct range range;
    PyObject *given;
    const float *values = NULL;
    if (!PyArg_ParseTuple(args, "OKnOO", &op.caller_step, &range.start, &range.count, &given,
                          &op.timeout) ||
        !begin(&op, "assign", self)) {
        return NULL;
    }
    const bool is_kept = keep_floats(&op, given, "values", elements_of(range), &values);
    int err = is_kept
                  ? sl_step_dense_assign(op.step, op.to, range.start, (uint64_t)range.count, values)
                  : 0;
    return end(&op, err, none_if(is_kept));
}

static PyObject *stats(PyObject *self, PyObject *timeout)
{
    const struct table *table = (struct table *)self;
    struct sl_native_client *client = table->client;
    struct sl_table_stats stats;
    uint32_t timeout_ms;
    if (!sl_native_errors_timeout(timeout, client->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(client)) {
        return NULL;
    }
    int err;
    client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_table_stats(client->client, table->table, timeout_ms, &stats);
    Py_END_ALLOW_THREADS;
    client->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "stats", sl_last_error());
    }
    return Py_BuildValue("KKKKK", (unsigned long long)stats.rows, (unsigned long long)stats.bytes,
                         (unsigned long long)stats.pulled_rows,
                         (unsigned long long)stats.pushed_rows, (unsigned long long)stats.steps);
}

/* Type */

static PyObject *open_table(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct sl_native_client *client;
    struct sl_table_spec spec;
    PyObject *timeout;
    uint32_t timeout_ms;
    if (!sl_native_spec_read(args, &client, &spec, &timeout) ||
        !sl_native_errors_timeout(timeout, client->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(client)) {
        return NULL;
    }
    struct sl_table *opened;
    int err;
    client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_table_open(client->client, &spec, timeout_ms, &opened);
    Py_END_ALLOW_THREADS;
    client->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, spec.name, sl_last_error());
    }
    struct table *table = (struct table *)PyType_GenericAlloc(type, 0);
    if (table != NULL) {
        Py_INCREF((PyObject *)client);
        table->client = client;
        table->table = opened;
        table->spec = spec;
    }
    return (PyObject *)table;
}

static void dealloc(PyObject *self)
{
    Py_XDECREF((PyObject *)((struct table *)self)->client);
    sl_native_python_free(self);
}

static PyObject *get_name(PyObject *self, void *closure)
{
    return PyUnicode_FromString(((struct table *)self)->spec.name);
}

static PyObject *get_dim(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLong(((struct table *)self)->spec.dim);
}

static PyObject *get_length(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(((struct table *)self)->spec.length);
}

static PyObject *get_client(PyObject *self, void *closure)
{
    PyObject *client = (PyObject *)((struct table *)self)->client;
    Py_INCREF((PyObject *)client);
    return client;
}

static PyMethodDef methods[] = {
    {"_pull", pull, METH_VARARGS, NULL},
    {"_push", push, METH_VARARGS, NULL},
    {"_push_pull", push_pull, METH_VARARGS, NULL},
    {"_pull_bags", pull_bags, METH_VARARGS, NULL},
    {"_assign", assign, METH_VARARGS, NULL},
    {"_erase", erase, METH_VARARGS, NULL},
    {"_dense_pull", dense_pull, METH_VARARGS, NULL},
    {"_dense_push", dense_push, METH_VARARGS, NULL},
    {"_dense_assign", dense_assign, METH_VARARGS, NULL},
    {"_dense_push_pull", dense_push_pull, METH_VARARGS, NULL},
    {"_stats", stats, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"name", get_name, NULL, "Name of the table.", NULL},
    {"dim", get_dim, NULL, "Columns of a row; 0: a dense table.", NULL},
    {"length", get_length, NULL, "Elements; 0: a sparse table.", NULL},
    {"client", get_client, NULL, "The client that opened the table.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_new, open_table),
    SL_NATIVE_SLOT(Py_tp_methods, methods),
    SL_NATIVE_SLOT(Py_tp_getset, members),
    SL_NATIVE_SLOT(Py_tp_dealloc, dealloc),
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "starling._native.Table",
    .basicsize = sizeof(struct table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

bool sl_native_table_init(PyObject *module)
{
    return sl_native_python_add_type(module, &type_spec) != NULL;
}
