#include "programs/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

const char *const sl_safetensors_type_names[SL_TENSOR_OTHER] = {
    [SL_TENSOR_F32] = "F32", [SL_TENSOR_F16] = "F16", [SL_TENSOR_BF16] = "BF16",
    [SL_TENSOR_I64] = "I64", [SL_TENSOR_U64] = "U64", [SL_TENSOR_U8] = "U8"};

/* Sets offsets from the end of the header. */
static void set_places(struct sl_tensors *tensors)
{
    static const uint32_t sizes[] = {8, 4, 2, 1};
    uint64_t at = 0;
    for (uint32_t size = 0; size < 4; size++) {
        for (uint32_t i = 0; i < tensors->count; i++) {
            struct sl_tensor *tensor = &tensors->items[i];
            if (sl_tensor_type_bytes(tensor->type) == sizes[size]) {
                tensor->at = at;
                at += tensor->bytes;
            }
        }
    }
}

static json_t *describe(const struct sl_tensor *tensor)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; shape != NULL && i < tensor->rank; i++) {
        (void)json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", sl_safetensors_type_names[tensor->type],
                     "shape", shape, "data_offsets", (json_int_t)tensor->at,
                     (json_int_t)(tensor->at + tensor->bytes));
}

/* NULL: no memory. */
static char *make_text(const struct sl_tensors *tensors, const json_t *metadata)
{
    json_t *root = json_object();
    bool good = root != NULL;
    if (good && metadata != NULL) {
        good = json_object_set_new(root, "__metadata__", json_deep_copy(metadata)) == 0;
    }
    for (uint32_t i = 0; good && i < tensors->count; i++) {
        good = json_object_set_new(root, tensors->items[i].name, describe(&tensors->items[i])) == 0;
    }
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

int sl_safetensors_head(struct sl_tensors *tensors, const json_t *metadata, char **head,
                        size_t *head_bytes, struct sl_reason *reason)
{
    set_places(tensors);
    char *text = make_text(tensors, metadata);
    const size_t length = text == NULL ? 0 : strlen(text);
    const uint64_t padded = sl_bytes_pad8(length);
    char *all = text == NULL ? NULL : malloc(sizeof padded + padded);
    if (all == NULL) {
        free(text);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory, or a name that is not UTF-8");
    }
    if (padded > SL_SAFETENSORS_HEAD_BYTES_MAX) {
        free(text);
        free(all);
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "the names of the tensors need more than %u bytes",
                              SL_SAFETENSORS_HEAD_BYTES_MAX);
    }
    memcpy(all, &padded, sizeof padded);
    memset(all + sizeof padded, ' ', padded);
    memcpy(all + sizeof padded, text, length);
    free(text);
    for (uint32_t i = 0; i < tensors->count; i++) {
        tensors->items[i].at += sizeof padded + padded;
    }
    *head = all;
    *head_bytes = sizeof padded + (size_t)padded;
    return 0;
}
