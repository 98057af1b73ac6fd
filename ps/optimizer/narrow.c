#include "ps/optimizer/narrow.h"

#include <string.h>

#include "core/hash.h"
#include "core/limits.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/update.h"

#define CACHE_LINE     64
#define AHEAD          16  /* records */
#define PREFETCH_BYTES 512 /* of a record; the processor prefetches the rest of a longer one */

static const struct sl_precision_kernels *kernels_best(void)
{
    return sl_precision_kernels(SL_PRECISION_SIMD_BEST);
}

void sl_narrow_first_row(const struct sl_initializer_spec *spec, enum sl_precision values,
                         uint64_t key, uint32_t dim, float *row)
{
    float narrow[SL_LIMIT_DIM + 1]; /* INT8: a scale */
    sl_initializer_fill(spec, key, 0, dim, row);
    if (values != SL_PRECISION_F32) {
        kernels_best()->narrow(values, row, dim, narrow);
        kernels_best()->widen(values, narrow, dim, row);
    }
}

void sl_narrow_read(const struct sl_row_layout *layout, const void *words, float *floats)
{
    const struct sl_precision_kernels *kernels = kernels_best();
    const uint8_t *from = words;
    kernels->widen(layout->values, from, layout->dim, floats);
    kernels->widen(layout->slots, from + layout->slots_at, layout->value_slots,
                   floats + layout->dim);
    memcpy(floats + layout->dim + layout->value_slots, from + layout->row_slots_at,
           layout->row_slots * sizeof *floats);
}

/* Zeroes what pads a part to a multiple of 4 bytes. */
static void narrow_pad(uint8_t *part, size_t bytes)
{
    memset(part + bytes, 0, sl_row_padded(bytes) - bytes);
}

void sl_narrow_write(const struct sl_row_layout *layout, const float *floats, void *words)
{
    const struct sl_precision_kernels *kernels = kernels_best();
    uint8_t *to = words;
    kernels->narrow(layout->values, floats, layout->dim, to);
    narrow_pad(to, sl_precision_row_bytes(layout->values, layout->dim));
    kernels->narrow(layout->slots, floats + layout->dim, layout->value_slots,
                    to + layout->slots_at);
    narrow_pad(to + layout->slots_at, sl_precision_row_bytes(layout->slots, layout->value_slots));
    memcpy(to + layout->row_slots_at, floats + layout->dim + layout->value_slots,
           layout->row_slots * sizeof *floats);
}

/* Always inline: GCC removes calls of functions that only prefetch. */
static inline __attribute__((always_inline)) void narrow_fetch(const struct sl_row *record,
                                                               size_t bytes)
{
    const char *at = (const char *)record;
    for (size_t line = 0; line < bytes; line += CACHE_LINE) {
        __builtin_prefetch(at + line, 1);
    }
    __builtin_prefetch(at + bytes - 1, 1);
}

/* Prefetches the first lines of the AHEAD records from `first` on. In a tight loop their page walks
 * overlap: the update of a row has so many instructions that each would be waited for. */
static inline __attribute__((always_inline)) void narrow_find(struct sl_row *const *records,
                                                              uint32_t count, uint32_t first)
{
    for (uint32_t i = first; i < count && i < first + AHEAD; i++) {
        __builtin_prefetch(records[i], 1);
    }
}

static size_t narrow_fetch_bytes(size_t bytes)
{
    return bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
}

void sl_narrow_apply_rows(const struct sl_row_layout *layout, const struct sl_update_spec *update,
                          const struct sl_optimizer *optimizer,
                          const struct sl_optimizer_visit *visit,
                          const struct sl_optimizer_rows *rows, float *wide)
{
    const struct sl_precision_kernels *kernels = kernels_best();
    const struct sl_row_layout at = *layout;
    const size_t bytes = narrow_fetch_bytes(sizeof(struct sl_row) + at.words * sizeof(uint32_t));
    const bool has_narrow_slots = at.slots != SL_PRECISION_F32 && at.value_slots > 0;
    struct sl_optimizer_visit one = *visit;
    one.dim = one.slot_stride = at.dim;
    for (uint32_t i = 0; i < rows->count; i++) {
        struct sl_row *record = rows->records[i];
        if (i % AHEAD == 0) {
            narrow_find(rows->records, rows->count, i + AHEAD);
        }
        if (rows->count - i > AHEAD) {
            narrow_fetch(rows->records[i + AHEAD], bytes);
        }
        uint8_t *words = (uint8_t *)record->values;
        float *slots = has_narrow_slots ? wide + at.dim : (float *)(void *)(words + at.slots_at);
        float *own = (float *)(void *)(words + at.row_slots_at);
        const float *gradients = rows->gradients + (size_t)i * at.dim;
        const uint64_t seed = sl_hash_key(record->key ^ sl_hash_key(record->count));
        one.count = record->count;
        record->last_step = (uint32_t)one.step;
        record->count = one.count + (one.count < SL_ROW_COUNT_MAX);
        kernels->widen(at.values, words, at.dim, wide);
        if (has_narrow_slots) {
            kernels->widen(at.slots, words + at.slots_at, at.value_slots, slots);
        }
        if (update == NULL) {
            optimizer->apply(&one, wide, slots, own, gradients);
        } else {
            sl_update_apply(update, optimizer, &one, wide, slots, own, gradients);
        }
        kernels->narrow_random(at.values, wide, at.dim, seed, words);
        if (has_narrow_slots) {
            kernels->narrow_random(at.slots, slots, at.value_slots, ~seed, words + at.slots_at);
        }
    }
}

void sl_narrow_gather(const struct sl_row_layout *layout, struct sl_row *const *records,
                      uint32_t count, enum sl_precision as, void *rows, float *wide)
{
    const struct sl_precision_kernels *kernels = kernels_best();
    const size_t stored_bytes = sl_precision_row_bytes(layout->values, layout->dim);
    const size_t row_bytes = sl_precision_row_bytes(as, layout->dim);
    const size_t bytes = narrow_fetch_bytes(sizeof(struct sl_row) + stored_bytes);
    uint8_t *to = rows;
    for (uint32_t i = 0; i < count; i++, to += row_bytes) {
        if (count - i > AHEAD) {
            narrow_fetch(records[i + AHEAD], bytes);
        }
        const float *values = records[i]->values;
        if (as == layout->values) {
            memcpy(to, values, row_bytes);
        } else if (as == SL_PRECISION_F32 && (uintptr_t)to % sizeof(float) == 0) {
            kernels->widen(layout->values, values, layout->dim, (float *)(void *)to);
        } else if (layout->values == SL_PRECISION_F32) {
            kernels->narrow(as, values, layout->dim, to);
        } else {
            kernels->widen(layout->values, values, layout->dim, wide);
            kernels->narrow(as, wide, layout->dim, to);
        }
    }
}
