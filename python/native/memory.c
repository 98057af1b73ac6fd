#include "python/native/memory.h"

#include <sys/mman.h>

#include "python/native/errors.h"

struct sl_native_memory {
    PyObject_HEAD struct sl_native_client *client; /* NULL: it has ended */
    struct sl_native_memory *next;                 /* of the client */
    void *base;
    Py_ssize_t bytes;
};

/* Memory(client, bytes): zeroed. */
static PyObject *native_memory_allocate(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    Py_ssize_t bytes;
    struct sl_native_client *client;
    void *base;
    if (!PyArg_ParseTuple(args, "On", &given, &bytes) ||
        (client = sl_native_client_of(given)) == NULL || !sl_native_client_check(client)) {
        return NULL;
    }
    if (bytes < 1) {
        PyErr_Format(PyExc_ValueError, "bytes: %zd; accepted: 1 or more", bytes);
        return NULL;
    }
    int err = sl_client_buffer_create(client->client, (size_t)bytes, &base);
    if (err != 0) {
        return sl_native_errors_raise(err, "empty", sl_last_error());
    }
    struct sl_native_memory *memory = (struct sl_native_memory *)PyType_GenericAlloc(type, 0);
    if (memory == NULL) {
        sl_client_buffer_free(client->client, &base);
        return NULL;
    }
    Py_INCREF((PyObject *)client);
    memory->client = client;
    memory->next = client->memories;
    client->memories = memory;
    memory->base = base;
    memory->bytes = bytes;
    return (PyObject *)memory;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct sl_native_memory *memory = (struct sl_native_memory *)self;
    return PyBuffer_FillInfo(view, self, memory->base, memory->bytes, 0, flags);
}

static void native_memory_dealloc(PyObject *self)
{
    struct sl_native_memory *memory = (struct sl_native_memory *)self;
    if (memory->client == NULL) {
        (void)munmap(memory->base, (size_t)memory->bytes);
    } else {
        struct sl_native_memory **at = &memory->client->memories;
        while (*at != memory) {
            at = &(*at)->next;
        }
        *at = memory->next;
        sl_client_buffer_free(memory->client->client, &memory->base);
        Py_DECREF((PyObject *)memory->client);
    }
    sl_native_python_free(self);
}

void sl_native_memory_keep_all(struct sl_native_client *client)
{
    while (client->memories != NULL) {
        struct sl_native_memory *memory = client->memories;
        client->memories = memory->next;
        memory->client = NULL;
        sl_client_buffer_keep(client->client, memory->base);
        Py_DECREF((PyObject *)client);
    }
}

static PyType_Slot slots[] = {
    SL_NATIVE_SLOT(Py_tp_new, native_memory_allocate),
    SL_NATIVE_SLOT(Py_tp_dealloc, native_memory_dealloc),
    SL_NATIVE_SLOT(Py_bf_getbuffer, get_buffer),
    {0, NULL},
};

bool sl_native_memory_init(PyObject *module)
{
    return sl_native_python_add_type(module, "starling._native.Memory",
                                     sizeof(struct sl_native_memory), slots) != NULL;
}
