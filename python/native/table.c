#include "python/native/table.h"

#include <starling_rows.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <structmember.h>

#include "python/native/arrays.h"
#include "python/native/errors.h"
#include "python/native/scan.h"
#include "python/native/spec.h"
#include "python/native/step.h"
#include "python/native/step_type.h"

struct table {
    PyObject_HEAD struct sl_native_client *client;
    struct sl_table *table;
    struct sl_table_spec spec;
};

/* Operations. starling/tables.py has the same numbers. */
enum kind { PULL, PUSH, PUSH_PULL, ASSIGN, ERASE, PULL_SUMS, PULL_MEANS, FIND, KINDS };

static const struct {
    const char *name;
    const char *sent[2]; /* the argument whose values are sent, of sparse and of dense tables */
    bool returns;        /* an array of values */
} OPERATIONS[KINDS] = {
    [PULL] = {.name = "pull", .returns = true},
    [PUSH] = {.name = "push", .sent = {"grads", "grads"}},
    [PUSH_PULL] = {.name = "push_pull", .sent = {"grads", "grads"}, .returns = true},
    [ASSIGN] = {.name = "assign", .sent = {"rows", "values"}},
    [ERASE] = {.name = "erase"},
    [PULL_SUMS] = {.name = "pull_bags", .returns = true},
    [PULL_MEANS] = {.name = "pull_bags", .returns = true},
    [FIND] = {.name = "find", .returns = true},
};

/* Arguments of _run. */
enum {
    KIND,
    STEP,    /* of the caller; None: a step of its own */
    TIMEOUT, /* None: the client's */
    WHERE,   /* keys; of a dense table the first element */
    EXTENT,  /* offsets of bags; find: receives bool (n,); of a dense table the number of elements,
              * which starling.DenseTable has checked */
    SENT,    /* values that are sent */
    OUT,     /* None: a new array */
    ARGUMENTS
};

/* An operation with its arrays, which the step keeps. */
struct operation {
    const struct table *table;
    enum kind kind;
    struct sl_native_step *step;
    const uint64_t *keys;
    uint64_t start, count; /* start: of a dense table; count: of keys or elements */
    const uint32_t *ends;  /* of bags */
    uint32_t bag_count;
    uint8_t *found;
    const float *sent;
    float *out;
};

/* Arrays. The functions return false or NULL with an exception. */

static bool keep_keys(struct operation *operation, PyObject *given)
{
    Py_buffer *view = sl_native_step_array(operation->step);
    if (view == NULL || !sl_native_arrays_keys(given, "keys", view)) {
        return false;
    }
    if (view->shape[0] > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "keys: %zd; accepted: at most %lu in one operation",
                     view->shape[0], (unsigned long)UINT32_MAX);
        return false;
    }
    operation->keys = view->buf;
    operation->count = (uint64_t)view->shape[0];
    return true;
}

static bool keep_bags(struct operation *operation, PyObject *offsets)
{
    Py_buffer *view = sl_native_step_array(operation->step);
    if (view == NULL || !sl_native_arrays_bag_ends(offsets, (Py_ssize_t)operation->count, view)) {
        return false;
    }
    operation->ends = view->buf;
    operation->bag_count = (uint32_t)view->shape[0];
    return true;
}

