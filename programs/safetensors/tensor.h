/* Named arrays of a tensor file. Any thread; allocates. */
#ifndef SL_PROGRAMS_SAFETENSORS_TENSOR_H
#define SL_PROGRAMS_SAFETENSORS_TENSOR_H

#include <stdint.h>

#include "core/reason.h"

#define SL_TENSOR_NAME_BYTES 256
#define SL_TENSOR_RANK_MAX   8
#define SL_TENSORS_MAX       (1U << 14)

enum sl_tensor_type {
    SL_TENSOR_F32,
    SL_TENSOR_F16,
    SL_TENSOR_BF16,
    SL_TENSOR_I64,
    SL_TENSOR_U64,
    SL_TENSOR_U8,
    SL_TENSOR_OTHER
};

struct sl_tensor {
    char name[SL_TENSOR_NAME_BYTES];
    char type_name[32]; /* as in the file it was read from */
    enum sl_tensor_type type;
    uint32_t rank;
    uint64_t shape[SL_TENSOR_RANK_MAX];
    uint64_t count; /* elements: product of the shape */
    uint64_t bytes;
    uint64_t at; /* offset of its first byte in the file */
};

struct sl_tensors {
    struct sl_tensor *items; /* allocated: sl_tensor_fini */
    uint32_t count, capacity;
};

/* Returns the size of an element; 0 for OTHER. */
uint32_t sl_tensor_type_bytes(enum sl_tensor_type type);

/* Appends a copy and sets its count and bytes (not bytes of OTHER). Errors: EXISTS (duplicate
 * name), TOO_LARGE (too many, or over 2^62 bytes), NO_MEMORY; with a reason. */
int sl_tensor_add(struct sl_tensors *tensors, const struct sl_tensor *tensor,
                  struct sl_reason *reason);

/* Returns NULL if there is none. */
const struct sl_tensor *sl_tensor_find(const struct sl_tensors *tensors, const char *name);

void sl_tensor_fini(struct sl_tensors *tensors);

#endif
