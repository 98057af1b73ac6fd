#include "python/native/memory.h"

#include "python/native/client.h"
#include "python/native/errors.h"

struct memory {
    PyObject_HEAD struct sl_native_client *client;
    void *base;
    Py_ssize_t bytes;
};

/* Memory(client, bytes): zeroed. */
static PyObject *allocate(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    Py_ssize_t bytes;
    struct sl_native_client *client;
    void *base;
    if (!PyArg_ParseTuple(args, "On", &given, &bytes) ||
        (client = sl_native_client_of(given)) == NULL || !sl_native_client_check(client)) {
        return NULL;
    }
    int err = sl_client_buffer_create(client->client, (size_t)bytes, &base);
    if (err != 0) {
        return sl_native_errors_raise(err, "empty", "");
    }
    struct memory *memory = (struct memory *)PyType_GenericAlloc(type, 0);
    if (memory == NULL) {
        sl_client_buffer_free(client->client, &base);
        return NULL;
    }
    Py_INCREF((PyObject *)client);
    client->memory_count++;
    memory->client = client;
    memory->base = base;
    memory->bytes = bytes;
    return (PyObject *)memory;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct memory *memory = (struct memory *)self;
    return PyBuffer_FillInfo(view, self, memory->base, memory->bytes, 0, flags);
}

static void dealloc(PyObject *self)
{
    struct memory *memory = (struct memory *)self;
    sl_client_buffer_free(memory->client->client, &memory->base);
    sl_native_client_drop_memory(memory->client);
    Py_DECREF((PyObject *)memory->client);
    sl_native_python_free(self);
}

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_new, allocate),
    SL_NATIVE_SLOT(Py_tp_dealloc, dealloc),
    SL_NATIVE_SLOT(Py_bf_getbuffer, get_buffer),
    {0, NULL},
};

bool sl_native_memory_init(PyObject *module)
{
    return sl_native_python_add_type(module, "starling._native.Memory", sizeof(struct memory),
                                     slots) != NULL;
}
