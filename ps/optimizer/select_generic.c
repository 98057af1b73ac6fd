/* Other processors: what the compiler makes of their baseline, NEON on arm64. */
#include "ps/optimizer/select.h"

extern const struct sl_select_kernels sl_forms_kernels_scalar;
extern const struct sl_select_kernels sl_forms_kernels_native;

const struct sl_select_kernels *sl_select_form(enum sl_optimizer_form form)
{
    switch (form) {
    case SL_OPTIMIZER_FORM_SCALAR:
        return &sl_forms_kernels_scalar;
    case SL_OPTIMIZER_FORM_NATIVE:
        return &sl_forms_kernels_native;
    case SL_OPTIMIZER_FORM_BEST:
    case SL_OPTIMIZER_FORM_AVX2:
    case SL_OPTIMIZER_FORM_AVX512:
        break;
    }
    return NULL;
}

enum sl_optimizer_form sl_select_best(void)
{
    return SL_OPTIMIZER_FORM_NATIVE;
}
