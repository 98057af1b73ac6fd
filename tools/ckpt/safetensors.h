/* The safetensors format: u64 length of a JSON text, the text, which names each tensor's type,
 * shape and place, the tensors' bytes without a gap. https://github.com/huggingface/safetensors,
 * "Format". */
#ifndef SL_TOOLS_CKPT_SAFETENSORS_H
#define SL_TOOLS_CKPT_SAFETENSORS_H

#include <jansson.h>

#include "tools/ckpt/tensor.h"

#define SL_SAFETENSORS_HEAD_BYTES_MAX (100U << 20) /* the format's own limit */

/* Sets the tensors' places, those of 8 bytes an element first, so that all are aligned. The file's
 * bytes up to the first tensor's, allocated. Errors: NO_MEMORY, TOO_LARGE; with a reason. */
int sl_safetensors_head(struct sl_tensors *tensors, const json_t *metadata, char **head,
                        size_t *head_bytes, char *reason, size_t reason_bytes);

/* A file that is being read. */
struct sl_safetensors {
    int fd;
    char path[1024];
    struct sl_tensors tensors; /* by their places */
    json_t *metadata;          /* texts by name; NULL: there are none */
};

/* Reads the head, and checks all of it: that the tensors lie one behind the other and fill the
 * file. Errors: NOT_FOUND, IO, CORRUPT, TOO_LARGE, NO_MEMORY; with a reason. */
int sl_safetensors_open(const char *path, struct sl_safetensors *out, char *reason,
                        size_t reason_bytes);

/* Bytes [first, first + bytes) of a tensor of the file, within it (asserted). Errors: IO, CORRUPT
 * (the file has become shorter); with a reason. */
int sl_safetensors_read(const struct sl_safetensors *file, const struct sl_tensor *tensor,
                        uint64_t first, void *to, size_t bytes, char *reason, size_t reason_bytes);

void sl_safetensors_close(struct sl_safetensors *file);

#endif
