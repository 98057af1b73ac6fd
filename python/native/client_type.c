#include "python/native/client_type.h"

#include <starling_rows.h>
#include <starling_training.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "python/native/client.h"
#include "python/native/errors.h"
#include "python/native/memory.h"
#include "python/native/step.h"

#define FLAGS_MAX 16

/* Start and end */

/* Reads the options from flags of the library, a tuple, and from the environment. They point into
 * the flags. Returns false with an exception. */
static bool read_options(PyObject *flags, struct sl_client_options *options)
{
    char *argv[FLAGS_MAX + 1] = {NULL};
    int argc = 1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(flags) && argc < FLAGS_MAX; i++) {
        const char *flag = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(flags, i), NULL);
        if (flag == NULL) {
            return false;
        }
        argv[argc++] = (char *)(uintptr_t)flag;
    }
    int err = sl_client_options_from_env(options, &argc, argv);
    if (err != 0) {
        (void)sl_native_errors_raise(err, "connect", sl_last_error());
    }
    return err == 0;
}

static int create(const struct sl_client_options *options, struct sl_client **out)
{
    int err;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_create(options, out);
    Py_END_ALLOW_THREADS;
    return err;
}

/* Client(flags, timeout, accepts_loss) */
static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *flags, *timeout;
    int accepts_loss;
    struct sl_client_options options = SL_CLIENT_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "O!Op", &PyTuple_Type, &flags, &timeout, &accepts_loss) ||
        !read_options(flags, &options)) {
        return NULL;
    }
    struct sl_native_client *self = NULL;
    if (sl_native_errors_timeout(timeout, options.start_timeout_ms, &options.start_timeout_ms)) {
        self = (struct sl_native_client *)PyType_GenericAlloc(type, 0);
        options.interrupted = sl_native_errors_interrupted;
    }
    int err = self == NULL ? 0 : create(&options, &self->client);
    if (err != 0) {
        (void)sl_native_errors_raise(err, "connect", sl_last_error());
        Py_CLEAR(self);
    } else if (self != NULL) {
        self->clock = sl_client_clock(self->client);
        self->timeout_ms = options.start_timeout_ms;
        self->accepts_loss = accepts_loss != 0;
        self->worker_count = options.worker_count;
    }
    sl_client_options_fini(&options);
    return (PyObject *)self;
}

static PyObject *client_type_end(struct sl_native_client *self, bool finishes)
{
    if (self->closed) {
        Py_RETURN_NONE;
    }
    if (self->calls > 0) {
        PyErr_SetString(PyExc_RuntimeError, "close: a call of this client is under way");
        return NULL;
    }
    self->closed = true;
    self->calls++;
    const bool is_idle = sl_native_step_end_all(self);
    self->calls--;
    if (!is_idle) {
        self->closed = false;
        return NULL;
    }
    sl_native_memory_keep_all(self);
    struct sl_client *client = self->client;
    self->client = NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (finishes) {
        sl_client_destroy(&client);
    } else {
        sl_client_leave(&client);
    }
    Py_END_ALLOW_THREADS;
    return PyErr_Occurred() != NULL ? NULL : Py_NewRef(Py_None); /* a signal during the end */
}

static PyObject *client_type_close_client(PyObject *self, PyObject *unused)
{
    return client_type_end((struct sl_native_client *)self, true);
}

static PyObject *leave_client(PyObject *self, PyObject *unused)
{
    return client_type_end((struct sl_native_client *)self, false);
}

/* Without a close: leaves, so that another process may take the worker's place. */
static void client_type_dealloc(PyObject *object)
{
    struct sl_native_client *self = (struct sl_native_client *)object;
    PyObject *raised, *value, *traceback;
    PyErr_Fetch(&raised, &value, &traceback);
    if (self->client != NULL) {
        PyObject *left = client_type_end(self, false);
        if (left == NULL) { /* a signal: the client and its steps go on without an object */
            PyErr_WriteUnraisable(NULL);
        }
        Py_XDECREF(left);
    }
    PyErr_Restore(raised, value, traceback);
    sl_native_python_free(object);
}

