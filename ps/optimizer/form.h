/* What the kernel files share. CMake compiles each of them once for every form of vector unit and
 * names the form in SL_FORM; a file's object is called sl_opt_<name>_<form>. */
#ifndef SL_PS_OPTIMIZER_FORM_H
#define SL_PS_OPTIMIZER_FORM_H

#include "ps/optimizer/optimizer.h"

#define SL_FORM_PASTE(name, form)  name##_##form
#define SL_FORM_EXPAND(name, form) SL_FORM_PASTE(name, form)
#define SL_FORM_NAME(name)         SL_FORM_EXPAND(name, SL_FORM)

extern const struct sl_optimizer SL_FORM_NAME(sl_opt_sum);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_sgd);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_momentum);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_adagrad);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_adagrad_decay);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_rmsprop);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_adam);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_adamw);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_adam_async);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_ftrl);
extern const struct sl_optimizer SL_FORM_NAME(sl_opt_ftrl_group);

/* The objects above, by kind. */
extern const struct sl_optimizer *const SL_FORM_NAME(sl_optimizer_forms)[SL_OPTIMIZER_KIND_COUNT];

/* Fills a slot with the accumulator's first value. */
static inline void sl_form_init_accumulator(const struct sl_optimizer_spec *spec, uint32_t dim,
                                            float *slot)
{
    for (uint32_t i = 0; i < dim; i++) {
        slot[i] = spec->initial_accumulator;
    }
}

#endif
