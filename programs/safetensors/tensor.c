#include "programs/safetensors/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"

uint32_t sl_tensor_type_bytes(enum sl_tensor_type type)
{
    switch (type) {
    case SL_TENSOR_F32:
        return 4;
    case SL_TENSOR_F16:
    case SL_TENSOR_BF16:
        return 2;
    case SL_TENSOR_I64:
    case SL_TENSOR_U64:
        return 8;
    case SL_TENSOR_U8:
        return 1;
    case SL_TENSOR_OTHER:
        break;
    }
    return 0;
}

static int set_sizes(struct sl_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(count, tensor->shape[i], &count)) {
            return SL_ERR_TOO_LARGE;
        }
    }
    tensor->count = count;
    if (tensor->type == SL_TENSOR_OTHER) {
        return 0;
    }
    if (__builtin_mul_overflow(count, sl_tensor_type_bytes(tensor->type), &tensor->bytes) ||
        tensor->bytes > 1ULL << 62) {
        return SL_ERR_TOO_LARGE;
    }
    return 0;
}

int sl_tensor_add(struct sl_tensors *tensors, const struct sl_tensor *tensor,
                  struct sl_reason *reason)
{
    struct sl_tensor copy = *tensor;
    if (sl_tensor_find(tensors, tensor->name) != NULL) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "two tensors would be called \"%s\"",
                              tensor->name);
    }
    if (tensors->count == SL_TENSORS_MAX || set_sizes(&copy) != 0) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "\"%s\" is too large, or one of more than %u tensors", tensor->name,
                              SL_TENSORS_MAX);
    }
    if (!sl_array_make_room(&tensors->items, &tensors->capacity, tensors->count,
                            sizeof *tensors->items)) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    tensors->items[tensors->count++] = copy;
    return 0;
}

const struct sl_tensor *sl_tensor_find(const struct sl_tensors *tensors, const char *name)
{
    for (uint32_t i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->items[i].name, name) == 0) {
            return &tensors->items[i];
        }
    }
    return NULL;
}

void sl_tensor_fini(struct sl_tensors *tensors)
{
    free(tensors->items);
    *tensors = (struct sl_tensors){0};
}
