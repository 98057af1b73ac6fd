/* Rows of sparse tables: pull, find, push, push_pull, assign. */
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "worker/client/encoder.h"
#include "worker/client/error_feedback.h"

uint64_t sl_encode_rows_bytes(const struct sl_operation *operation, uint64_t count)
{
    uint64_t row_bytes = sl_precision_row_bytes(operation->push, operation->table->spec.dim);
    return SL_ENCODER_SECTION_BYTES + count * sizeof(uint64_t) +
           (sl_encoder_pushes(operation) ? sl_bytes_pad8(count * row_bytes) : 0);
}

uint64_t sl_encode_rows_reply_bytes(const struct sl_operation *operation, uint64_t count)
{
    return sl_bytes_pad8(count *
                         sl_precision_row_bytes(operation->pull, operation->table->spec.dim)) +
           (operation->op == SL_REQUEST_FIND ? sl_bytes_pad8(count) : 0);
}

/* Returns how many of `wanted` rows fit into the open request, or else into a new one. */
static uint32_t rows_that_fit(const struct sl_encoder *encoder,
                              const struct sl_operation *operation, uint32_t wanted)
{
    const uint32_t dim = operation->table->spec.dim;
    const uint64_t sent_bytes = sl_precision_row_bytes(operation->push, dim);
    const uint64_t row_bytes = sl_precision_row_bytes(operation->pull, dim);
    uint64_t fit = wanted;
    uint64_t room = sl_encoder_section_room(encoder);
    uint64_t each_at_most = sizeof(uint64_t) + sent_bytes;
    if (SL_ENCODER_SECTION_BYTES + 8 + wanted * each_at_most <= room &&
        16 + wanted * (row_bytes + 1) <= sl_encoder_reply_room(encoder)) {
        return wanted;
    }
    if (sl_encode_rows_bytes(operation, wanted) > room) {
        uint64_t overhead = SL_ENCODER_SECTION_BYTES + 8;
        uint64_t each = sizeof(uint64_t) + (sl_encoder_pushes(operation) ? sent_bytes : 0);
        fit = room < overhead ? 0 : (room - overhead) / each;
    }
    if (sl_encoder_pulls(operation) &&
        sl_encode_rows_reply_bytes(operation, fit) > sl_encoder_reply_room(encoder)) {
        const bool finds = operation->op == SL_REQUEST_FIND;
        const uint64_t replies = sl_encoder_reply_room(encoder) & ~(uint64_t)7;
        fit = !finds ? replies / row_bytes : replies < 16 ? 0 : (replies - 16) / (row_bytes + 1);
    }
    return fit < wanted ? (uint32_t)fit : wanted;
}

/* Returns how many of `wanted` rows the next section takes. Closes the open request if they do not
 * all fit. */
static uint32_t rows_for_section(struct sl_encoder *encoder, const struct sl_operation *operation,
                                 uint32_t wanted)
{
    uint32_t fit = rows_that_fit(encoder, operation, wanted);
    if (fit < wanted && encoder->request != NULL) {
        sl_encoder_close(encoder);
        fit = rows_that_fit(encoder, operation, wanted);
    }
    sl_assert(fit > 0);
    return fit;
}

static int encode_rows_make_room(struct sl_encoder *encoder, const struct sl_operation *operation,
                                 uint32_t wanted)
{
    return encoder->request != NULL
               ? 0
               : sl_encoder_open(encoder, sl_encode_rows_bytes(operation, wanted));
}

/* Writes gradients as a row of the message. index: of the key in the caller's array, where it is
 * first; the random numbers are a function of it and of the operation's seed. */
static void narrow_row(const struct sl_operation *operation, uint64_t key, uint32_t index,
                       const float *gradients, void *to)
{
    if (operation->table->feedback != NULL) {
        sl_error_feedback_narrow_row(operation->table->feedback, operation->push, key, gradients,
                                     to);
        return;
    }
    sl_precision_kernels(SL_PRECISION_SIMD_BEST)
        ->narrow_random(operation->push, gradients, operation->table->spec.dim,
                        sl_hash_key(operation->seed + index), to);
}

