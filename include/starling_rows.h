/* Rows of sparse tables beside pull and push: which keys have a row. docs/embeddings.md shows the
 * use. Servers older than these calls get none of them: VERSION.
 *
 * Functions return 0 or a negative enum sl_err; sl_last_error has the reason of a failure. Outputs
 * are written only on success. */
#ifndef STARLING_ROWS_H
#define STARLING_ROWS_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds to the step a pull that also tells which keys have a row. rows[key_count][dim]: as of
 * sl_step_pull; the row of a key without one is the initializer's. found[key_count]: 1 for a key
 * with a row, else 0. No row is created, and no visit is counted. It waits for clocks as a pull
 * does. The arrays are the caller's, unchanged until the step is complete. The step's thread.
 * Errors: INVALID (not a sparse table of this client; keys, rows or found NULL), NO_MEMORY,
 * VERSION (a server is too old). */
SL_API int sl_step_find(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, float *rows, uint8_t *found);

#ifdef __cplusplus
}
#endif

#endif