/* The job */

static PyObject *barrier(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "count", "timeout", NULL};
    struct sl_native_client *self = (struct sl_native_client *)object;
    const char *name;
    long long count = 0;
    PyObject *timeout = NULL;
    uint32_t timeout_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|L$O:barrier", names, &name, &count,
                                     &timeout) ||
        !sl_native_errors_timeout(timeout, self->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(self)) {
        return NULL;
    }
    const bool has_task = sl_client_task_index(self->client) >= 0;
    if (count < (has_task ? 0 : 1) || count > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "barrier: count %lld; accepted: %s", count,
                     has_task ? "1 to the number of clients that wait; 0: all workers of the job"
                              : "1 to the number of clients that wait; 0, all workers of the job, "
                                "needs a client that is one of them, connect(task=...)");
        return NULL;
    }
    int err;
    self->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_barrier(self->client, name, (uint32_t)count, timeout_ms);
    Py_END_ALLOW_THREADS;
    self->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "barrier", sl_last_error());
    }
    Py_RETURN_NONE;
}

static PyObject *drop(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "timeout", NULL};
    struct sl_native_client *self = (struct sl_native_client *)object;
    const char *name;
    PyObject *timeout = NULL;
    uint32_t timeout_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O:drop", names, &name, &timeout) ||
        !sl_native_errors_timeout(timeout, self->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(self)) {
        return NULL;
    }
    int err;
    self->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_table_drop(self->client, name, timeout_ms);
    Py_END_ALLOW_THREADS;
    self->calls--;
    if (err != 0) {
        return sl_native_errors_raise(err, "drop", sl_last_error());
    }
    Py_RETURN_NONE;
}

static PyObject *checkpoint(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", NULL};
    struct sl_native_client *self = (struct sl_native_client *)object;
    PyObject *timeout = NULL;
    uint32_t timeout_ms;
    uint64_t number;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:checkpoint", names, &timeout) ||
        !sl_native_errors_timeout(timeout, self->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(self)) {
        return NULL;
    }
    int err;
    self->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_checkpoint(self->client, timeout_ms, &number);
    Py_END_ALLOW_THREADS;
    self->calls--;
    return err == 0 ? PyLong_FromUnsignedLongLong(number)
                    : sl_native_errors_raise(err, "checkpoint", sl_last_error());
}

/* Repeats with more room while the text grows. */
static PyObject *metrics(PyObject *object, PyObject *unused)
{
    struct sl_native_client *self = (struct sl_native_client *)object;
    if (!sl_native_client_check(self)) {
        return NULL;
    }
    char *text = NULL;
    int bytes = 0, room;
    self->calls++;
    Py_BEGIN_ALLOW_THREADS;
    do {
        room = bytes + 1024;
        free(text);
        text = malloc((size_t)room);
        bytes =
            text == NULL ? SL_ERR_NO_MEMORY : sl_client_metrics(self->client, text, (size_t)room);
    } while (bytes >= room);
    Py_END_ALLOW_THREADS;
    self->calls--;
    PyObject *page = bytes < 0 ? sl_native_errors_raise(bytes, "metrics", sl_err_name(bytes))
                               : PyUnicode_FromStringAndSize(text, bytes);
    free(text);
    return page;
}

/* Arguments that are not given keep their figures. */
static PyObject *progress(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"epoch", "epochs", "samples", "loss", "lr", "metric", NULL};
    struct sl_native_client *self = (struct sl_native_client *)object;
    struct sl_training training = self->training;
    unsigned long long samples = training.samples;
    const char *name = training.metric_name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$ffKff(sf):progress", names, &training.epoch,
                                     &training.epochs, &samples, &training.loss,
                                     &training.learning_rate, &name, &training.metric) ||
        !sl_native_client_check(self)) {
        return NULL;
    }
    training.struct_size = sizeof training;
    training.samples = samples;
    if (name != training.metric_name) { /* one without room for its NUL is refused */
        memset(training.metric_name, 0, sizeof training.metric_name);
        memcpy(training.metric_name, name, strnlen(name, sizeof training.metric_name));
    }
    const int err = sl_client_set_training(self->client, &training);
    if (err != 0) {
        return sl_native_errors_raise(err, "progress", sl_last_error());
    }
    self->training = training;
    Py_RETURN_NONE;
}

