/* The data files expand the values of --data and --test into the list of files that a reader takes.
 * Every worker expands them by itself: all see the same folders. One thread; allocates. */
#ifndef SL_PROGRAMS_TRAIN_DATA_FILES_H
#define SL_PROGRAMS_TRAIN_DATA_FILES_H

#include <stdint.h>

#include "core/reason.h"

/* Zero at first; fini in any case. */
struct sl_data_files {
    char **paths; /* allocated, each one too */
    uint32_t count, capacity;
};

/* Appends the files of a value: a file; of a folder its files in the order of their names, without
 * those that begin with "_" or "."; or, if no file has that name, a list of these with commas
 * between them. A name that does not exist is appended too: the reader reports it. Errors:
 * NOT_FOUND (a folder without such files), INVALID (a list with an empty name), those of the
 * system, NO_MEMORY; with a reason. */
int sl_data_files_add(struct sl_data_files *files, const char *value, struct sl_reason *reason);

void sl_data_files_fini(struct sl_data_files *files);

#endif
