/* x86-64: AVX-512 or AVX2 if supported. Each call checks the processor; resolution by the loader
 * (ifunc) breaks sanitizers. */
#include "ps/optimizer/select.h"

extern const struct sl_select_kernels sl_simd_kernels_scalar;
extern const struct sl_select_kernels sl_simd_kernels_avx2;
extern const struct sl_select_kernels sl_simd_kernels_avx512;

const struct sl_select_kernels *sl_select_simd(enum sl_optimizer_simd form)
{
    switch (form) {
    case SL_OPTIMIZER_SIMD_SCALAR:
        return &sl_simd_kernels_scalar;
    case SL_OPTIMIZER_SIMD_AVX2:
        return __builtin_cpu_supports("avx2") ? &sl_simd_kernels_avx2 : NULL;
    case SL_OPTIMIZER_SIMD_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512dq")
                   ? &sl_simd_kernels_avx512
                   : NULL;
    case SL_OPTIMIZER_SIMD_BEST:
    case SL_OPTIMIZER_SIMD_NATIVE:
        break;
    }
    return NULL;
}

enum sl_optimizer_simd sl_select_best(void)
{
    if (sl_select_simd(SL_OPTIMIZER_SIMD_AVX512) != NULL) {
        return SL_OPTIMIZER_SIMD_AVX512;
    }
    if (sl_select_simd(SL_OPTIMIZER_SIMD_AVX2) != NULL) {
        return SL_OPTIMIZER_SIMD_AVX2;
    }
    return SL_OPTIMIZER_SIMD_SCALAR;
}
