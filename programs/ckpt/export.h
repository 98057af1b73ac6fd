/* Exports a checkpoint to a file of tensors. Reads all files of the chain twice, for keys and for
 * values; the newest record of a key counts. Memory: 30 to 59 bytes (50 % more while growing) per
 * exported key, and a few MiB. One thread; blocks.
 *
 * Tensors:
 * - sparse table: NAME.keys [n], NAME.values [n][dim];
 * - dense table: NAME f32 [length];
 * - KV table: NAME.keys [n], NAME.lens i64 [n], NAME.values, also u8, [sum of lens].
 *
 * Values are f16 and bf16 if the table stores them so, else f32: of int8 always, of bf16 in npz.
 *
 * With slots, if there are any: NAME.slots f32, sparse [n][slot floats] as stored in a row, dense
 * [slots][length]; dense also NAME.block_slots f32 [blocks][slots of a block]; NAME.steps and
 * NAME.counts i64, last step and visits of each row or block. Keys are u64 in npz, and their bits
 * as i64 in safetensors, since PyTorch before 2.3 lacks u64. */
#ifndef SL_PROGRAMS_CKPT_EXPORT_H
#define SL_PROGRAMS_CKPT_EXPORT_H

#include "core/reason.h"
#include "programs/ckpt/checkpoint_source.h"
#include "programs/ckpt/tensor_writer.h"

struct sl_export_options {
    const char *directory;
    uint64_t number; /* 0: the newest */
    const char *path;
    const char *table; /* NULL: all */
    bool slots;
    bool widen; /* all values as f32 */
    bool replace;
};

/* Errors: INVALID (file extension), NOT_FOUND (also no such table), EXISTS, CORRUPT, ...; with a
 * reason; then no new file is left. *number and *tensors: what was written. */
int sl_export_run(const struct sl_export_options *options, uint64_t *number, uint32_t *tensors,
                  struct sl_reason *reason);

#endif