static PyObject *get_task(PyObject *object, void *closure)
{
    const struct sl_native_client *self = (struct sl_native_client *)object;
    if (!sl_native_client_check(self)) {
        return NULL;
    }
    return PyLong_FromLong(sl_client_task_index(self->client));
}

static PyObject *get_shard_count(PyObject *object, void *closure)
{
    const struct sl_native_client *self = (struct sl_native_client *)object;
    if (!sl_native_client_check(self)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(sl_client_shard_count(self->client));
}

static PyObject *get_values_lost(PyObject *object, void *closure)
{
    const struct sl_native_client *self = (struct sl_native_client *)object;
    if (!sl_native_client_check(self)) {
        return NULL;
    }
    return PyBool_FromLong(sl_client_values_lost(self->client) >= 0);
}

static PyObject *check_values(PyObject *object, PyObject *unused)
{
    const struct sl_native_client *self = (struct sl_native_client *)object;
    return sl_native_client_check(self) && sl_native_client_check_values(self) ? Py_NewRef(Py_None)
                                                                               : NULL;
}

static PyObject *get_timeout(PyObject *object, void *closure)
{
    return PyFloat_FromDouble(((struct sl_native_client *)object)->timeout_ms / 1000.0);
}

/* Type */

#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)

/* The tables as sl_client_tables visits them, without the GIL. */
struct found_tables {
    struct sl_table_spec *specs; /* the members that entry_of reads */
    size_t count;
    bool is_incomplete; /* no memory */
};

static void take_table(void *ctx, const struct sl_table_spec *spec)
{
    struct found_tables *found = ctx;
    struct sl_table_spec *grown = realloc(found->specs, (found->count + 1) * sizeof *grown);
    found->is_incomplete |= grown == NULL;
    if (grown != NULL) {
        found->specs = grown;
        found->specs[found->count++] = *spec;
    }
}

/* _tables(timeout): [(name, kind, dim, length)] */
static PyObject *list_tables(PyObject *object, PyObject *timeout)
{
    struct sl_native_client *self = (struct sl_native_client *)object;
    struct found_tables found = {0};
    uint32_t timeout_ms;
    if (!sl_native_errors_timeout(timeout, self->timeout_ms, &timeout_ms) ||
        !sl_native_client_check(self)) {
        return NULL;
    }
    int err;
    self->calls++;
    Py_BEGIN_ALLOW_THREADS;
    err = sl_client_tables(self->client, timeout_ms, take_table, &found);
    Py_END_ALLOW_THREADS;
    self->calls--;
    PyObject *list = NULL;
    if (err != 0) {
        (void)sl_native_errors_raise(err, "tables", sl_last_error());
    } else if (found.is_incomplete) {
        (void)PyErr_NoMemory();
    } else {
        list = PyList_New((Py_ssize_t)found.count);
    }
    for (size_t i = 0; list != NULL && i < found.count; i++) {
        const struct sl_table_spec *spec = &found.specs[i];
        PyObject *entry = Py_BuildValue("(siIK)", spec->name, (int)spec->kind, spec->dim,
                                        (unsigned long long)spec->length);
        if (entry == NULL || PyList_SetItem(list, (Py_ssize_t)i, entry) != 0) {
            Py_CLEAR(list);
        }
    }
    free(found.specs);
    return list;
}

static PyMethodDef methods[] = {
    {"close", client_type_close_client, METH_NOARGS,
     "close($self)\n--\n\n"
     "Ends the client: the worker has finished, and no other worker waits for it.\n\n"
     "First waits for the steps that are under way. A second close does nothing."},
    {"leave", leave_client, METH_NOARGS,
     "leave($self)\n--\n\n"
     "Ends the client of a worker that stops early: another process may take its place.\n\n"
     "Client used as a context manager does this after an exception, and the interpreter does\n"
     "it at its end."},
    {"barrier", SL_NATIVE_METHOD(barrier), KEYWORDS,
     "barrier($self, name, count=0, *, timeout=None)\n--\n\n"
     "Waits until `count` clients are at the barrier of this name; 0: all workers, of which this\n"
     "client is one.\n\n"
     "Raises ValueError for another count, and a StarlingError: DeadlineError, ClosedError. Any\n"
     "thread."},
    {"_tables", list_tables, METH_O, NULL},
    {"_check_values", check_values, METH_NOARGS, NULL},
    {"drop", SL_NATIVE_METHOD(drop), KEYWORDS,
     "drop($self, name, timeout=None)\n--\n\n"
     "Drops the table of this name with its rows, at every server.\n\n"
     "After this call, clients that have it open get NotFoundError. Raises NotFoundError if no "
     "table\n"
     "has the name, and DeadlineError if a server has not confirmed the drop in time: it drops "
     "the\n"
     "table when it returns."},
    {"checkpoint", SL_NATIVE_METHOD(checkpoint), KEYWORDS,
     "checkpoint($self, timeout=None)\n--\n\n"
     "Makes the servers write a checkpoint, waits for it, and returns its number.\n\n"
     "Raises a StarlingError: UnsupportedError without a checkpoint directory, DeadlineError,\n"
     "ClosedError. Any thread."},
    {"progress", SL_NATIVE_METHOD(progress), KEYWORDS,
     "progress($self, *, epoch=None, epochs=None, samples=None, loss=None, lr=None, metric=None)\n"
     "--\n\n"
     "Sets figures of the training for the page of the job and starling-top; None: as set last.\n\n"
     "It sends nothing itself: call it after every batch. One thread at a time.\n\n"
     "epoch, epochs: epochs done, such as 2.5, and those of the whole training.\n"
     "samples: trained on by this process so far; the page shows their rate.\n"
     "loss: of the last batch, or a mean. lr: the learning rate.\n"
     "metric: of test data, such as (\"AUC\", 0.81); the name has at most 19 characters.\n"
     "Raises InvalidError."},
    {"metrics", metrics, METH_NOARGS,
     "metrics($self)\n--\n\n"
     "Returns the metrics of the client for Prometheus, in its text format 0.0.4: the page of a\n"
     "program that has an HTTP server. Any thread."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"worker_count", T_UINT, offsetof(struct sl_native_client, worker_count), READONLY,
     "Workers of the job; 0: not known."},
    {"clock", T_UINT, offsetof(struct sl_native_client, clock), READONLY,
     "Current iteration: at first the one that this worker begins with, then the one after the\n"
     "last step that advanced."},
    {"closed", T_BOOL, offsetof(struct sl_native_client, closed), READONLY,
     "Whether the client was closed."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"task", get_task, NULL, "Index of this worker; -1: a client without a clock.", NULL},
    {"timeout", get_timeout, NULL, "Seconds; the default of all calls of the client.", NULL},
    {"shard_count", get_shard_count, NULL, "Shards of the cluster.", NULL},
    {"values_lost", get_values_lost, NULL,
     "Whether a server restarted without its part of the values.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_new, new),
    SL_NATIVE_SLOT(Py_tp_methods, methods),
    SL_NATIVE_SLOT(Py_tp_members, members),
    SL_NATIVE_SLOT(Py_tp_getset, properties),
    SL_NATIVE_SLOT(Py_tp_dealloc, client_type_dealloc),
    {0, NULL},
};

bool sl_native_client_type_init(PyObject *module)
{
    PyTypeObject *type = sl_native_python_add_type(module, "starling._native.Client",
                                                   sizeof(struct sl_native_client), slots);
    sl_native_client_set_type(type);
    return type != NULL;
}