static void narrow_gradients(uint8_t *to, const struct sl_operation *operation,
                             const struct sl_encoder_rows *rows)
{
    const float *gradients = operation->gradients;
    const uint32_t dim = operation->table->spec.dim;
    const size_t row_bytes = sl_precision_row_bytes(operation->push, dim);
    for (uint32_t i = 0; i < rows->count; i++) {
        const uint32_t index = rows->labels == NULL ? rows->first_label + i : rows->labels[i];
        narrow_row(operation, rows->keys[i], index, gradients + (size_t)index * dim,
                   to + i * row_bytes);
    }
}

static void copy_gradients(float *to, const struct sl_operation *operation,
                           const struct sl_encoder_rows *rows)
{
    const float *gradients = operation->gradients;
    uint32_t dim = operation->table->spec.dim;
    if (operation->push != SL_PRECISION_F32) {
        narrow_gradients((uint8_t *)to, operation, rows);
        return;
    }
    if (rows->labels == NULL) {
        memcpy(to, gradients + (size_t)rows->first_label * dim,
               (size_t)rows->count * dim * sizeof *to);
        return;
    }
    for (uint32_t i = 0; i < rows->count; i++) {
        memcpy(to + (size_t)i * dim, gradients + (size_t)rows->labels[i] * dim, dim * sizeof *to);
    }
}

/* Adds the array of a reply for which `to` has row_bytes for each row. */
static int add_read(struct sl_encoder *encoder, const struct sl_encoder_rows *rows,
                    enum sl_precision precision, void *to, uint32_t row_bytes)
{
    const size_t first = rows->labels == NULL ? rows->first_label : 0;
    return sl_encoder_add_read(encoder, (struct sl_read){.to = (uint8_t *)to + first * row_bytes,
                                                         .places = rows->labels,
                                                         .row_count = rows->count,
                                                         .place_count = rows->count,
                                                         .row_bytes = row_bytes,
                                                         .precision = precision});
}

static int put_rows(struct sl_encoder *encoder, const struct sl_operation *operation,
                    const struct sl_encoder_rows *rows)
{
    uint32_t dim = operation->table->spec.dim;
    sl_encoder_put_section(encoder, operation,
                           (struct sl_request_section){.key_count = rows->count});
    sl_bytes_put(&encoder->writer, rows->keys, rows->count * sizeof(uint64_t));
    if (sl_encoder_pushes(operation)) {
        float *to = sl_encoder_put_array(encoder, (uint64_t)rows->count *
                                                      sl_precision_row_bytes(operation->push, dim));
        copy_gradients(to, operation, rows);
    }
    if (!sl_encoder_pulls(operation)) {
        return 0;
    }
    const int err =
        add_read(encoder, rows, operation->pull, operation->values, dim * (uint32_t)sizeof(float));
    return err != 0 || operation->found == NULL
               ? err
               : add_read(encoder, rows, SL_PRECISION_F32, operation->found, 1);
}

/* A push that is split: equal keys are grouped into one row */

/* End of the run of equal keys that starts at `first`. */
static uint32_t run_end(const struct sl_encoder_rows *rows, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < rows->count && rows->keys[end] == rows->keys[first]) {
        end++;
    }
    return end;
}

static uint32_t count_runs(const struct sl_encoder_rows *rows)
{
    uint32_t runs = 0;
    for (uint32_t i = 0; i < rows->count; i = run_end(rows, i)) {
        runs++;
    }
    return runs;
}

