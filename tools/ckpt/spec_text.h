/* What a table is besides its values, as one line of text: "optimizer=adagrad,lr=0.1,...". Exports
 * carry it; an import takes it, and what the user says. The words, in this order where several are
 * given: optimizer and its parameters by their names in starling.h; initializer (zeros, constant,
 * uniform, normal, truncated_normal), a, b, seed; consistency (asp, bsp, ssp), staleness, workers;
 * step, beta1_power, beta2_power (what the optimizer has counted). Pure; any thread. */
#ifndef SL_TOOLS_CKPT_SPEC_TEXT_H
#define SL_TOOLS_CKPT_SPEC_TEXT_H

#include "ps/snapshot/block.h"

#define SL_SPEC_TEXT_BYTES 1024

/* Every word, exactly: reading it gives the same bits. */
void sl_spec_text_write(const struct sl_snapshot_table *table, char text[SL_SPEC_TEXT_BYTES]);

/* SGD with its defaults, zeros, ASP, nothing counted; name, kind, dim and length are the caller's.
 */
void sl_spec_text_init(struct sl_snapshot_table *table);

/* Sets what the text says. "optimizer" sets all its parameters to their defaults first. Errors:
 * INVALID; the reason names the word and what is accepted. */
int sl_spec_text_read(const char *text, struct sl_snapshot_table *table, char *reason,
                      size_t reason_bytes);

#endif
