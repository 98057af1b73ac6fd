/* CPython's headers for the limited API, and what its tables of types and methods need. */
#ifndef SL_NATIVE_PYTHON_H
#define SL_NATIVE_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <starling.h>

/* The pointer of a function with other arguments than a tuple, in a table of methods. */
#define SL_NATIVE_METHOD(function) ((PyCFunction)(void (*)(void))(function))

/* An entry of a table of slots. */
#define SL_NATIVE_SLOT(id, function)                                                               \
    {                                                                                              \
        id, (void *)(function)                                                                     \
    }

/* Creates a type, of objects of so many bytes, and adds it to the module. Returns a new reference,
 * or NULL with an exception. */
static inline PyTypeObject *sl_native_python_add_type(PyObject *module, const char *name,
                                                      size_t bytes, PyType_Slot *slots)
{
    PyType_Spec spec = {.name = name,
                        .basicsize = (int)bytes,
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                        .slots = slots};
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (type != NULL && PyModule_AddType(module, type) != 0) {
        Py_CLEAR(type);
    }
    return type;
}

/* Frees an object of a type that was created so, after its members. */
static inline void sl_native_python_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#endif
