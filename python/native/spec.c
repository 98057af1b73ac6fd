#include "python/native/spec.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} HYPER_PARAMETERS[] = {
    {"lr", offsetof(struct sl_optimizer_spec, lr)},
    {"momentum", offsetof(struct sl_optimizer_spec, momentum)},
    {"rho", offsetof(struct sl_optimizer_spec, rho)},
    {"beta1", offsetof(struct sl_optimizer_spec, beta1)},
    {"beta2", offsetof(struct sl_optimizer_spec, beta2)},
    {"epsilon", offsetof(struct sl_optimizer_spec, epsilon)},
    {"weight_decay", offsetof(struct sl_optimizer_spec, weight_decay)},
    {"initial_accumulator", offsetof(struct sl_optimizer_spec, initial_accumulator)},
    {"l1", offsetof(struct sl_optimizer_spec, l1)},
    {"l2", offsetof(struct sl_optimizer_spec, l2)},
    {"lr_power", offsetof(struct sl_optimizer_spec, lr_power)},
    {"decay_baseline", offsetof(struct sl_optimizer_spec, decay_baseline)},
};

static bool read_optimizer(int kind, PyObject *values, struct sl_optimizer_spec *out)
{
    *out = sl_optimizer_defaults((enum sl_optimizer_kind)kind);
    for (size_t i = 0; i < sizeof HYPER_PARAMETERS / sizeof *HYPER_PARAMETERS; i++) {
        PyObject *value = PyDict_GetItemString(values, HYPER_PARAMETERS[i].name);
        if (value != NULL) {
            const float number = (float)PyFloat_AsDouble(value);
            memcpy((char *)out + HYPER_PARAMETERS[i].offset, &number, sizeof number);
        }
    }
    PyObject *steps = PyDict_GetItemString(values, "decay_steps");
    if (steps != NULL) {
        out->decay_steps = (uint32_t)PyLong_AsUnsignedLong(steps);
    }
    return PyErr_Occurred() == NULL;
}

bool sl_native_spec_read(PyObject *args, struct sl_native_client **client,
                         struct sl_table_spec *spec, PyObject **timeout)
{
    *spec = (struct sl_table_spec)SL_TABLE_SPEC_INIT;
    struct sl_initializer_spec *initializer = &spec->initializer;
    struct sl_consistency_spec *consistency = &spec->consistency;
    int kind, optimizer, initializer_kind, mode;
    unsigned long long length, seed;
    const char *name;
    PyObject *object, *values;
    if (!PyArg_ParseTuple(args, "OsiIK(iO!)(iffK)(iII)O", &object, &name, &kind, &spec->dim,
                          &length, &optimizer, &PyDict_Type, &values, &initializer_kind,
                          &initializer->value, &initializer->high, &seed, &mode,
                          &consistency->staleness, &consistency->worker_count, timeout) ||
        (*client = sl_native_client_of(object)) == NULL ||
        !read_optimizer(optimizer, values, &spec->optimizer)) {
        return false;
    }
    if (strlen(name) >= sizeof spec->name) {
        PyErr_Format(PyExc_ValueError, "name: %s; accepted: 1 to %d bytes", name,
                     SL_TABLE_NAME_BYTES - 1);
        return false;
    }
    memcpy(spec->name, name, strlen(name) + 1);
    spec->kind = (enum sl_table_kind)kind;
    spec->length = length;
    initializer->kind = (enum sl_initializer_kind)initializer_kind;
    initializer->seed = seed;
    consistency->mode = (enum sl_consistency_mode)mode;
    return true;
}
