/* x86-64: AVX-512 or AVX2 where the processor has them. Asked of the processor at each call rather
 * than resolved by the loader (ifunc), which sanitizers do not survive. */
#include "ps/optimizer/select.h"

extern const struct sl_optimizer *const sl_optimizer_forms_scalar[SL_OPTIMIZER_KIND_COUNT];
extern const struct sl_optimizer *const sl_optimizer_forms_avx2[SL_OPTIMIZER_KIND_COUNT];
extern const struct sl_optimizer *const sl_optimizer_forms_avx512[SL_OPTIMIZER_KIND_COUNT];

const struct sl_optimizer *const *sl_select_form(enum sl_optimizer_form form)
{
    switch (form) {
    case SL_OPTIMIZER_FORM_SCALAR:
        return sl_optimizer_forms_scalar;
    case SL_OPTIMIZER_FORM_AVX2:
        return __builtin_cpu_supports("avx2") ? sl_optimizer_forms_avx2 : NULL;
    case SL_OPTIMIZER_FORM_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512dq")
                   ? sl_optimizer_forms_avx512
                   : NULL;
    case SL_OPTIMIZER_FORM_BEST:
    case SL_OPTIMIZER_FORM_NATIVE:
        break;
    }
    return NULL;
}

enum sl_optimizer_form sl_select_best(void)
{
    if (sl_select_form(SL_OPTIMIZER_FORM_AVX512) != NULL) {
        return SL_OPTIMIZER_FORM_AVX512;
    }
    if (sl_select_form(SL_OPTIMIZER_FORM_AVX2) != NULL) {
        return SL_OPTIMIZER_FORM_AVX2;
    }
    return SL_OPTIMIZER_FORM_SCALAR;
}
