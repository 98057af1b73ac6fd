#include "python/native/client.h"

#include <stdio.h>

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

bool sl_native_client_check_values(const struct sl_native_client *self)
{
    const int32_t server = self->accepts_loss ? -1 : sl_client_values_lost(self->client);
    if (server < 0) {
        return true;
    }
    char text[320];
    (void)snprintf(text, sizeof text,
                   "ps/%d was restarted without its values, so that part of the model is gone; "
                   "restart the job: its servers with --restore newest, or with empty tables for a "
                   "new model; or go on without these values, with connect(accept_loss=True)",
                   server);
    (void)sl_native_errors_raise(SL_ERR_CORRUPT, "tables", text);
    return false;
}
