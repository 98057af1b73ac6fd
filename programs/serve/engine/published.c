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
        if (rows == NULL || keys->type != SL_OBJECT_U64 || keys->rank != 1 ||
            rows->type != SL_OBJECT_F32 || rows->rank != 2 || rows->shape[0] != keys->shape[0] ||
            rows->shape[1] != dim) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT,
                                  "shard %u of table %s: expected are %s/keys.%u of u64 [n] and "
                                  "%s/rows.%u of f32 [n, %u]%s",
                                  out->shard_count, name, name, out->shard_count, name,
                                  out->shard_count, dim,
                                  rows != NULL && rows->rank == 2 && rows->shape[1] != dim
                                      ? "; its rows have another dim"
                                      : "");
        }
        out->shards[out->shard_count++] = (struct sl_objects_rows_shard){
            .keys = keys->data, .rows = rows->data, .count = keys->shape[0]};
        out->row_count += keys->shape[0];
        keys = find_tensor(image, name, "keys", out->shard_count);
    }
    return out->shard_count > 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_CORRUPT,
                                "the version has no table %s: no tensor %s/keys.0", name, name);
}
