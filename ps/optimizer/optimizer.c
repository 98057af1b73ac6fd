#include "ps/optimizer/optimizer.h"

#include <string.h>

#include "ps/optimizer/select.h"

static const struct sl_select_kernels *find_form(enum sl_optimizer_simd form)
{
    return sl_select_simd(form == SL_OPTIMIZER_SIMD_BEST ? sl_select_best() : form);
}

const struct sl_optimizer *sl_optimizer_find(enum sl_optimizer_kind kind,
                                             enum sl_optimizer_simd form)
{
    const struct sl_select_kernels *kernels = find_form(form);
    if (kernels == NULL || (uint32_t)kind >= SL_OPTIMIZER_KIND_COUNT) {
        return NULL;
    }
    return kernels->optimizers[kind];
}

sl_optimizer_gather_fn sl_optimizer_find_gather(enum sl_optimizer_simd form)
{
    const struct sl_select_kernels *kernels = find_form(form);
    return kernels == NULL ? NULL : *kernels->gather;
}

const char *sl_optimizer_best_form_name(void)
{
    static const char *const names[SL_OPTIMIZER_SIMD_COUNT] = {
        [SL_OPTIMIZER_SIMD_BEST] = "best",     [SL_OPTIMIZER_SIMD_SCALAR] = "scalar",
        [SL_OPTIMIZER_SIMD_AVX2] = "avx2",     [SL_OPTIMIZER_SIMD_AVX512] = "avx512",
        [SL_OPTIMIZER_SIMD_NATIVE] = "native",
    };
    return names[sl_select_best()];
}

int sl_optimizer_kind_from_name(const char *name, enum sl_optimizer_kind *out)
{
    const struct sl_select_kernels *kernels = sl_select_simd(SL_OPTIMIZER_SIMD_SCALAR);
    for (uint32_t kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        if (strcmp(kernels->optimizers[kind]->name, name) == 0) {
            *out = (enum sl_optimizer_kind)kind;
            return 0;
        }
    }
    return SL_ERR_NOT_FOUND;
}

void sl_optimizer_state_init(const struct sl_optimizer_spec *spec, struct sl_optimizer_state *state)
{
    *state = (struct sl_optimizer_state){
        .beta1_power = spec->beta1,
        .beta2_power = spec->beta2,
    };
}
