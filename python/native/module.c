/* The extension module starling._native: the types, and calls that need no client. */
#include "python/native/arrays.h"
#include "python/native/client_type.h"
#include "python/native/errors.h"
#include "python/native/log.h"
#include "python/native/memory.h"
#include "python/native/scan.h"
#include "python/native/spec.h"
#include "python/native/step_type.h"
#include "python/native/table.h"

#include <dlfcn.h>

/* unique(keys, unique, inverse, counts): arrays that starling.unique has made. Returns the number
 * of distinct keys. */
static PyObject *unique(PyObject *module, PyObject *args)
{
    Py_buffer keys, found, inverse, counts;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "y*w*w*w*", &keys, &found, &inverse, &counts)) {
        return NULL;
    }
    int err = SL_ERR_INVALID;
    const bool has_room = found.len >= keys.len && inverse.len >= keys.len / 2 &&
                          counts.len >= keys.len / 2; /* of u64, u32 and u32 */
    Py_BEGIN_ALLOW_THREADS;
    err = !has_room ? err
                    : sl_keys_unique(keys.buf, (size_t)keys.len / sizeof(uint64_t), found.buf,
                                     inverse.buf, counts.buf, &count);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&keys);
    PyBuffer_Release(&found);
    PyBuffer_Release(&inverse);
    PyBuffer_Release(&counts);
    return err == 0 ? PyLong_FromSize_t(count)
                    : sl_native_errors_raise(err, "unique",
                                             has_room ? sl_last_error() : "an array is too short");
}

/* The path of the library, beside which libstarling_objects lies. */
static bool add_library(PyObject *module)
{
    Dl_info found = {.dli_fname = ""};
    (void)dladdr((const void *)(uintptr_t)sl_log_set, &found);
    return PyModule_AddStringConstant(module, "library", found.dli_fname) == 0 &&
           PyModule_AddObject(module, "log_line",
                              PyLong_FromVoidPtr((void *)(uintptr_t)sl_native_log_line())) == 0;
}

static PyMethodDef functions[] = {
    {"check_spec", sl_native_spec_check, METH_VARARGS, NULL},
    {"log_to", sl_native_log_to, METH_VARARGS, NULL},
    {"unique", unique, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "starling._native",
                                        .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL &&
        (!sl_native_errors_init() || !sl_native_arrays_init() || !sl_native_memory_init(module) ||
         !sl_native_scan_init(module) || !sl_native_table_init(module) ||
         !sl_native_step_type_init(module) || !sl_native_client_type_init(module) ||
         PyModule_AddStringConstant(module, "version", STARLING_VERSION) != 0 ||
         !add_library(module))) {
        Py_CLEAR(module);
    }
    return module;
}
