/* A file of tensors that is being written: a safetensors file, or NumPy's npz (a zip of npy files,
 * not packed, of any size). What the tensors are is said first; then their bytes come in any
 * order; then the file takes its name: until then there is a file NAME.part only, and after an
 * error neither. One thread; blocks. */
#ifndef SL_CKPT_ARCHIVE_H
#define SL_CKPT_ARCHIVE_H

#include <jansson.h>

#include "ckpt/tensor.h"

struct sl_archive;

enum sl_archive_format { SL_ARCHIVE_SAFETENSORS, SL_ARCHIVE_NPZ };

/* By the end of its name. False: neither ".safetensors" nor ".npz". */
bool sl_archive_format_of(const char *path, enum sl_archive_format *out);

/* tensors: their places in the file are set here; the archive's until it ends, and unchanged.
 * metadata: texts by name, which safetensors carry; not taken over. Errors: EXISTS (there is a file
 * of that name; not when `replace`), TOO_LARGE, NO_MEMORY, IO; with a reason. */
int sl_archive_create(const char *path, enum sl_archive_format format, bool replace,
                      struct sl_tensors *tensors, const json_t *metadata, struct sl_archive **out,
                      char *reason, size_t reason_bytes);

/* Bytes [first, first + bytes) of the tensor, within it (asserted); what is written twice is as it
 * was written last, what never is, zeros. After an error only abandon is allowed. Errors: IO,
 * NO_MEMORY; with a reason. */
int sl_archive_write(struct sl_archive *archive, uint32_t tensor, uint64_t first, const void *from,
                     size_t bytes, char *reason, size_t reason_bytes);

/* The file has its name, and survives a crash. Nulls *archive, also on an error. Errors: IO. */
int sl_archive_finish(struct sl_archive **archive, char *reason, size_t reason_bytes);

/* Nothing is left of it. Nulls *archive; NULL is allowed. */
void sl_archive_abandon(struct sl_archive **archive);

#endif
