#include "programs/serve/saved_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/partition.h"
#include "programs/models/model_file.h"

#define BLOCK       SL_PARTITION_BLOCK_ELEMENTS
#define NAME_BYTES  (SL_TABLE_NAME_BYTES + 16)
#define TENSORS_MAX (2 * SL_MODEL_TABLES)

struct place {
    uint64_t key, row;
};

static int by_key(const void *a, const void *b)
{
    const uint64_t one = ((const struct place *)a)->key, other = ((const struct place *)b)->key;
    return (one > other) - (one < other);
}

static void append(struct sl_graph_image *image, char *name, const char *table, const char *kind,
                   struct sl_object_tensor tensor)
{
    (void)snprintf(name, NAME_BYTES, "%s/%s.0", table, kind);
    tensor.name = name;
    image->tensors[image->count] = tensor;
    image->offsets[image->count] = (image->bytes + 63) / 64 * 64;
    image->bytes = image->offsets[image->count++] + tensor.bytes;
}

/* Of a dense table, blocks are rows: their keys are their numbers, the last one ends with zeros. */
static int append_table(const struct sl_model_file_table *table, struct sl_graph_memory *memory,
                        struct sl_graph_image *image)
{
    const struct sl_table_spec *spec = &table->spec;
    const bool is_dense = spec->kind == SL_TABLE_DENSE;
    const uint64_t count = is_dense ? (spec->length + BLOCK - 1) / BLOCK : table->keys.count;
    const uint64_t dim = is_dense ? BLOCK : spec->dim;
    struct place *places = malloc((count + 1) * sizeof *places);
    uint64_t *keys = sl_graph_memory_take(memory, count + 1, sizeof *keys);
    float *rows = sl_graph_memory_take(memory, count * dim + 1, sizeof *rows);
    char *names = sl_graph_memory_take(memory, 2, NAME_BYTES);
    const bool has_memory = places != NULL && keys != NULL && rows != NULL && names != NULL;
    if (has_memory && !is_dense) {
        sl_key_index_keys(&table->keys, keys);
    }
    for (uint64_t i = 0; has_memory && i < count; i++) {
        places[i] = (struct place){.key = is_dense ? i : keys[i], .row = i};
    }
    if (has_memory) {
        qsort(places, count, sizeof *places, by_key);
    }
    for (uint64_t i = 0; has_memory && i < count; i++) {
        const uint64_t left = is_dense ? spec->length - i * BLOCK : dim;
        keys[i] = places[i].key;
        memcpy(rows + i * dim, table->values + places[i].row * dim,
               (left < dim ? left : dim) * sizeof *rows);
    }
    free(places);
    if (!has_memory) {
        return SL_ERR_NO_MEMORY;
    }
    append(image, names, spec->name, "keys",
           (struct sl_object_tensor){.type = SL_OBJECT_U64,
                                     .rank = 1,
                                     .shape = {count},
                                     .data = keys,
                                     .bytes = count * sizeof *keys});
    append(image, names + NAME_BYTES, spec->name, "rows",
           (struct sl_object_tensor){.type = SL_OBJECT_F32,
                                     .rank = 2,
                                     .shape = {count, dim},
                                     .data = rows,
                                     .bytes = count * dim * sizeof *rows});
    return 0;
}

int sl_saved_model_read(const char *path, struct sl_graph_memory *memory,
                        struct sl_graph_image *out, char note[SL_MODEL_NOTE_BYTES],
                        struct sl_reason *reason)
{
    struct sl_model_file file;
    sl_graph_memory_init(memory, SIZE_MAX);
    *out = (struct sl_graph_image){
        .tensors = sl_graph_memory_take(memory, TENSORS_MAX, sizeof *out->tensors),
        .offsets = sl_graph_memory_take(memory, TENSORS_MAX, sizeof *out->offsets),
        .groups = sl_graph_memory_take(memory, TENSORS_MAX, sizeof *out->groups)};
    int err = sl_model_file_load(path, &file, reason);
    if (err == 0) {
        sl_model_note_write(file.model, &file.shape, note);
        const bool has_lists = out->tensors != NULL && out->offsets != NULL && out->groups != NULL;
        err = has_lists ? 0 : SL_ERR_NO_MEMORY;
        for (uint32_t t = 0; err == 0 && t < file.table_count; t++) {
            err = append_table(&file.tables[t], memory, out);
        }
        err = err == 0 ? 0 : sl_reason_fail(reason, err, "%s: no memory for its tables", path);
    }
    sl_model_file_fini(&file);
    return err;
}
