/* A checkpoint as a file of tensors. All files of the chain are read twice: for the keys, and for
 * the values; those of the newest record of a key count. Memory: 22 to 43 bytes (half as much
 * again while it grows) for each key of the tables that are exported, and a few MiB. One thread;
 * blocks.
 *
 * Of a sparse table: NAME.keys [n], NAME.values f32 [n][dim]; of a dense one NAME f32 [length]; of
 * a KV table NAME.keys [n], NAME.lens i64 [n], NAME.values [sum of lens], f32 or u8. With slots, of
 * a sparse table NAME.slots f32 [n][slot floats], as a row keeps them; of a dense one NAME.slots
 * f32 [slots][length] and NAME.block_slots f32 [blocks][slots of a block]; where there are any; and
 * of both NAME.steps and NAME.counts i64, the last step and the visits of each row or block. Keys
 * are u64 in npz; in safetensors their bits as i64, since PyTorch knows no u64 before 2.3. */
#ifndef SL_TOOLS_CKPT_EXPORT_H
#define SL_TOOLS_CKPT_EXPORT_H

#include "tools/ckpt/checkpoint_source.h"
#include "tools/ckpt/tensor_writer.h"

struct sl_export_options {
    const char *directory;
    uint64_t number; /* 0: the newest */
    const char *path;
    const char *table; /* NULL: all */
    bool slots;
    bool replace;
};

/* Errors: INVALID (the end of the path; no such table), NOT_FOUND, EXISTS, CORRUPT, ...; with a
 * reason. Nothing is left under the path's name then that was not there. *number and *tensors: what
 * was written. */
int sl_export_run(const struct sl_export_options *options, uint64_t *number, uint32_t *tensors,
                  char *reason, size_t reason_bytes);

#endif