static bool keep_found(struct operation *operation, PyObject *found)
{
    Py_buffer *view = sl_native_step_array(operation->step);
    if (view == NULL || PyObject_GetBuffer(found, view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) {
        return false;
    }
    if ((uint64_t)view->len != operation->count) {
        PyErr_Format(PyExc_ValueError, "found: %zd bytes; accepted: one for each of %llu keys",
                     view->len, (unsigned long long)operation->count);
        return false;
    }
    operation->found = view->buf;
    return true;
}

static bool keep_sent(struct operation *operation, PyObject *given, struct sl_native_shape shape)
{
    const char *name = OPERATIONS[operation->kind].sent[operation->table->spec.kind];
    Py_buffer *view = sl_native_step_array(operation->step);
    if (view == NULL || !sl_native_arrays_floats(given, name, shape, view)) {
        return false;
    }
    operation->sent = view->buf;
    return true;
}

/* Returns a new reference to the array that receives values. */
static PyObject *keep_out(struct operation *operation, PyObject *out, struct sl_native_shape shape)
{
    Py_buffer *view = sl_native_step_array(operation->step);
    if (view == NULL) {
        return NULL;
    }
    PyObject *array = out == Py_None ? sl_native_arrays_new(shape) : Py_NewRef(out);
    PyObject *copy;
    if (array != NULL && sl_native_arrays_receiver(array, "out", shape, view, &copy) &&
        (copy == NULL || sl_native_step_narrow(operation->step, array, copy))) {
        operation->out = view->buf;
        return array;
    }
    Py_XDECREF(array);
    return NULL;
}

/* Returns the result of the operation. */
static PyObject *keep_arrays(struct operation *operation, PyObject *const *args)
{
    const struct sl_table_spec *spec = &operation->table->spec;
    struct sl_native_shape shape = {.columns = -1};
    if (spec->kind == SL_TABLE_DENSE) {
        operation->start = PyLong_AsUnsignedLongLongMask(args[WHERE]);
        shape.rows = PyNumber_AsSsize_t(args[EXTENT], PyExc_OverflowError);
        operation->count = (uint64_t)shape.rows;
        if (PyErr_Occurred() != NULL) {
            return NULL;
        }
    } else {
        const bool has_bags = operation->kind == PULL_SUMS || operation->kind == PULL_MEANS;
        if (!keep_keys(operation, args[WHERE]) ||
            (has_bags && !keep_bags(operation, args[EXTENT])) ||
            (operation->kind == FIND && !keep_found(operation, args[EXTENT]))) {
            return NULL;
        }
        shape.rows = has_bags ? operation->bag_count : (Py_ssize_t)operation->count;
        shape.columns = spec->dim;
    }
    if (OPERATIONS[operation->kind].sent[0] != NULL && !keep_sent(operation, args[SENT], shape)) {
        return NULL;
    }
    return OPERATIONS[operation->kind].returns ? keep_out(operation, args[OUT], shape)
                                               : Py_NewRef(Py_None);
}

/* The library's calls, which add the operation to the step. */

static int add_rows(const struct operation *op, struct sl_step *step, struct sl_table *to)
{
    const uint32_t count = (uint32_t)op->count;
    switch (op->kind) {
    case PULL:
        return sl_step_pull(step, to, op->keys, count, op->out);
    case PUSH:
        return sl_step_push(step, to, op->keys, count, op->sent);
    case PUSH_PULL:
        return sl_step_push_pull(step, to, op->keys, count, op->sent, op->out);
    case ASSIGN:
        return sl_step_assign(step, to, op->keys, count, op->sent);
    case ERASE:
        return sl_step_erase(step, to, op->keys, count);
    case FIND:
        return sl_step_find(step, to, op->keys, count, op->out, op->found);
    default:
        return sl_step_pull_pooled(step, to, op->keys, count, op->ends, op->bag_count,
                                   op->kind == PULL_SUMS ? SL_POOLING_SUM : SL_POOLING_MEAN,
                                   op->out);
    }
}

static int add_elements(const struct operation *op, struct sl_step *step, struct sl_table *to)
{
    switch (op->kind) {
    case PULL:
        return sl_step_dense_pull(step, to, op->start, op->count, op->out);
    case PUSH:
        return sl_step_dense_push(step, to, op->start, op->count, op->sent);
    case PUSH_PULL:
        return sl_step_dense_push_pull(step, to, op->start, op->count, op->sent, op->out);
    default:
        return sl_step_dense_assign(step, to, op->start, op->count, op->sent);
    }
}

/* Returns the step of the operation, the caller's or one of its own; or NULL with an exception. */
static struct sl_native_step *find_step(const struct table *table, PyObject *const *args)
{
    if (args[STEP] == Py_None) {
        return sl_native_step_begin(table->client, table->client->clock);
    }
    if (args[TIMEOUT] != Py_None) {
        PyErr_Format(PyExc_TypeError, "timeout: not accepted with a step; submit takes it");
        return NULL;
    }
    struct sl_native_step *step = sl_native_step_type_use(args[STEP], SL_NATIVE_STEP_BUILDING);
    if (step != NULL && step->client != table->client) {
        PyErr_Format(PyExc_ValueError, "table: %s was opened by another client than this step's",
                     table->spec.name);
        return NULL;
    }
    return step;
}

static void raise_error(const struct operation *operation, int err, const char *reason)
{
    char what[SL_TABLE_NAME_BYTES + 32];
    (void)snprintf(what, sizeof what, "%s, table %s", OPERATIONS[operation->kind].name,
                   operation->table->spec.name);
    (void)sl_native_errors_raise(err, what, reason);
}

/* Adds the operation to its step. Returns its result, or NULL with an exception. */
static PyObject *add(struct operation *operation, PyObject *const *args)
{
    const struct table *table = operation->table;
    struct sl_native_step *step = operation->step;
    int err = 0;
    step->is_in_use = true; /* conversion of arrays may run other Python code */
    table->client->calls++;
    PyObject *result = keep_arrays(operation, args);
    if (result != NULL) {
        err = (table->spec.kind == SL_TABLE_DENSE ? add_elements : add_rows)(operation, step->step,
                                                                             table->table);
    }
    step->is_in_use = false;
    table->client->calls--;
    if (err != 0) {
        Py_CLEAR(result);
        raise_error(operation, err, sl_last_error());
    }
    if (result != NULL && step->content == SL_NATIVE_STEP_EMPTY) {
        step->content = SL_NATIVE_STEP_OPERATIONS;
    }
    return result;
}

/* _run(KIND, STEP, ...) */
static PyObject *native_table_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const struct table *table = (struct table *)self;
    const long kind = count == ARGUMENTS ? PyLong_AsLong(args[KIND]) : -1;
    uint32_t timeout_ms;
    if (kind < 0 || kind >= KINDS) {
        return PyErr_Format(PyExc_SystemError, "_run: %zd arguments, operation %ld", count, kind);
    }
    if (!sl_native_errors_timeout(args[TIMEOUT], table->client->timeout_ms, &timeout_ms)) {
        return NULL;
    }
    struct operation operation = {.table = table, .kind = (enum kind)kind};
    struct sl_native_step *step = operation.step = find_step(table, args);
    PyObject *result = step == NULL ? NULL : add(&operation, args);
    if (step == NULL || args[STEP] != Py_None) {
        return result;
    }
    if (result != NULL &&
        (!sl_native_step_submit(step, timeout_ms) || sl_native_step_wait(step, UINT32_MAX) < 0)) {
        Py_CLEAR(result);
    } else if (result != NULL && step->err != 0) {
        Py_CLEAR(result);
        raise_error(&operation, step->err, sl_step_error(step->step));
    } else if (result != NULL && !sl_native_client_check_values(table->client)) {
        Py_CLEAR(result);
    }
    sl_native_step_free(&step);
    return result;
}

