/* NumPy's npz reader finds the arrays of a file that numpy.savez has written: a zip of uncompressed
 * npy files. Bytes are not trusted. Pure; no allocation. */
#ifndef SL_PROGRAMS_SERVE_NPZ_H
#define SL_PROGRAMS_SERVE_NPZ_H

#include <stddef.h>
#include <stdint.h>

#include <starling_objects.h>

#include "core/reason.h"

struct sl_npz_array {
    uint32_t type; /* SL_OBJECT_F32, SL_OBJECT_I64 or SL_OBJECT_BOOL */
    uint32_t rank;
    uint64_t shape[SL_OBJECTS_RANK_MAX];
    const void *data; /* row-major, in the file's bytes, not aligned */
    uint64_t bytes;
};

/* Finds the array `name` in the bytes of a file. Errors, with the name: NOT_FOUND; INVALID (the
 * file or the array is damaged, compressed, or of another type or order). */
int sl_npz_find(const void *file, size_t bytes, const char *name, struct sl_npz_array *out,
                struct sl_reason *reason);

#endif
