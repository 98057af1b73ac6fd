#include "programs/serve/worker/batch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format.h"

static uint64_t worker_batch_align(uint64_t bytes)
{
    return (bytes + 63) & ~63ULL;
}

/* "FP32 [-1, 3, 224, 224]" */
static const char *describe(uint32_t type, uint32_t rank, const uint64_t *shape, bool is_model,
                            char text[256])
{
    const char *name = sl_serve_request_datatype(type);
    char sizes[232] = "";
    for (uint32_t i = 0; i < rank; i++) {
        const int64_t size = is_model && i == 0 && shape[0] == 0 ? -1 : (int64_t)shape[i];
        (void)sl_format_add(sizes, sizeof sizes, ", ", "%" PRId64, size);
    }
    (void)snprintf(text, 256, "%s [%s]", name != NULL ? name : "?", sizes);
    return text;
}

/* The request's tensor with the name; NULL: none. */
static const struct sl_serve_tensor *worker_batch_find(const struct sl_serve_item *item,
                                                       const char *name)
{
    for (uint32_t i = 0; i < item->input_count; i++) {
        if (strcmp(item->inputs[i].name, name) == 0) {
            return &item->inputs[i];
        }
    }
    return NULL;
}

/* Whether each tensor is an input of the model, once. */
static int check_names(const struct sl_engine_info *info, const struct sl_serve_item *item,
                       struct sl_reason *reason)
{
    for (uint32_t i = 0; i < item->input_count; i++) {
        const char *name = item->inputs[i].name;
        uint32_t j = 0;
        while (j < info->input_count && strcmp(info->inputs[j].name, name) != 0) {
            j++;
        }
        if (j == info->input_count) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "`%s` is no input of the model, whose first input is `%s`", name,
                                  info->input_count > 0 ? info->inputs[0].name : "");
        }
        if (worker_batch_find(item, name) != &item->inputs[i]) {
            return sl_reason_fail(reason, SL_ERR_INVALID, "`%s` is there twice", name);
        }
    }
    return 0;
}

/* Type, and shape but for the number of rows. */
static int check_input(const struct sl_engine_tensor *wanted, const struct sl_serve_item *item,
                       struct sl_reason *reason)
{
    char is[256], expected[256];
    const struct sl_serve_tensor *tensor = worker_batch_find(item, wanted->name);
    describe(wanted->type, wanted->rank, wanted->shape, true, expected);
    if (tensor == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "`%s` is missing; expected: %s", wanted->name,
                              expected);
    }
    describe(tensor->type, tensor->rank, tensor->shape, false, is);
    if (tensor->type != wanted->type || tensor->rank != wanted->rank || tensor->rank == 0 ||
        memcmp(tensor->shape + 1, wanted->shape + 1,
               (tensor->rank - 1) * sizeof tensor->shape[0]) != 0 ||
        (wanted->shape[0] != 0 && tensor->shape[0] != wanted->shape[0])) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "`%s` is %s; expected: %s", wanted->name, is,
                              expected);
    }
    return 0;
}

int sl_serve_batch_check(const struct sl_engine_info *info, uint32_t rows_max,
                         struct sl_serve_item *item, struct sl_reason *reason)
{
    const uint32_t most = info->fixed_rows != 0 ? info->fixed_rows : rows_max;
    uint64_t rows = 0;
    int err = check_names(info, item, reason);
    for (uint32_t i = 0; err == 0 && i < info->input_count; i++) {
        const char *name = info->inputs[i].name;
        err = check_input(&info->inputs[i], item, reason);
        const uint64_t its = err == 0 ? worker_batch_find(item, name)->shape[0] : 0;
        rows = i == 0 ? its : rows;
        if (err == 0 && its != rows) {
            err = sl_reason_fail(reason, SL_ERR_INVALID,
                                 "`%s` has %" PRIu64 " rows, `%s` has %" PRIu64, name, its,
                                 info->inputs[0].name, rows);
        } else if (err == 0 && (rows == 0 || rows > most)) {
            err =
                sl_reason_fail(reason, SL_ERR_INVALID,
                               "`%s` has %" PRIu64 " rows; accepted are 1 to %u", name, rows, most);
        }
    }
    item->rows = err == 0 ? (uint32_t)rows : 0;
    return err;
}

