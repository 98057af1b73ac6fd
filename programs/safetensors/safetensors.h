/* The safetensors format: u64 length of a JSON text; the text with each tensor's type, shape and
 * offsets; the tensors' data without gaps. https://github.com/huggingface/safetensors, "Format". */
#ifndef SL_PROGRAMS_SAFETENSORS_SAFETENSORS_H
#define SL_PROGRAMS_SAFETENSORS_SAFETENSORS_H

#include <jansson.h>

#include "core/reason.h"
#include "programs/safetensors/tensor.h"

#define SL_SAFETENSORS_HEAD_BYTES_MAX (100U << 20) /* limit of the format */

/* Sets the tensors' offsets, 8-byte elements first for alignment. Returns all bytes before the
 * first tensor, allocated. Errors: NO_MEMORY, TOO_LARGE; with a reason. */
int sl_safetensors_head(struct sl_tensors *tensors, const json_t *metadata, char **head,
                        size_t *head_bytes, struct sl_reason *reason);

/* The format's names of the element types. */
extern const char *const sl_safetensors_type_names[SL_TENSOR_OTHER];

/* An open file. */
struct sl_safetensors {
    int fd;
    char path[1024];
    struct sl_tensors tensors; /* by offset */
    json_t *metadata;          /* strings by name; NULL: none */
};

/* Reads and validates the header: tensors are adjacent and fill the file. Errors: NOT_FOUND, IO,
 * CORRUPT, TOO_LARGE, NO_MEMORY; with a reason. */
int sl_safetensors_open(const char *path, struct sl_safetensors *out, struct sl_reason *reason);

/* Reads bytes [first, first + bytes) of a tensor, within it (asserted). Errors: IO, CORRUPT (the
 * file was truncated); with a reason. */
int sl_safetensors_read(const struct sl_safetensors *file, const struct sl_tensor *tensor,
                        uint64_t first, void *to, size_t bytes, struct sl_reason *reason);

void sl_safetensors_close(struct sl_safetensors *file);

#endif
