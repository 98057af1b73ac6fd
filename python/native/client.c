#include "python/native/client.h"

#include "python/native/errors.h"

#define FINISH_TIMEOUT_MS 2000

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

static void finish_clock(struct sl_client *client)
{
    struct sl_step *step;
    if (sl_client_task_index(client) < 0 || sl_step_begin(client, 0, &step) != 0) {
        return;
    }
    if (sl_step_finish(step) == 0 && sl_step_submit(step, FINISH_TIMEOUT_MS) == 0) {
        while (!sl_step_done(step)) {
            (void)sl_step_wait(step); /* a signal may interrupt it */
        }
    }
    sl_step_destroy(&step);
}

void sl_native_client_end(struct sl_native_client *self, bool finishes)
{
    struct sl_client *client = self->client;
    if (self->memory_count > 0 && finishes) {
        self->calls++;
        Py_BEGIN_ALLOW_THREADS;
        finish_clock(client);
        Py_END_ALLOW_THREADS;
        self->calls--;
    }
    if (self->memory_count > 0) {
        return;
    }
    self->client = NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (finishes) {
        sl_client_destroy(&client);
    } else {
        sl_client_leave(&client);
    }
    Py_END_ALLOW_THREADS;
}

void sl_native_client_drop_memory(struct sl_native_client *self)
{
    self->memory_count--;
    if (self->closed && self->calls == 0 && self->memory_count == 0 && self->client != NULL) {
        sl_native_client_end(self, false);
    }
}
