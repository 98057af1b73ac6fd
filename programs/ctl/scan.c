/* Scan: all rows of a table, printed or written into a file of tensors. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/ckpt/tensor_writer.h"
#include "programs/ctl/ctl.h"

/* Rows for the file, whose head has their number. */
struct rows {
    uint64_t count, room;
    uint32_t width;
    uint64_t *keys;
    float *values;
    uint64_t *last_steps, *counts;
};

static bool grow(void **array, uint64_t room, size_t bytes)
{
    void *grown = realloc(*array, room * bytes);
    *array = grown != NULL ? grown : *array;
    return grown != NULL;
}

static bool keep(struct rows *rows, const struct sl_scan_batch *batch, uint32_t count)
{
    const uint64_t room = rows->count + count > rows->room ? 2 * (rows->count + count) : rows->room;
    if (room > rows->room &&
        !(grow((void **)&rows->keys, room, sizeof *rows->keys) &&
          grow((void **)&rows->values, room, batch->width * sizeof *rows->values) &&
          grow((void **)&rows->last_steps, room, sizeof *rows->last_steps) &&
          grow((void **)&rows->counts, room, sizeof *rows->counts))) {
        return false;
    }
    rows->room = room;
    rows->width = batch->width;
    memcpy(rows->keys + rows->count, batch->keys, count * sizeof *batch->keys);
    memcpy(rows->values + rows->count * batch->width, batch->values,
           (size_t)count * batch->width * sizeof *batch->values);
    for (uint32_t i = 0; i < count; i++) {
        rows->last_steps[rows->count + i] = batch->marks[i].last_step;
        rows->counts[rows->count + i] = batch->marks[i].count;
    }
    rows->count += count;
    return true;
}

static void print_row(const struct sl_ctl *ctl, const struct sl_scan_batch *batch, uint32_t i)
{
    const float *values = batch->values + (size_t)i * batch->width;
    (void)printf(ctl->flags.json ? "{\"key\":\"%" PRIu64
                                   "\",\"shard\":%u,\"last_step\":%u,\"count\":%u,\"values\":["
                                 : "%" PRIu64 "  shard %u  last_step %u  count %u  ",
                 batch->keys[i], batch->shard, batch->marks[i].last_step, batch->marks[i].count);
    for (uint32_t v = 0; v < batch->width; v++) {
        const char *separator = v == 0 ? "" : ctl->flags.json ? "," : " ";
        if (ctl->flags.json && !isfinite(values[v])) {
            (void)printf("%snull", separator);
        } else {
            (void)printf("%s%.9g", separator, (double)values[v]);
        }
    }
    (void)puts(ctl->flags.json ? "]}" : "");
}

static int write_file(struct sl_ctl *ctl, const struct rows *rows)
{
    const struct {
        struct sl_tensor tensor;
        const void *from;
    } parts[] = {
        {{.name = "keys", .type = SL_TENSOR_U64, .rank = 1, .shape = {rows->count}}, rows->keys},
        {{.name = "rows", .type = SL_TENSOR_F32, .rank = 2, .shape = {rows->count, rows->width}},
         rows->values},
        {{.name = "last_step", .type = SL_TENSOR_U64, .rank = 1, .shape = {rows->count}},
         rows->last_steps},
        {{.name = "count", .type = SL_TENSOR_U64, .rank = 1, .shape = {rows->count}}, rows->counts},
    };
    enum { PARTS = sizeof parts / sizeof parts[0] };
    struct sl_tensors tensors = {0};
    struct sl_tensor_writer *writer = NULL;
    enum sl_tensor_writer_format format;
    int err = 0;
    (void)sl_tensor_writer_format_of(ctl->flags.out, &format);
    for (uint32_t i = 0; err == 0 && i < PARTS; i++) {
        err = sl_tensor_add(&tensors, &parts[i].tensor, &ctl->reason);
    }
    err = err != 0 ? err
                   : sl_tensor_writer_create(ctl->flags.out, format, ctl->flags.replace, &tensors,
                                             NULL, &writer, &ctl->reason);
    for (uint32_t i = 0; err == 0 && i < PARTS; i++) {
        err = sl_tensor_writer_write(writer, i, 0, parts[i].from, tensors.items[i].bytes,
                                     &ctl->reason);
    }
    err = err != 0 ? err : sl_tensor_writer_finish(&writer, &ctl->reason);
    sl_tensor_writer_abandon(&writer);
    sl_tensor_fini(&tensors);
    return err;
}

/* Takes the rows of all batches, up to the limit. */
static int take_rows(struct sl_ctl *ctl, struct sl_scan *scan, struct rows *rows)
{
    const uint64_t most = ctl->flags.limit == 0 ? UINT64_MAX : ctl->flags.limit;
    uint64_t taken = 0;
    struct sl_scan_batch batch;
    while (taken < most) {
        const int err = sl_scan_next(scan, &batch);
        if (err != 0) {
            return sl_ctl_failed(ctl, err);
        }
        const uint32_t count =
            batch.row_count < most - taken ? batch.row_count : (uint32_t)(most - taken);
        if (count == 0) {
            return 0;
        }
        if (ctl->flags.out != NULL && !keep(rows, &batch, count)) {
            return sl_reason_fail(&ctl->reason, SL_ERR_NO_MEMORY,
                                  "no memory for more than %" PRIu64 " rows: give --limit",
                                  rows->count);
        }
        for (uint32_t i = 0; ctl->flags.out == NULL && i < count; i++) {
            print_row(ctl, &batch, i);
        }
        taken += count;
    }
    return 0;
}

int sl_ctl_scan(struct sl_ctl *ctl, json_t **out)
{
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_scan *scan = NULL;
    enum sl_tensor_writer_format format;
    if (ctl->flags.out != NULL && !sl_tensor_writer_format_of(ctl->flags.out, &format)) {
        return sl_reason_fail(&ctl->reason, SL_ERR_INVALID,
                              "--out=%.200s: accepted are .safetensors and .npz", ctl->flags.out);
    }
    int err = sl_ctl_open_table(ctl, &table, &spec);
    if (err != 0) {
        return err;
    }
    struct rows rows = {.width = spec.dim};
    const struct sl_scan_options options = {.struct_size = sizeof options,
                                            .timeout_ms = sl_ctl_time_left_ms(ctl),
                                            .since = ctl->flags.since};
    err = sl_scan_open(ctl->client, table, &options, &scan);
    err = err != 0 ? sl_ctl_failed(ctl, err) : take_rows(ctl, scan, &rows);
    sl_scan_close(&scan);
    if (err == 0 && ctl->flags.out != NULL) {
        err = write_file(ctl, &rows);
        *out = err == 0
                   ? json_pack("{s:I, s:s}", "rows", (json_int_t)rows.count, "file", ctl->flags.out)
                   : NULL;
    }
    free(rows.keys);
    free(rows.values);
    free(rows.last_steps);
    free(rows.counts);
    return err;
}
