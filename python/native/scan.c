#include "python/native/scan.h"

#include "python/native/errors.h"

struct scan {
    PyObject_HEAD struct sl_native_client *client;
    struct sl_scan *scan;
};

static PyTypeObject *scan_type;

PyObject *sl_native_scan_open(struct sl_native_client *client, struct sl_table *table,
                              const struct sl_scan_options *options)
{
    struct sl_scan *opened;
    int err;
    client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_scan_open(client->client, table, options, &opened);
    Py_END_ALLOW_THREADS;
    client->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "scan", sl_last_error());
    }
    struct scan *scan = (struct scan *)PyType_GenericAlloc(scan_type, 0);
    if (scan == NULL) {
        sl_scan_close(&opened);
        return NULL;
    }
    Py_INCREF((PyObject *)client);
    scan->client = client;
    scan->scan = opened;
    return (PyObject *)scan;
}

static PyObject *scan_array(const void *from, size_t bytes)
{
    return PyByteArray_FromStringAndSize(from, (Py_ssize_t)bytes);
}

/* next(): (keys, values, marks, width, shard, step), with bytearrays; or None at the end. */
static PyObject *scan_next(PyObject *self, PyObject *ignored)
{
    struct scan *scan = (struct scan *)self;
    struct sl_scan_batch batch;
    int err;
    if (!sl_native_client_check(scan->client)) {
        return NULL;
    }
    scan->client->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_scan_next(scan->scan, &batch);
    Py_END_ALLOW_THREADS;
    scan->client->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "scan", sl_last_error());
    }
    if (!sl_native_client_check_values(scan->client)) {
        return NULL;
    }
    if (batch.row_count == 0) {
        Py_RETURN_NONE;
    }
    const size_t rows = batch.row_count;
    return Py_BuildValue("NNNIIK", scan_array(batch.keys, rows * sizeof *batch.keys),
                         scan_array(batch.values, rows * batch.width * sizeof *batch.values),
                         scan_array(batch.marks, rows * sizeof *batch.marks), batch.width,
                         batch.shard, (unsigned long long)batch.step);
}

static void scan_dealloc(PyObject *self)
{
    struct scan *scan = (struct scan *)self;
    sl_scan_close(&scan->scan);
    Py_XDECREF((PyObject *)scan->client);
    sl_native_python_free(self);
}

static PyMethodDef methods[] = {
    {"next", scan_next, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_methods, methods),
    SL_NATIVE_SLOT(Py_tp_dealloc, scan_dealloc),
    {0, NULL},
};

bool sl_native_scan_init(PyObject *module)
{
    scan_type =
        sl_native_python_add_type(module, "starling._native.Scan", sizeof(struct scan), slots);
    return scan_type != NULL;
}
