/* What rounding took from the gradients of one table that this client has pushed: a remainder for
 * each value, which is added to the next gradient of the value (error feedback; Seide et al., 1-bit
 * stochastic gradient descent, 2014). A sparse table has a cache of rows in sets of four: a new row
 * takes the place of the oldest of its set, whose remainder is lost. Any thread: a lock for each
 * row or range. Allocates only when it is created; a cache's pages are used as rows come. */
#ifndef SL_WORKER_CLIENT_ERROR_FEEDBACK_H
#define SL_WORKER_CLIENT_ERROR_FEEDBACK_H

#include <starling_table.h>
#include <stdint.h>

struct sl_error_feedback;

/* Least memory for a table: one set of rows, or all elements. */
uint64_t sl_error_feedback_bytes_min(const struct sl_table_spec *spec);

/* spec: of a sparse or dense table. bytes: at least bytes_min, else asserted. Errors: NO_MEMORY. */
int sl_error_feedback_create(const struct sl_table_spec *spec, uint64_t bytes,
                             struct sl_error_feedback **out);

/* Sets *feedback to NULL; accepts NULL. */
void sl_error_feedback_destroy(struct sl_error_feedback **feedback);

/* Writes gradients[dim] of the key, with its remainder, to `to`: rounded to the nearest. */
void sl_error_feedback_narrow_row(struct sl_error_feedback *feedback, enum sl_precision precision,
                                  uint64_t key, const float *gradients, void *to);

/* The same for elements [start, start + count) of a dense table, as an array. */
void sl_error_feedback_narrow_range(struct sl_error_feedback *feedback, enum sl_precision precision,
                                    uint64_t start, uint64_t count, const float *gradients,
                                    void *to);

#endif
