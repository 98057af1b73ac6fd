/* In which precision the values of tables travel between this client and the servers: f32 unless an
 * encoding is set, for a table or for a step. The caller's arrays are f32 always. starling.h
 * includes this file. */
#ifndef STARLING_ENCODING_H
#define STARLING_ENCODING_H

#include "starling_table.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sl_step;

/* The precision in which values of a table travel, and what is kept of rounding. */
struct sl_encoding_options {
    size_t struct_size;           /* SL_ENCODING_OPTIONS_INIT sets it */
    enum sl_precision pull, push; /* as in sl_step_set_encoding */
    /* Memory at this client for what rounding took from the gradients of each row or element: it is
     * added to the next gradient, and gradients are rounded to the nearest. Rows beyond the memory
     * lose what they had, and so do those of a step that fails. Dense tables need 4 bytes an
     * element, sparse ones 4 * dim + 10 a row. 0: none, and gradients are rounded randomly. Not for
     * KV tables. */
    uint64_t error_feedback_bytes;
};
#define SL_ENCODING_OPTIONS_INIT SL_STRUCT_INIT(struct sl_encoding_options)

/* Sets how the table's values travel, for steps that begin after the call, on any thread. Until
 * then: f32. What an earlier call kept of rounding is lost. Errors: INVALID (struct_size; a
 * precision that the kind of table does not have; too few error_feedback_bytes), VERSION (a server
 * does not know encodings), NO_MEMORY. One thread, while no step uses the table.
 */
SL_API int sl_table_set_encoding(struct sl_table *table, const struct sl_encoding_options *options);

/* Sets the precision in which f32 values travel, of the operations that are added to the step after
 * this call: what pulls return, and what pushes carry (not assigns and finds). The caller's arrays
 * stay f32. Gradients are rounded randomly, pulls to the nearest. A step begins with the encodings
 * of the tables (sl_table_set_encoding). Errors: INVALID, and then the step cannot be submitted. An
 * operation returns INVALID if its kind of table does not have the precision: INT8 is pulled from
 * sparse tables only, and KV tables need values of f32; VERSION if a server does not know
 * encodings. Submitting returns INVALID, and sends nothing, if a gradient that travels as INT8 is
 * not finite. */
SL_API int sl_step_set_encoding(struct sl_step *step, enum sl_precision pull,
                                enum sl_precision push);

#ifdef __cplusplus
}
#endif

#endif
