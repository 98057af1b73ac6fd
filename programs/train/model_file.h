/* A model file holds a trained model in the format safetensors: of a sparse table TABLE.keys, I64
 * [rows] (the bits of the u64 keys), and TABLE.values, F32 [rows][dim]; of a dense table TABLE, F32
 * [length]. Optimizer slots are not in it. Metadata: "starling.model", the model (model_note.h);
 * "starling.data", the format of its data; "starling.table.TABLE", the properties of a table, as in
 * exports of starling-ckpt, whose import reads the file. One thread; blocks; allocates. */
#ifndef SL_PROGRAMS_TRAIN_MODEL_FILE_H
#define SL_PROGRAMS_TRAIN_MODEL_FILE_H

#include <signal.h>

#include "core/key_index.h"
#include "core/reason.h"
#include "programs/models/model.h"
#include "programs/train/reader.h"

#define SL_MODEL_FILE_MODEL "starling.model"
#define SL_MODEL_FILE_DATA  "starling.data"
#define SL_MODEL_FILE_TABLE "starling.table."

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

struct sl_model_file_table {
    struct sl_table_spec spec; /* name, kind, shape, initializer */
    struct sl_key_index keys;  /* sparse: the number of a key is that of its row */
    float *values;             /* [rows][dim], or [length] */
};

struct sl_model_file {
    const struct sl_model *model;
    struct sl_model_shape shape;
    const struct sl_reader_format *format;
    struct sl_model_file_table tables[SL_MODEL_TABLES];
    uint32_t table_count;
    uint64_t row_count; /* of all sparse tables */
};

/* Reads a file into memory. *out needs fini, also after an error. Errors, with a reason: those of
 * sl_safetensors_open; INVALID and UNSUPPORTED (not the tables of a model), CORRUPT (a key twice),
 * NO_MEMORY. */
int sl_model_file_load(const char *path, struct sl_model_file *out, struct sl_reason *reason);
void sl_model_file_fini(struct sl_model_file *file);

/* Copies the rows of the keys to rows[key_count][dim]. A key without a row has the initial one, as
 * in the answer of a server. */
void sl_model_file_pull(const struct sl_model_file_table *table, const uint64_t *keys,
                        uint32_t key_count, float *rows);

#endif
