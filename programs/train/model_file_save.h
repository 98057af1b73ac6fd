/* Writes a model file (programs/models/model_file.h) from the tables of a job. One thread; blocks;
 * allocates. */
#ifndef SL_PROGRAMS_TRAIN_MODEL_FILE_SAVE_H
#define SL_PROGRAMS_TRAIN_MODEL_FILE_SAVE_H

#include <signal.h>

#include "core/reason.h"
#include "programs/models/model.h"
#include "programs/train/reader.h"

/* The tables of a model on the servers. */
struct sl_model_file_source {
    struct sl_client *client;
    const struct sl_model *model;
    const struct sl_model_shape *shape;
    const struct sl_reader_format *format;
    struct sl_table *const *tables; /* [table_count], opened with specs */
    const struct sl_table_spec *specs;
    uint32_t table_count;
    uint32_t timeout_ms;               /* of each request */
    const volatile sig_atomic_t *stop; /* not 0: give up */
};

/* Checks that a file can be written to `path` later. Errors, with a reason: INVALID (not a regular
 * file, or its path is too long), those of the system. */
int sl_model_file_check(const char *path, struct sl_reason *reason);

/* Writes the tables to the file, which gets its name when it is complete; an older one is replaced.
 * Rows pass through an unnamed file beside it: neither they nor their keys need to fit in memory,
 * and the tables may be in use. *rows: of all sparse tables. Errors, with a reason: those of the
 * client, IO, NO_MEMORY, CANCELLED (by *stop). */
int sl_model_file_save(const struct sl_model_file_source *source, const char *path, uint64_t *rows,
                       struct sl_reason *reason);

#endif
