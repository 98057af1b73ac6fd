/* Files as tensors of an object: reads them into memory, laid out as the object's image.
 *
 * Each file begins with a tensor of bytes named "file:" and its path: all of its bytes; of a
 * .safetensors file the head only, and the file's tensors follow with their own names. So a file is
 * the tensors from its first one to the next file's, one after the other. One thread; blocks. */
#ifndef SL_PROGRAMS_OBJECTS_FILES_IN_H
#define SL_PROGRAMS_OBJECTS_FILES_IN_H

#include <starling_objects.h>

#include "core/reason.h"

#define SL_FILES_IN_PREFIX "file:"

/* A tensor, and where its bytes are. */
struct sl_files_in_tensor {
    struct sl_object_tensor tensor;
    const char *path; /* allocated, with the tensor's name */
    uint64_t at;      /* in the file */
};

/* Zero at first; fini in any case. */
struct sl_files_in {
    struct sl_files_in_tensor *items;
    uint32_t count, capacity;
    uint32_t file_count;
    uint8_t *base; /* mapped */
    uint64_t bytes;
};

/* Lists the tensors of files and of all files in directories; follows symbolic links. A path in an
 * object is the file's name, or its path below the directory. as_bytes: .safetensors files are
 * bytes too. Logs a warning for an empty directory. Errors: NOT_FOUND, IO, INVALID, CORRUPT,
 * TOO_LARGE, EXISTS, NO_MEMORY; with a reason.
 */
int sl_files_in_add(struct sl_files_in *files, const char *path, bool as_bytes,
                    struct sl_reason *reason);

/* Reads what was listed. Errors: IO, CORRUPT (a file has another length now), NO_MEMORY; with a
 * reason. */
int sl_files_in_read(struct sl_files_in *files, struct sl_reason *reason);

void sl_files_in_fini(struct sl_files_in *files);

/* Maps memory, also for no bytes; NULL: there is none, with a reason. unmap: NULL is allowed. */
uint8_t *sl_files_in_map(uint64_t bytes, struct sl_reason *reason);
void sl_files_in_unmap(uint8_t *base, uint64_t bytes);

/* The name of an enum sl_object_type in safetensors files. */
const char *sl_files_in_type_name(uint32_t type);

#endif