/* Sums the rows of equal keys; of an assign the last one counts. */
static void sum_gradients(float *restrict sum, const struct sl_operation *operation,
                          const uint32_t *labels, uint32_t count)
{
    const float *gradients = operation->gradients;
    uint32_t dim = operation->table->spec.dim;
    const uint32_t first = operation->op == SL_REQUEST_ASSIGN ? count - 1 : 0;
    memcpy(sum, gradients + (size_t)labels[first] * dim, dim * sizeof *sum);
    for (uint32_t i = first + 1; i < count; i++) {
        const float *gradient = gradients + (size_t)labels[i] * dim;
        for (uint32_t column = 0; column < dim; column++) {
            sum[column] += gradient[column];
        }
    }
}

/* Writes the first `run_count` runs of `rows` as one section; *taken: keys of these runs. */
static int put_grouped(struct sl_encoder *encoder, const struct sl_operation *operation,
                       const struct sl_encoder_rows *rows, uint32_t run_count, uint32_t *taken)
{
    uint32_t dim = operation->table->spec.dim;
    sl_encoder_put_section(encoder, operation, (struct sl_request_section){.key_count = run_count});
    uint64_t *keys = sl_encoder_put_array(encoder, run_count * sizeof *keys);
    const bool is_narrow = operation->push != SL_PRECISION_F32;
    const size_t row_bytes = sl_precision_row_bytes(operation->push, dim);
    uint8_t *to = sl_encoder_put_array(encoder, run_count * row_bytes);
    float wide[SL_LIMIT_DIM];
    uint32_t at = 0;
    for (uint32_t run = 0; run < run_count; run++) {
        uint32_t end = run_end(rows, at);
        keys[run] = rows->keys[at];
        float *sum = is_narrow ? wide : (float *)(void *)(to + run * row_bytes);
        sum_gradients(sum, operation, rows->labels + at, end - at);
        if (is_narrow) {
            narrow_row(operation, keys[run], rows->labels[at], sum, to + run * row_bytes);
        }
        at = end;
    }
    *taken = at;
    if (!sl_encoder_pulls(operation)) {
        return 0;
    }
    return sl_encoder_add_read(encoder, (struct sl_read){.to = operation->values,
                                                         .places = rows->labels,
                                                         .grouped = rows->keys,
                                                         .row_count = run_count,
                                                         .place_count = at,
                                                         .row_bytes = dim * (uint32_t)sizeof(float),
                                                         .precision = operation->pull});
}

static int encode_grouped(struct sl_encoder *encoder, const struct sl_operation *operation,
                          const struct sl_encoder_rows *cut)
{
    struct sl_encoder_rows rows = {.count = cut->count};
    int err = sl_route_group(encoder->plan->notes, cut->keys, cut->labels, cut->first_label,
                             cut->count, &rows.keys, &rows.labels);
    uint32_t runs = err == 0 ? count_runs(&rows) : 0;
    while (err == 0 && runs > 0) {
        uint32_t fit = rows_for_section(encoder, operation, runs), taken;
        err = encode_rows_make_room(encoder, operation, runs);
        if (err != 0 || (err = put_grouped(encoder, operation, &rows, fit, &taken)) != 0) {
            break;
        }
        runs -= fit;
        rows.keys += taken;
        rows.labels += taken;
        rows.count -= taken;
    }
    return err;
}

int sl_encode_rows(struct sl_encoder *encoder, const struct sl_operation *operation,
                   struct sl_encoder_rows rows)
{
    while (rows.count > 0) {
        uint32_t fit = rows_for_section(encoder, operation, rows.count);
        if (fit < rows.count && sl_encoder_pushes(operation)) {
            return encode_grouped(encoder, operation, &rows);
        }
        struct sl_encoder_rows piece = rows;
        piece.count = fit;
        int err = encode_rows_make_room(encoder, operation, rows.count);
        if (err != 0 || (err = put_rows(encoder, operation, &piece)) != 0) {
            return err;
        }
        rows.keys += fit;
        rows.labels = rows.labels == NULL ? NULL : rows.labels + fit;
        rows.first_label += fit;
        rows.count -= fit;
    }
    return 0;
}
