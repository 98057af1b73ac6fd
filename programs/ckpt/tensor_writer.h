/* Writes a tensor file: safetensors or NumPy's npz (an uncompressed zip of npy files, of any size).
 * The tensors are defined first; their data may come in any order. Until finish, there is only a
 * file NAME.part; after an error neither file. One thread; blocks. */
#ifndef SL_PROGRAMS_CKPT_TENSOR_WRITER_H
#define SL_PROGRAMS_CKPT_TENSOR_WRITER_H

#include <jansson.h>

#include "core/reason.h"
#include "programs/safetensors/tensor.h"

struct sl_tensor_writer;

enum sl_tensor_writer_format { SL_TENSOR_WRITER_SAFETENSORS, SL_TENSOR_WRITER_NPZ };

/* Chooses the format by extension. False: neither ".safetensors" nor ".npz". */
bool sl_tensor_writer_format_of(const char *path, enum sl_tensor_writer_format *out);

/* Creates the file. Sets the tensors' offsets; the writer uses `tensors` until it ends, and the
 * caller must not change it. metadata: strings by name, for safetensors only; stays the caller's.
 * Errors: EXISTS (unless `replace`), TOO_LARGE, NO_MEMORY, IO; with a reason. */
int sl_tensor_writer_create(const char *path, enum sl_tensor_writer_format format, bool replace,
                            struct sl_tensors *tensors, const json_t *metadata,
                            struct sl_tensor_writer **out, struct sl_reason *reason);

/* Writes bytes [first, first + bytes) of the tensor, within it (asserted). The last write of a byte
 * counts; unwritten bytes are zero. After an error only abandon is allowed. Errors: IO, NO_MEMORY;
 * with a reason. */
int sl_tensor_writer_write(struct sl_tensor_writer *archive, uint32_t tensor, uint64_t first,
                           const void *from, size_t bytes, struct sl_reason *reason);

/* Gives the file its name, durably. Sets *archive to NULL, also on an error. Errors: IO. */
int sl_tensor_writer_finish(struct sl_tensor_writer **archive, struct sl_reason *reason);

/* Removes the file. Sets *archive to NULL, which is allowed as input. */
void sl_tensor_writer_abandon(struct sl_tensor_writer **archive);

#endif
