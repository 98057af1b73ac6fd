/* A file of tensors that is being written: a safetensors file, or NumPy's npz (a zip of npy files,
 * not packed, of any size). What the tensors are is said first; then their bytes come in any
 * order; then the file takes its name: until then there is a file NAME.part only, and after an
 * error neither. One thread; blocks. */
#ifndef SL_TOOLS_CKPT_TENSOR_WRITER_H
#define SL_TOOLS_CKPT_TENSOR_WRITER_H

#include <jansson.h>

#include "tools/ckpt/tensor.h"

struct sl_tensor_writer;

enum sl_tensor_writer_format { SL_TENSOR_WRITER_SAFETENSORS, SL_TENSOR_WRITER_NPZ };

/* By the end of its name. False: neither ".safetensors" nor ".npz". */
bool sl_tensor_writer_format_of(const char *path, enum sl_tensor_writer_format *out);

/* tensors: their places in the file are set here; the archive's until it ends, and unchanged.
 * metadata: texts by name, which safetensors carry; not taken over. Errors: EXISTS (there is a file
 * of that name; not when `replace`), TOO_LARGE, NO_MEMORY, IO; with a reason. */
int sl_tensor_writer_create(const char *path, enum sl_tensor_writer_format format, bool replace,
                            struct sl_tensors *tensors, const json_t *metadata,
                            struct sl_tensor_writer **out, char *reason, size_t reason_bytes);

/* Bytes [first, first + bytes) of the tensor, within it (asserted); what is written twice is as it
 * was written last, what never is, zeros. After an error only abandon is allowed. Errors: IO,
 * NO_MEMORY; with a reason. */
int sl_tensor_writer_write(struct sl_tensor_writer *archive, uint32_t tensor, uint64_t first,
                           const void *from, size_t bytes, char *reason, size_t reason_bytes);

/* The file has its name, and survives a crash. Nulls *archive, also on an error. Errors: IO. */
int sl_tensor_writer_finish(struct sl_tensor_writer **archive, char *reason, size_t reason_bytes);

/* Nothing is left of it. Nulls *archive; NULL is allowed. */
void sl_tensor_writer_abandon(struct sl_tensor_writer **archive);

#endif
