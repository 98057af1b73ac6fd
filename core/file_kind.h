/* The kind of a file by its first bytes: what a user gave instead of the format that a reader
 * expects. A binary format may begin with the same bytes: its reader asks when it has refused the
 * file. Pure; any thread. */
#ifndef SL_CORE_FILE_KIND_H
#define SL_CORE_FILE_KIND_H

#include <stddef.h>

#define SL_FILE_KIND_BYTES 24 /* of the beginning; fewer if the file is shorter */

/* A sentence with the kind and the remedy, such as "the file is compressed with gzip: unpack it
 * first"; NULL: not known. Of an empty file NULL. */
const char *sl_file_kind_explain(const void *bytes, size_t count);

#endif
