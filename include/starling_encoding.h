/* Sets the precision in which values travel between this client and the servers: f32 unless an
 * encoding is set, for a table or for a step. The caller's arrays are f32 always. starling.h
 * includes this file. */
#ifndef STARLING_ENCODING_H
#define STARLING_ENCODING_H

#include "starling_table.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sl_step;

/* How the values of a table travel. */
struct sl_encoding_options {
    size_t struct_size;           /* SL_ENCODING_OPTIONS_INIT sets it, and F32 both ways */
    enum sl_precision pull, push; /* as in sl_step_set_encoding */
    /* Bytes in which this client keeps the rounding error of gradients: what is kept of a row or
     * element is added to its next gradient that travels narrowed. With this, gradients are rounded
     * to the nearest. What is kept is lost for rows of a step that fails. A row of a sparse table
     * needs 4 bytes a column and 10 more: when the memory is full, rows take the place of others,
     * whose error is lost. Dense tables need 4 bytes an element, else INVALID. 0: nothing is kept,
     * and gradients are rounded randomly. Not for KV tables. */
    uint64_t error_feedback_bytes;
};
#define SL_ENCODING_OPTIONS_INIT SL_STRUCT_INIT(struct sl_encoding_options)

/* Sets how the table's values travel in steps that begin after the call, of all threads. Rounding
 * errors kept so far are dropped. Errors: INVALID (struct_size; a precision that the kind of table
 * does not have; too few error_feedback_bytes), VERSION (a server does not know encodings),
 * NO_MEMORY. One thread at a time, while no step uses the table. */
SL_API int sl_table_set_encoding(struct sl_table *table, const struct sl_encoding_options *options);

/* Sets how f32 values travel for the operations that are added to this step after the call,
 * whatever their table: what pulls return, and what pushes carry (not assigns and finds). Pulls are
 * rounded to the nearest, gradients randomly, or to the nearest with error feedback. A step begins
 * with the encodings of the tables. Errors: INVALID (a number that is no precision); then the step
 * cannot be submitted. An operation that is added later fails
 * - with INVALID if its kind of table does not have the precision: INT8 is pulled from sparse
 * tables only, and KV tables need values of f32;
 * - with VERSION if a server does not know encodings.
 * sl_step_submit fails with INVALID, and sends nothing, if a gradient that travels as INT8 is not
 * finite. */
SL_API int sl_step_set_encoding(struct sl_step *step, enum sl_precision pull,
                                enum sl_precision push);

#ifdef __cplusplus
}
#endif

#endif