void sl_serve_batch_take(struct sl_list *queue, const void *model,
                         const struct sl_engine_info *info, uint32_t rows_max,
                         struct sl_serve_batch *batch)
{
    const uint32_t most = info->fixed_rows != 0 ? info->fixed_rows : rows_max;
    bool is_full = false;
    batch->item_count = batch->rows = 0;
    SL_LIST_EACH (struct sl_serve_item, item, link, queue) {
        if (is_full || item->model != model || item->kind != SL_SERVE_INFER) {
            continue;
        }
        is_full = item->rows > most - batch->rows || (item->is_alone && batch->item_count > 0);
        if (!is_full) {
            sl_list_remove(&item->link);
            batch->items[batch->item_count++] = item;
            batch->rows += item->rows;
            is_full = item->is_alone;
        }
    }
}

uint64_t sl_serve_batch_output_bytes(const struct sl_engine_info *info, uint32_t rows)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < info->output_count; i++) {
        bytes += worker_batch_align(info->outputs[i].row_bytes * rows);
    }
    return bytes;
}

void sl_serve_batch_gather(const struct sl_engine_info *info, const struct sl_serve_batch *batch,
                           uint8_t *scratch)
{
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct sl_engine_tensor *input = &info->inputs[i];
        uint8_t *to = scratch + input->scratch_offset;
        for (uint32_t j = 0; j < batch->item_count; j++) {
            const struct sl_serve_tensor *from = worker_batch_find(batch->items[j], input->name);
            memcpy(to, batch->items[j]->input + from->offset, from->bytes);
            to += from->bytes;
        }
    }
}

void sl_serve_batch_scatter(const struct sl_engine_info *info, const struct sl_serve_batch *batch,
                            const uint8_t *scratch)
{
    uint32_t row = 0;
    for (uint32_t j = 0; j < batch->item_count; j++) {
        struct sl_serve_item *item = batch->items[j];
        uint64_t offset = 0;
        for (uint32_t i = 0; i < info->output_count; i++) {
            const struct sl_engine_tensor *from = &info->outputs[i];
            struct sl_serve_tensor *to = &item->outputs[i];
            *to = (struct sl_serve_tensor){.type = from->type,
                                           .rank = from->rank,
                                           .offset = offset,
                                           .bytes = from->row_bytes * item->rows};
            (void)snprintf(to->name, sizeof to->name, "%s", from->name);
            memcpy(to->shape, from->shape, sizeof to->shape);
            to->shape[0] = item->rows;
            memcpy(item->output + offset, scratch + from->scratch_offset + row * from->row_bytes,
                   to->bytes);
            offset += worker_batch_align(to->bytes);
        }
        item->output_count = info->output_count;
        row += item->rows;
    }
}

static json_t *list(const struct sl_engine_tensor *tensors, uint32_t count)
{
    json_t *made = json_array();
    for (uint32_t i = 0; i < count; i++) {
        json_t *shape = json_array();
        for (uint32_t j = 0; j < tensors[i].rank; j++) {
            const bool is_free = j == 0 && tensors[i].shape[0] == 0;
            (void)json_array_append_new(
                shape, json_integer(is_free ? -1 : (json_int_t)tensors[i].shape[j]));
        }
        (void)json_array_append_new(
            made, json_pack("{s:s, s:s*, s:o}", "name", tensors[i].name, "datatype",
                            sl_serve_request_datatype(tensors[i].type), "shape", shape));
    }
    return made;
}

size_t sl_serve_batch_describe(const struct sl_engine_info *info, uint32_t rows_max,
                               const char *model, uint64_t version, const char *engine, char *text,
                               size_t bytes)
{
    char number[24], platform[64];
    (void)snprintf(number, sizeof number, "%" PRIu64, version);
    (void)snprintf(platform, sizeof platform, "starling_%s", engine);
    json_t *all = json_pack("{s:s, s:[s], s:s, s:o, s:o, s:I}", "name", model, "versions", number,
                            "platform", platform, "inputs", list(info->inputs, info->input_count),
                            "outputs", list(info->outputs, info->output_count), "max_batch_size",
                            (json_int_t)(info->fixed_rows > 0 ? 0 : rows_max));
    char *made = json_dumps(all, JSON_COMPACT);
    const size_t length = made != NULL ? (size_t)snprintf(text, bytes, "%s", made) : 0;
    free(made);
    json_decref(all);
    return length;
}