static PyObject *stats(PyObject *self, PyObject *timeout)
{
    const struct table *table = (struct table *)self;
    struct sl_native_client *client = table->client;
    struct sl_table_info info = SL_TABLE_INFO_INIT;
    uint32_t timeout_ms;
    if (!sl_native_errors_timeout(timeout, client->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(client)) {
        return NULL;
    }
    int err;
    client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_table_info(client->client, table->table, timeout_ms, &info);
    Py_END_ALLOW_THREADS;
    client->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "stats", sl_last_error());
    }
    uint64_t counts[(sizeof info - offsetof(struct sl_table_info, rows)) / sizeof(uint64_t)];
    memcpy(counts, (const char *)&info + offsetof(struct sl_table_info, rows), sizeof counts);
    PyObject *tuple = PyTuple_New(sizeof counts / sizeof counts[0]);
    for (Py_ssize_t i = 0; tuple != NULL && i < PyTuple_Size(tuple); i++) {
        (void)PyTuple_SetItem(tuple, i, PyLong_FromUnsignedLongLong(counts[i]));
    }
    if (PyErr_Occurred() != NULL) {
        Py_CLEAR(tuple);
    }
    return tuple;
}

/* _scan(slots, since, count_min, timeout) */
static PyObject *scan(PyObject *self, PyObject *args)
{
    const struct table *table = (struct table *)self;
    struct sl_scan_options options = SL_SCAN_OPTIONS_INIT;
    unsigned long long since;
    int slots;
    PyObject *timeout;
    if (!PyArg_ParseTuple(args, "pKIO", &slots, &since, &options.count_min, &timeout) ||
        !sl_native_errors_timeout(timeout, table->client->timeout_ms, &options.timeout_ms) ||
        !sl_native_client_check(table->client)) {
        return NULL;
    }
    options.slots = slots != 0;
    options.since = since;
    return sl_native_scan_open(table->client, table->table, &options);
}

