/* Rows that are stored in other precisions than f32: kernels see them as f32. A row is widened,
 * updated and narrowed in one visit. An update rounds randomly, by a hash of the row's key, the
 * column and the count of visits, so a backup and every SIMD variant get the same bits; all else
 * rounds to the nearest. Any thread. Nothing
 * allocates. */
#ifndef SL_PS_OPTIMIZER_NARROW_H
#define SL_PS_OPTIMIZER_NARROW_H

#include "ps/optimizer/optimizer.h"

/* Returns the layout of a table's rows. */
static inline struct sl_row_layout sl_narrow_layout(const struct sl_table_spec *spec,
                                                    const struct sl_optimizer *optimizer)
{
    return sl_row_layout_of(spec->values, spec->slots, spec->dim, optimizer->slots_per_value,
                            optimizer->slots_per_row);
}

/* Floats of a row with its slots, when it is widened. */
static inline uint32_t sl_narrow_floats(const struct sl_row_layout *layout)
{
    return layout->dim + layout->value_slots + layout->row_slots;
}

/* Writes the initializer's row of a key to row[dim], rounded as a table of these values has it.
 * dim: at most SL_LIMIT_DIM. */
void sl_narrow_first_row(const struct sl_initializer_spec *spec, enum sl_precision values,
                         uint64_t key, uint32_t dim, float *row);

/* Writes values and slots, which follow each other in `words` as in a record, to
 * floats[sl_narrow_floats]; and back, rounded to the nearest. */
void sl_narrow_read(const struct sl_row_layout *layout, const void *words, float *floats);
void sl_narrow_write(const struct sl_row_layout *layout, const float *floats, void *words);

/* As the optimizer's apply_rows, with what the table's update asks for (NULL: the optimizer alone).
 * wide: memory for sl_narrow_floats floats. */
void sl_narrow_apply_rows(const struct sl_row_layout *layout, const struct sl_update_spec *update,
                          const struct sl_optimizer *optimizer,
                          const struct sl_optimizer_visit *visit,
                          const struct sl_optimizer_rows *rows, float *wide);

/* Copies the values of the records to rows[count], rows of precision `as`, which need no alignment
 * unless that is F32. wide: dim floats. */
void sl_narrow_gather(const struct sl_row_layout *layout, struct sl_row *const *records,
                      uint32_t count, enum sl_precision as, void *rows, float *wide);

#endif
