/* The extension module starling._native: the types. */
#include "python/native/arrays.h"
#include "python/native/client_type.h"
#include "python/native/errors.h"
#include "python/native/memory.h"
#include "python/native/step_type.h"
#include "python/native/table.h"

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "starling._native",
                                        .m_size = -1};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL &&
        (!sl_native_errors_init() || !sl_native_arrays_init() || !sl_native_memory_init(module) ||
         !sl_native_table_init(module) || !sl_native_step_type_init(module) ||
         !sl_native_client_type_init(module) ||
         PyModule_AddStringConstant(module, "version", STARLING_VERSION) != 0)) {
        Py_CLEAR(module);
    }
    return module;
}