/* _evict(ttl_steps, count_below, l2_below, timeout) */
static PyObject *evict(PyObject *self, PyObject *args)
{
    const struct table *table = (struct table *)self;
    struct sl_evict_options options = SL_EVICT_OPTIONS_INIT;
    uint64_t evicted = 0;
    PyObject *timeout;
    int err;
    if (!PyArg_ParseTuple(args, "IIfO", &options.ttl_steps, &options.count_below, &options.l2_below,
                          &timeout) ||
        !sl_native_errors_timeout(timeout, table->client->timeout_ms, &options.timeout_ms) ||
        !sl_native_client_check(table->client)) {
        return NULL;
    }
    table->client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_table_evict(table->client->client, table->table, &options, &evicted);
    Py_END_ALLOW_THREADS;
    table->client->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "evict", sl_last_error());
    }
    return sl_native_client_check_values(table->client) ? PyLong_FromUnsignedLongLong(evicted)
                                                        : NULL;
}

/* _set_encoding(pull, push, error_feedback) */
static PyObject *native_table_set_encoding(PyObject *self, PyObject *args)
{
    const struct table *table = (struct table *)self;
    struct sl_encoding_options options = SL_ENCODING_OPTIONS_INIT;
    unsigned long long feedback;
    int pull, push;
    if (!PyArg_ParseTuple(args, "iiK", &pull, &push, &feedback) ||
        !sl_native_client_check(table->client)) {
        return NULL;
    }
    options.pull = (enum sl_precision)pull;
    options.push = (enum sl_precision)push;
    options.error_feedback_bytes = feedback;
    const int err = sl_table_set_encoding(table->table, &options);
    return err == 0 ? Py_NewRef(Py_None) : sl_native_errors_raise(err, "encoding", sl_last_error());
}

/* Type */

/* Reads (client, name, timeout): a table that exists. */
static bool read_name(PyObject *args, struct sl_native_client **client, struct sl_table_spec *spec,
                      PyObject **timeout)
{
    PyObject *object;
    const char *name;
    *spec = (struct sl_table_spec)SL_TABLE_SPEC_INIT;
    if (!PyArg_ParseTuple(args, "OsO", &object, &name, timeout) ||
        (*client = sl_native_client_of(object)) == NULL) {
        return false;
    }
    (void)snprintf(spec->name, sizeof spec->name, "%s", name); /* of tables(): it fits */
    return true;
}

static PyObject *open_table(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct sl_native_client *client;
    struct sl_table_spec spec;
    PyObject *timeout;
    uint32_t timeout_ms;
    const bool exists = PyTuple_Size(args) == 3;
    if (!(exists ? read_name(args, &client, &spec, &timeout)
                 : sl_native_spec_read(args, &client, &spec, &timeout)) ||
        !sl_native_errors_timeout(timeout, client->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(client)) {
        return NULL;
    }
    struct sl_table *opened;
    int err;
    client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = exists ? sl_client_table_open_by_name(client->client, spec.name, timeout_ms, &opened)
                 : sl_client_table_open(client->client, &spec, timeout_ms, &opened);
    err = err != 0 ? err : sl_table_spec_get(opened, &spec);
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

static PyObject *native_table_members(PyObject *self, PyObject *none)
{
    return sl_native_spec_members(&((struct table *)self)->spec);
}

static void native_table_dealloc(PyObject *self)
{
    Py_XDECREF((PyObject *)((struct table *)self)->client);
    sl_native_python_free(self);
}

static PyMethodDef methods[] = {
    {"_evict", evict, METH_VARARGS, NULL},
    {"_members", native_table_members, METH_NOARGS, NULL},
    {"_run", SL_NATIVE_METHOD(native_table_run), METH_FASTCALL, NULL},
    {"_scan", scan, METH_VARARGS, NULL},
    {"_set_encoding", native_table_set_encoding, METH_VARARGS, NULL},
    {"_stats", stats, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"name", T_STRING_INPLACE, offsetof(struct table, spec.name), READONLY, "Name of the table."},
    {"dim", T_UINT, offsetof(struct table, spec.dim), READONLY,
     "Columns of a row; 0: a dense table."},
    {"length", T_ULONGLONG, offsetof(struct table, spec.length), READONLY,
     "Elements; 0: a sparse table."},
    {"reject_nonfinite", T_BOOL, offsetof(struct table, spec.reject_nonfinite), READONLY,
     "Whether values that are NaN or infinite are refused."},
    {"client", T_OBJECT, offsetof(struct table, client), READONLY,
     "The client that opened the table."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_new, open_table),
    SL_NATIVE_SLOT(Py_tp_methods, methods),
    SL_NATIVE_SLOT(Py_tp_members, members),
    SL_NATIVE_SLOT(Py_tp_dealloc, native_table_dealloc),
    {0, NULL},
};

bool sl_native_table_init(PyObject *module)
{
    return sl_native_python_add_type(module, "starling._native.Table", sizeof(struct table),
                                     slots) != NULL;
}
