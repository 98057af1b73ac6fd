/* NumPy's npz: a ZIP64 file of one uncompressed npy file per array. APPNOTE.TXT 6.3.9 sections 4.3
 * and 4.5.3; numpy.lib.format, version 1.0. Pure; allocates. */
#ifndef SL_PROGRAMS_CKPT_NPZ_H
#define SL_PROGRAMS_CKPT_NPZ_H

#include "programs/safetensors/tensor.h"

/* Before a tensor's data: the zip's local header and the npy header. */
#define SL_NPZ_HEAD_BYTES_MAX (30 + SL_TENSOR_NAME_BYTES + 4 + 20 + 512)

/* Sets the tensors' offsets. Returns the offset of the zip's directory. */
uint64_t sl_npz_layout(struct sl_tensors *tensors);

/* Writes a tensor's npy header to to[512]; returns its length. */
size_t sl_npz_array_head(const struct sl_tensor *tensor, uint8_t *to);

/* Writes both headers of a tensor to to[SL_NPZ_HEAD_BYTES_MAX]; returns their length. crc: CRC-32
 * of the npy header and the data. */
size_t sl_npz_head(const struct sl_tensor *tensor, uint32_t crc, uint8_t *to);

/* Returns the allocated directory, which ends the file; NULL: no memory. crcs[tensors->count]. */
uint8_t *sl_npz_directory(const struct sl_tensors *tensors, const uint32_t *crcs, uint64_t at,
                          size_t *bytes);

#endif
