/* Table properties as text: "optimizer=adagrad,lr=0.1,...". Exports write it; an import reads it
 * from the file and from the user. Words, in this order if several are given: optimizer and its
 * parameters as in starling.h; decay (none, l2, decoupled), clip_norm, value_bound; initializer
 * (zeros, constant, uniform, normal, truncated_normal), a, b, seed; consistency (asp, bsp, ssp),
 * staleness, workers; reject_nonfinite (0, 1); values and optimizer_slots (f32, f16, bf16, int8);
 * the policy as in starling.h, with order none, lru, lfu or l2 and admission count, probability or
 * bloom, and slots as SLOT:TTL_STEPS:ADMIT_COUNT separated by "/"; step, beta1_power, beta2_power
 * (optimizer state). Pure; any thread. */
#ifndef SL_PROGRAMS_CKPT_SPEC_TEXT_H
#define SL_PROGRAMS_CKPT_SPEC_TEXT_H

#include "core/reason.h"
#include "ps/snapshot/block.h"

#define SL_SPEC_TEXT_BYTES 8192

/* Writes all words; reading them restores the same bits. */
void sl_spec_text_write(const struct sl_snapshot_table *table, char text[SL_SPEC_TEXT_BYTES]);

/* Writes the words that matter, for people: of the optimizer those that it reads, of the others
 * those that are not 0 or none. */
void sl_spec_text_show(const struct sl_snapshot_table *table, char text[SL_SPEC_TEXT_BYTES]);

/* Sets SGD with defaults, zeros, ASP and initial state. The caller sets name, kind, dim and
 * length. */
void sl_spec_text_init(struct sl_snapshot_table *table);

/* Applies the text. "optimizer" first resets all its parameters, decay, clip_norm and value_bound
 * to defaults. Errors: INVALID; reason: the word and what is accepted. */
int sl_spec_text_read(const char *text, struct sl_snapshot_table *table, struct sl_reason *reason);

#endif
