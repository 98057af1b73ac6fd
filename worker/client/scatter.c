#include "worker/client/scatter.h"

#include <string.h>

#include "core/assert.h"

static void scatter_rows(const struct sl_read *read, const uint8_t *rows)
{
    uint8_t *to = read->to;
    size_t row_bytes = read->row_bytes;
    for (uint32_t i = 0; i < read->row_count; i++) {
        memcpy(to + read->places[i] * row_bytes, rows + i * row_bytes, row_bytes);
    }
}

/* Copies each row to all places of its run of equal keys. */
static void scatter_grouped(const struct sl_read *read, const uint8_t *rows)
{
    uint8_t *to = read->to;
    size_t row_bytes = read->row_bytes;
    const uint8_t *row = rows;
    for (uint32_t i = 0; i < read->place_count; i++) {
        if (i > 0 && read->grouped[i] != read->grouped[i - 1]) {
            row += row_bytes;
        }
        memcpy(to + read->places[i] * row_bytes, row, row_bytes);
    }
}

static void scatter_widened(const struct sl_read *read, const uint8_t *rows)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    const uint32_t dim = read->row_bytes / (uint32_t)sizeof(float);
    const size_t row_bytes = sl_precision_row_bytes(read->precision, dim);
    const uint32_t count = read->grouped != NULL ? read->place_count : read->row_count;
    float *to = read->to;
    if (read->places == NULL && read->precision != SL_PRECISION_INT8) {
        kernels->widen(read->precision, rows, count * dim, to);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const bool is_next =
            i > 0 && (read->grouped == NULL || read->grouped[i] != read->grouped[i - 1]);
        rows += is_next ? row_bytes : 0;
        const size_t place = read->places == NULL ? i : read->places[i];
        kernels->widen(read->precision, rows, dim, to + place * dim);
    }
}

void sl_scatter_reply(const struct sl_request *request, const uint8_t *payload)
{
    struct sl_bytes cursor = sl_bytes_over(payload, request->reply_bytes);
    for (const struct sl_read *read = request->first_read; read != NULL; read = read->next) {
        const size_t bytes = sl_read_bytes(read);
        const void *rows = sl_bytes_take(&cursor, (size_t)sl_bytes_pad8(bytes));
        sl_assert(rows != NULL);
        if (read->precision != SL_PRECISION_F32) {
            scatter_widened(read, rows);
        } else if (read->grouped != NULL) {
            scatter_grouped(read, rows);
        } else if (read->places != NULL) {
            scatter_rows(read, rows);
        } else {
            memcpy(read->to, rows, bytes);
        }
    }
}

static void divide_by_bag_sizes(const struct sl_operation *operation)
{
    float *values = operation->values;
    uint32_t dim = operation->table->spec.dim;
    uint32_t first = 0;
    for (uint32_t bag = 0; bag < operation->bag_count; bag++) {
        uint32_t key_count = operation->bag_ends[bag] - first;
        first = operation->bag_ends[bag];
        float *sum = values + (size_t)bag * dim;
        for (uint32_t column = 0; key_count > 1 && column < dim; column++) {
            sum[column] /= (float)key_count;
        }
    }
}

void sl_scatter_pool(const struct sl_operation *operation)
{
    float *values = operation->values;
    uint32_t dim = operation->table->spec.dim;
    if (operation->bag_count == 0) {
        return;
    }
    memset(values, 0, (size_t)operation->bag_count * dim * sizeof(float));
    const struct sl_partial *partial = operation->first_partial;
    for (; partial != NULL; partial = partial->next) {
        for (uint32_t i = 0; i < partial->bag_count; i++) {
            float *restrict sum = values + (size_t)partial->bags[i] * dim;
            const float *restrict more = partial->sums + (size_t)i * dim;
            for (uint32_t column = 0; column < dim; column++) {
                sum[column] += more[column];
            }
        }
    }
    if (operation->pooling == SL_POOLING_MEAN) {
        divide_by_bag_sizes(operation);
    }
}
