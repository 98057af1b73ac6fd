/* NumPy's npz: a zip, in its form for files of any size (ZIP64), of one npy file for each array,
 * stored as it is. APPNOTE.TXT 6.3.9 sections 4.3 and 4.5.3; numpy.lib.format, version 1.0. Pure;
 * allocates. */
#ifndef SL_TOOLS_CKPT_NPZ_H
#define SL_TOOLS_CKPT_NPZ_H

#include "tools/ckpt/tensor.h"

/* What stands before a tensor's bytes: the zip's local header, the npy header. */
#define SL_NPZ_HEAD_BYTES_MAX (30 + SL_TENSOR_NAME_BYTES + 4 + 20 + 512)

/* Sets the tensors' places. Returns where the zip's directory begins. */
uint64_t sl_npz_layout(struct sl_tensors *tensors);

/* The npy header of a tensor, in to[512]; returns its length. */
size_t sl_npz_array_head(const struct sl_tensor *tensor, uint8_t *to);

/* All that stands before a tensor's bytes, in to[SL_NPZ_HEAD_BYTES_MAX]; returns its length. crc:
 * CRC-32 of the npy header and the bytes. */
size_t sl_npz_head(const struct sl_tensor *tensor, uint32_t crc, uint8_t *to);

/* The directory, which ends the file, allocated; NULL: no memory. crcs[tensors->count]. */
uint8_t *sl_npz_directory(const struct sl_tensors *tensors, const uint32_t *crcs, uint64_t at,
                          size_t *bytes);

#endif
