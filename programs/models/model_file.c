#include "programs/models/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/models/model_note.h"
#include "programs/safetensors/safetensors.h"
#include "ps/optimizer/initializer.h"

static const struct sl_tensor *find_tensor(const struct sl_safetensors *from, const char *table,
                                           const char *suffix)
{
    char name[SL_TENSOR_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s%s", table, suffix);
    return sl_tensor_find(&from->tensors, name);
}

/* NULL: with the error. */
static void *load_tensor(const struct sl_safetensors *from, const struct sl_tensor *tensor,
                         int *err, struct sl_reason *reason)
{
    void *to = malloc((size_t)tensor->bytes + 1); /* a table may have no row */
    *err = to == NULL ? sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                                       "%s: no memory for the %llu bytes of \"%s\"", from->path,
                                       (unsigned long long)tensor->bytes, tensor->name)
                      : sl_safetensors_read(from, tensor, 0, to, (size_t)tensor->bytes, reason);
    if (*err != 0) {
        free(to);
        return NULL;
    }
    return to;
}

static int load_keys(const struct sl_safetensors *from, const struct sl_tensor *tensor,
                     struct sl_model_file_table *to, struct sl_reason *reason)
{
    int err;
    uint64_t *keys = load_tensor(from, tensor, &err, reason);
    for (uint64_t i = 0; err == 0 && i < tensor->count; i++) {
        uint64_t number;
        if (sl_key_index_add(&to->keys, keys[i], &number) != 0) {
            err =
                sl_reason_fail(reason, SL_ERR_NO_MEMORY, "%s: no memory for its keys", from->path);
        } else if (number != i) {
            err = sl_reason_fail(reason, SL_ERR_CORRUPT, "%s: \"%s\" has key %llu twice",
                                 from->path, tensor->name, (unsigned long long)keys[i]);
        }
    }
    free(keys);
    return err;
}

static int load_table(const struct sl_safetensors *from, struct sl_model_file *file,
                      struct sl_model_file_table *to, struct sl_reason *reason)
{
    const struct sl_table_spec *spec = &to->spec;
    const bool is_sparse = spec->kind == SL_TABLE_SPARSE;
    const struct sl_tensor *keys = is_sparse ? find_tensor(from, spec->name, ".keys") : NULL;
    const struct sl_tensor *values = find_tensor(from, spec->name, is_sparse ? ".values" : "");
    const bool fits = values != NULL && values->type == SL_TENSOR_F32 &&
                      (is_sparse ? keys != NULL && keys->type == SL_TENSOR_I64 && keys->rank == 1 &&
                                       values->rank == 2 && values->shape[0] == keys->count &&
                                       values->shape[1] == spec->dim
                                 : values->rank == 1 && values->count == spec->length);
    if (!fits) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              is_sparse ? "%s: its model needs \"%s.keys\", I64 [rows], and "
                                          "\"%s.values\", F32 [rows][%llu]"
                                        : "%s: its model needs \"%s\", F32 [length]; of \"%s\" the "
                                          "length is %llu",
                              from->path, spec->name, spec->name,
                              (unsigned long long)(is_sparse ? spec->dim : spec->length));
    }
    int err = is_sparse ? load_keys(from, keys, to, reason) : 0;
    if (err == 0) {
        to->values = load_tensor(from, values, &err, reason);
    }
    file->row_count += is_sparse ? keys->count : 0;
    return err;
}

static int load_all(const struct sl_safetensors *from, struct sl_model_file *file,
                    struct sl_reason *reason)
{
    const char *note = json_string_value(json_object_get(from->metadata, SL_MODEL_FILE_MODEL));
    const char *data = json_string_value(json_object_get(from->metadata, SL_MODEL_FILE_DATA));
    struct sl_table_spec specs[SL_MODEL_TABLES];
    struct sl_reason why;
    if (note == NULL || data == NULL || strlen(data) >= sizeof file->data) {
        return sl_reason_fail(
            reason, SL_ERR_UNSUPPORTED,
            "%s: \"__metadata__\" does not describe a model: it needs \"" SL_MODEL_FILE_MODEL
            "\" and \"" SL_MODEL_FILE_DATA "\", as files of starling-worker --save have",
            from->path);
    }
    (void)snprintf(file->data, sizeof file->data, "%s", data);
    int err = sl_model_note_read(note, &file->model, &file->shape, &why);
    if (err != 0) {
        return sl_reason_fail(reason, err, "%s: \"" SL_MODEL_FILE_MODEL "\": %s", from->path,
                              why.text);
    }
    file->table_count = file->model->tables(&file->shape, specs);
    for (uint32_t t = 0; err == 0 && t < file->table_count; t++) {
        file->tables[t].spec = specs[t];
        err = load_table(from, file, &file->tables[t], reason);
    }
    return err;
}

int sl_model_file_load(const char *path, struct sl_model_file *out, struct sl_reason *reason)
{
    struct sl_safetensors from;
    *out = (struct sl_model_file){0};
    int err = sl_safetensors_open(path, &from, reason);
    if (err == 0) {
        err = load_all(&from, out, reason);
        sl_safetensors_close(&from);
    }
    return err;
}

void sl_model_file_fini(struct sl_model_file *file)
{
    for (uint32_t t = 0; t < SL_MODEL_TABLES; t++) {
        sl_key_index_fini(&file->tables[t].keys);
        free(file->tables[t].values);
    }
    *file = (struct sl_model_file){0};
}

void sl_model_file_pull(const struct sl_model_file_table *table, const uint64_t *keys,
                        uint32_t key_count, float *rows)
{
    const uint32_t dim = table->spec.dim;
    for (uint32_t i = 0; i < key_count; i++) {
        uint64_t number;
        if (sl_key_index_find(&table->keys, keys[i], &number)) {
            memcpy(rows + (size_t)i * dim, table->values + number * dim, dim * sizeof *rows);
        } else {
            sl_initializer_fill(&table->spec.initializer, keys[i], 0, dim, rows + (size_t)i * dim);
        }
    }
}
