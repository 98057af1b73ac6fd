/* Arrays of Python as plain memory: NumPy arrays, CPU tensors of torch, and all that has the buffer
 * protocol. No function copies an array of the accepted type. starling/_arrays.py converts other
 * keys, and names the mistake in other arrays. Every function needs the GIL. */
#ifndef SL_NATIVE_ARRAYS_H
#define SL_NATIVE_ARRAYS_H

#include <stdbool.h>

#include "python/native/python.h"

/* A shape of f32 values, row-major. columns -1: one dimension, of `rows` values. */
struct sl_native_shape {
    Py_ssize_t rows, columns;
};

/* Finds the Python functions of arrays. At import. Returns false with an exception. */
bool sl_native_arrays_init(void);

/* Views uint64 keys[out->shape[0]]. The caller releases the view. name: of the argument. Returns
 * false with a TypeError or ValueError. */
bool sl_native_arrays_keys(PyObject *given, const char *name, Py_buffer *out);

/* Views f32 values of this shape, in the same way; of an array of f16 or bf16, an f32 copy. */
bool sl_native_arrays_floats(PyObject *given, const char *name, struct sl_native_shape shape,
                             Py_buffer *out);

/* The same for memory that receives values. *copy: NULL, or a new reference to the array that
 * receives values for an array of f16 or bf16; sl_native_arrays_narrow then copies them. */
bool sl_native_arrays_receiver(PyObject *given, const char *name, struct sl_native_shape shape,
                               Py_buffer *out, PyObject **copy);

/* Rounds values to the nearest that the array of f16 or bf16 can have. Returns false with an
 * exception. */
bool sl_native_arrays_narrow(PyObject *to, PyObject *copy);

/* Converts offsets[n], the first key of each bag, to uint32 ends[n] in a new array. Views it. */
bool sl_native_arrays_bag_ends(PyObject *offsets, Py_ssize_t key_count, Py_buffer *out);

/* Returns a new NumPy array of float32, uninitialised, or NULL with an exception. */
PyObject *sl_native_arrays_new(struct sl_native_shape shape);

#endif
