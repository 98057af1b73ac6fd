#include "python/native/spec.h"

#include <stddef.h>
#include <string.h>

#include "python/native/errors.h"

/* Members of type float, by the names that starling.specs has for them. */
static const struct {
    const char *name;
    size_t offset;
} FLOATS[] = {
    {"lr", offsetof(struct sl_table_spec, optimizer.lr)},
    {"momentum", offsetof(struct sl_table_spec, optimizer.momentum)},
    {"rho", offsetof(struct sl_table_spec, optimizer.rho)},
    {"beta1", offsetof(struct sl_table_spec, optimizer.beta1)},
    {"beta2", offsetof(struct sl_table_spec, optimizer.beta2)},
    {"epsilon", offsetof(struct sl_table_spec, optimizer.epsilon)},
    {"weight_decay", offsetof(struct sl_table_spec, optimizer.weight_decay)},
    {"initial_accumulator", offsetof(struct sl_table_spec, optimizer.initial_accumulator)},
    {"l1", offsetof(struct sl_table_spec, optimizer.l1)},
    {"l2", offsetof(struct sl_table_spec, optimizer.l2)},
    {"lr_power", offsetof(struct sl_table_spec, optimizer.lr_power)},
    {"decay_baseline", offsetof(struct sl_table_spec, optimizer.decay_baseline)},
    {"clip_norm", offsetof(struct sl_table_spec, update.clip_norm)},
    {"value_bound", offsetof(struct sl_table_spec, update.value_bound)},
    {"value", offsetof(struct sl_table_spec, initializer.value)},
    {"low", offsetof(struct sl_table_spec, initializer.low)},
    {"high", offsetof(struct sl_table_spec, initializer.high)},
    {"mean", offsetof(struct sl_table_spec, initializer.mean)},
    {"std", offsetof(struct sl_table_spec, initializer.stddev)},
    {"l2_below", offsetof(struct sl_table_spec, policy.l2_below)},
    {"admit_probability", offsetof(struct sl_table_spec, policy.admit_probability)},
    {"false_positives", offsetof(struct sl_table_spec, policy.false_positives)},
};

/* Members of an unsigned type. */
static const struct {
    const char *name;
    size_t offset, bytes;
} INTEGERS[] = {
    {"decay_steps", offsetof(struct sl_table_spec, optimizer.decay_steps), sizeof(uint32_t)},
    {"decay", offsetof(struct sl_table_spec, update.decay), sizeof(uint32_t)},
    {"seed", offsetof(struct sl_table_spec, initializer.seed), sizeof(uint64_t)},
    {"ttl_steps", offsetof(struct sl_table_spec, policy.ttl_steps), sizeof(uint32_t)},
    {"protect_steps", offsetof(struct sl_table_spec, policy.protect_steps), sizeof(uint32_t)},
    {"count_below", offsetof(struct sl_table_spec, policy.count_below), sizeof(uint32_t)},
    {"half_life_steps", offsetof(struct sl_table_spec, policy.half_life_steps), sizeof(uint32_t)},
    {"admission", offsetof(struct sl_table_spec, policy.admission), sizeof(uint32_t)},
    {"admit_count", offsetof(struct sl_table_spec, policy.admit_count), sizeof(uint32_t)},
    {"ttl_seconds", offsetof(struct sl_table_spec, policy.ttl_seconds), sizeof(uint32_t)},
    {"slot_shift", offsetof(struct sl_table_spec, policy.slot_shift), sizeof(uint32_t)},
    {"slot_bits", offsetof(struct sl_table_spec, policy.slot_bits), sizeof(uint32_t)},
    {"admit_age_steps", offsetof(struct sl_table_spec, policy.admit_age_steps), sizeof(uint32_t)},
    {"values", offsetof(struct sl_table_spec, values), sizeof(uint32_t)},
    {"optimizer_slots", offsetof(struct sl_table_spec, slots), sizeof(uint32_t)},
    {"rows_max", offsetof(struct sl_table_spec, policy.rows_max), sizeof(uint64_t)},
    {"keys_expected", offsetof(struct sl_table_spec, policy.keys_expected), sizeof(uint64_t)},
};

