#include "python/native/client.h"

#include "python/native/errors.h"

static PyTypeObject *client_type;

void sl_native_client_set_type(PyTypeObject *type)
{
    client_type = type;
}

struct sl_native_client *sl_native_client_of(PyObject *object)
{
    if (!PyObject_TypeCheck(object, client_type)) {
        PyErr_Format(PyExc_TypeError, "client: %R; accepted: a starling.Client", object);
        return NULL;
    }
    return (struct sl_native_client *)object;
}

bool sl_native_client_check(const struct sl_native_client *self)
{
    if (self->closed || self->client == NULL) {
        (void)sl_native_errors_raise(SL_ERR_CLOSED, "client", "it was closed; connect again");
        return false;
    }
    return true;
}
