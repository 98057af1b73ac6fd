/* Processors other than x86-64: scalar, or the compiler's baseline (NEON on arm64). */
#include "ps/optimizer/select.h"

extern const struct sl_select_kernels sl_simd_kernels_scalar;
extern const struct sl_select_kernels sl_simd_kernels_native;

const struct sl_select_kernels *sl_select_simd(enum sl_optimizer_simd form)
{
    switch (form) {
    case SL_OPTIMIZER_SIMD_SCALAR:
        return &sl_simd_kernels_scalar;
    case SL_OPTIMIZER_SIMD_NATIVE:
        return &sl_simd_kernels_native;
    case SL_OPTIMIZER_SIMD_BEST:
    case SL_OPTIMIZER_SIMD_AVX2:
    case SL_OPTIMIZER_SIMD_AVX512:
        break;
    }
    return NULL;
}

enum sl_optimizer_simd sl_select_best(void)
{
    return SL_OPTIMIZER_SIMD_NATIVE;
}