static bool spec_read_members(PyObject *values, struct sl_table_spec *out)
{
    for (size_t i = 0; i < sizeof FLOATS / sizeof *FLOATS; i++) {
        PyObject *value = PyDict_GetItemString(values, FLOATS[i].name);
        if (value != NULL) {
            const float number = (float)PyFloat_AsDouble(value);
            memcpy((char *)out + FLOATS[i].offset, &number, sizeof number);
        }
    }
    for (size_t i = 0; i < sizeof INTEGERS / sizeof *INTEGERS; i++) {
        PyObject *value = PyDict_GetItemString(values, INTEGERS[i].name);
        if (value != NULL) {
            const uint64_t number = PyLong_AsUnsignedLongLongMask(value);
            memcpy((char *)out + INTEGERS[i].offset, &number, INTEGERS[i].bytes); /* its low end */
        }
    }
    PyObject *slots = PyDict_GetItemString(values, "slots");
    if (slots != NULL) { /* bytes: struct sl_policy_slot, at most as many as there can be */
        const size_t bytes = (size_t)PyBytes_Size(slots);
        memcpy(out->policy.slots, PyBytes_AsString(slots), bytes);
        out->policy.slot_count = (uint32_t)(bytes / sizeof out->policy.slots[0]);
    }
    return PyErr_Occurred() == NULL;
}

PyObject *sl_native_spec_members(const struct sl_table_spec *spec)
{
    PyObject *all = Py_BuildValue(
        "{s:i,s:i,s:i,s:I,s:i}", "optimizer", (int)spec->optimizer.kind, "initializer",
        (int)spec->initializer.kind, "mode", (int)spec->consistency.mode, "staleness",
        (unsigned int)spec->consistency.staleness, "order", (int)spec->policy.order);
    for (size_t i = 0; all != NULL && i < sizeof FLOATS / sizeof *FLOATS; i++) {
        float number;
        memcpy(&number, (const char *)spec + FLOATS[i].offset, sizeof number);
        PyObject *value = PyFloat_FromDouble((double)number);
        if (value == NULL || PyDict_SetItemString(all, FLOATS[i].name, value) != 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(value);
    }
    for (size_t i = 0; all != NULL && i < sizeof INTEGERS / sizeof *INTEGERS; i++) {
        uint64_t number = 0;
        memcpy(&number, (const char *)spec + INTEGERS[i].offset, INTEGERS[i].bytes);
        PyObject *value = PyLong_FromUnsignedLongLong(number);
        if (value == NULL || PyDict_SetItemString(all, INTEGERS[i].name, value) != 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(value);
    }
    return all;
}

PyObject *sl_native_spec_check(PyObject *module, PyObject *args)
{
    struct sl_table_spec spec = {
        .struct_size = sizeof spec, .name = "-", .kind = SL_TABLE_SPARSE, .dim = 1};
    int optimizer, initializer, order = SL_POLICY_NONE;
    PyObject *values;
    if (!PyArg_ParseTuple(args, "iiO!|i", &optimizer, &initializer, &PyDict_Type, &values,
                          &order)) {
        return NULL;
    }
    spec.policy.order = (enum sl_policy_order)order;
    spec.optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)optimizer);
    spec.initializer.kind = (enum sl_initializer_kind)initializer;
    if (!spec_read_members(values, &spec)) {
        return NULL;
    }
    const int err = sl_client_table_check(&spec);
    return err == 0 ? Py_NewRef(Py_None) : sl_native_errors_raise(err, "spec", sl_last_error());
}

bool sl_native_spec_read(PyObject *args, struct sl_native_client **client,
                         struct sl_table_spec *spec, PyObject **timeout)
{
    *spec = (struct sl_table_spec)SL_TABLE_SPEC_INIT;
    struct sl_consistency_spec *consistency = &spec->consistency;
    int kind, optimizer, initializer, mode, order;
    unsigned long long length;
    const char *name;
    PyObject *object, *of_optimizer, *of_initializer, *of_policy;
    int reject_nonfinite;
    if (!PyArg_ParseTuple(args, "OsiIK(iO!)(iO!)(iII)(iO!)pO", &object, &name, &kind, &spec->dim,
                          &length, &optimizer, &PyDict_Type, &of_optimizer, &initializer,
                          &PyDict_Type, &of_initializer, &mode, &consistency->staleness,
                          &consistency->worker_count, &order, &PyDict_Type, &of_policy,
                          &reject_nonfinite, timeout) ||
        (*client = sl_native_client_of(object)) == NULL) {
        return false;
    }
    spec->optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)optimizer);
    if (!spec_read_members(of_optimizer, spec) || !spec_read_members(of_initializer, spec) ||
        !spec_read_members(of_policy, spec)) {
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
    spec->reject_nonfinite = reject_nonfinite != 0;
    spec->initializer.kind = (enum sl_initializer_kind)initializer;
    consistency->mode = (enum sl_consistency_mode)mode;
    spec->policy.order = (enum sl_policy_order)order;
    return true;
}
