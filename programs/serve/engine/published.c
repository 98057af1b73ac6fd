#include "programs/serve/engine/published.h"

#include <stdio.h>
#include <string.h>

#include "objects/catalogue/manifest.h"

/* Tensor NAME/KIND.SHARD; NULL: there is none. */
static const struct sl_object_tensor *find_tensor(const struct sl_engine_image *image,
                                                  const char *table, const char *kind,
                                                  uint32_t shard)
{
    char name[SL_OBJECTS_TENSOR_NAME_BYTES];
    if (snprintf(name, sizeof name, "%s/%s.%u", table, kind, shard) >= (int)sizeof name) {
        return NULL;
    }
    for (uint32_t i = 0; i < image->count; i++) {
        if (strcmp(image->tensors[i].name, name) == 0) {
            return &image->tensors[i];
        }
    }
    return NULL;
}

int sl_published_table_find(const struct sl_engine_image *image, const char *name, uint32_t dim,
                            struct sl_published_table *out, struct sl_reason *reason)
{
    const struct sl_object_tensor *keys = find_tensor(image, name, "keys", 0);
    *out = (struct sl_published_table){0};
    while (keys != NULL && out->shard_count < SL_OBJECTS_PARTS_MAX) {
        const struct sl_object_tensor *rows = find_tensor(image, name, "rows", out->shard_count);
        uint64_t columns = 0;
        if (rows == NULL ||
            !sl_objects_rows_take(keys, rows, &out->shards[out->shard_count], &columns) ||
            columns != dim) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT,
                                  "shard %u of table %s: expected are %s/keys.%u of u64 [n] and "
                                  "%s/rows.%u of f32 [n, %u], the same of f16 or bf16, or u8 "
                                  "[n, %u]%s",
                                  out->shard_count, name, name, out->shard_count, name,
                                  out->shard_count, dim, dim + (uint32_t)sizeof(float),
                                  columns != 0 && columns != dim ? "; its rows have another dim"
                                                                 : "");
        }
        out->shard_count++;
        out->row_count += keys->shape[0];
        keys = find_tensor(image, name, "keys", out->shard_count);
    }
    return out->shard_count > 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_CORRUPT,
                                "the version has no table %s: no tensor %s/keys.0", name, name);
}
