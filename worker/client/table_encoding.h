/* The precisions in which values travel: what the caller has set for a table or a step, and what of
 * it an operation has. The step's thread. */
#ifndef SL_WORKER_CLIENT_TABLE_ENCODING_H
#define SL_WORKER_CLIENT_TABLE_ENCODING_H

#include "worker/client/step_internal.h"

/* Reports INVALID if an encoding has a number that is no precision. what: begins the text. */
int sl_table_encoding_check_known(const char *what, const struct sl_encoding *encoding);

/* Sets the precisions of an operation that is added to the step, and its seed. Errors: INVALID,
 * VERSION; reported. */
int sl_table_encoding_apply(struct sl_step *step, const struct sl_encoding *encoding,
                            struct sl_operation *operation);

/* Returns INVALID, reported, if gradients that the step sends as INT8 are not finite. */
int sl_table_encoding_check_finite(const struct sl_step *step);

#endif
