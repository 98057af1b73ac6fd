/* Writes the files of an object into a directory, and nowhere else: paths with "..", absolute ones
 * and symbolic links below the directory are refused. One thread; blocks. */
#ifndef SL_TOOLS_OBJECTS_FILES_OUT_H
#define SL_TOOLS_OBJECTS_FILES_OUT_H

#include <starling_objects.h>

#include "core/reason.h"

/* Writes the files of a get that succeeded into one extent. Each file is written beside its place
 * and then renamed, replacing another file; directories are created where missing. An object
 * without "file:" tensors (tools/objects/files_in.h) becomes one file with the last part of its
 * name: of bytes, or a .safetensors file. Errors: INVALID (a path), IO, NO_MEMORY; with a reason;
 * files before that one are complete. */
int sl_files_out_write(struct sl_get *get, const char *name, const uint8_t *base,
                       const char *directory, uint32_t *file_count, struct sl_reason *reason);

#endif
