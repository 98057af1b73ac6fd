/* The table of kernels of one SIMD variant. */
#include "ps/optimizer/simd.h"

const struct sl_select_kernels SL_SIMD_NAME(sl_simd_kernels) = {
    .optimizers =
        {
            [SL_OPTIMIZER_SUM] = &SL_SIMD_NAME(sl_opt_sum),
            [SL_OPTIMIZER_SGD] = &SL_SIMD_NAME(sl_opt_sgd),
            [SL_OPTIMIZER_MOMENTUM] = &SL_SIMD_NAME(sl_opt_momentum),
            [SL_OPTIMIZER_ADAGRAD] = &SL_SIMD_NAME(sl_opt_adagrad),
            [SL_OPTIMIZER_ADAGRAD_DECAY] = &SL_SIMD_NAME(sl_opt_adagrad_decay),
            [SL_OPTIMIZER_RMSPROP] = &SL_SIMD_NAME(sl_opt_rmsprop),
            [SL_OPTIMIZER_ADAM] = &SL_SIMD_NAME(sl_opt_adam),
            [SL_OPTIMIZER_ADAMW] = &SL_SIMD_NAME(sl_opt_adamw),
            [SL_OPTIMIZER_ADAM_ASYNC] = &SL_SIMD_NAME(sl_opt_adam_async),
            [SL_OPTIMIZER_FTRL] = &SL_SIMD_NAME(sl_opt_ftrl),
            [SL_OPTIMIZER_FTRL_GROUP] = &SL_SIMD_NAME(sl_opt_ftrl_group),
            [SL_OPTIMIZER_ROWWISE_ADAGRAD] = &SL_SIMD_NAME(sl_opt_rowwise_adagrad),
            [SL_OPTIMIZER_ROWWISE_ADAM] = &SL_SIMD_NAME(sl_opt_rowwise_adam),
            [SL_OPTIMIZER_ADADELTA] = &SL_SIMD_NAME(sl_opt_adadelta),
            [SL_OPTIMIZER_LION] = &SL_SIMD_NAME(sl_opt_lion),
            [SL_OPTIMIZER_LAMB] = &SL_SIMD_NAME(sl_opt_lamb),
        },
    .gather = &SL_SIMD_NAME(sl_gather),
};
