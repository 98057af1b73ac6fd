/* Writes the files of an object into a directory, and nowhere else: paths with "..", absolute ones
 * and symbolic links below the directory are refused. One thread; blocks. */
#ifndef SL_PROGRAMS_OBJECTS_FILES_OUT_H
#define SL_PROGRAMS_OBJECTS_FILES_OUT_H

#include <starling_objects.h>

#include "core/reason.h"

/* Writes the files of a get that succeeded into one extent. Each file is written without a name, or
 * beside its place, and then renamed, replacing another file; directories are created where
 * missing.
 *
 * An object without "file:" tensors (programs/objects/files_in.h) becomes one file with the last
 * part of its name: its bytes, if each part is what sl_publish_bytes makes, or NAME.safetensors. If
 * two parts have a tensor of one name, each part becomes a file NAME.PART.safetensors.
 *
 * An end signal during the call removes the file that is being written; then it takes effect.
 * Errors: INVALID (a path; a tensor's name), EXISTS (two parts have a file of one path), IO,
 * CANCELLED (a signal), NO_MEMORY; with a reason; files before that one are complete. */
int sl_files_out_write(struct sl_get *get, const char *name, const uint8_t *base,
                       const char *directory, uint32_t *file_count, struct sl_reason *reason);

#endif
