/* An update applies what a table's struct sl_update_spec asks for around the optimizer's kernel:
 * clipped gradients, decay, bounded values. Tables that ask for nothing call the kernel directly.
 * The bits do not depend on the SIMD variant. Any thread. Nothing allocates. */
#ifndef SL_PS_OPTIMIZER_UPDATE_H
#define SL_PS_OPTIMIZER_UPDATE_H

#include "ps/optimizer/optimizer.h"

/* Returns whether the specification asks for anything. */
bool sl_update_is_asked(const struct sl_update_spec *update);

/* As the optimizer's apply and apply_rows. visit->dim: at most SL_LIMIT_DIM. */
void sl_update_apply(const struct sl_update_spec *update, const struct sl_optimizer *optimizer,
                     const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                     float *restrict r, const float *restrict g);
void sl_update_apply_rows(const struct sl_update_spec *update, const struct sl_optimizer *optimizer,
                          const struct sl_optimizer_visit *visit,
                          const struct sl_optimizer_rows *rows);

#endif
