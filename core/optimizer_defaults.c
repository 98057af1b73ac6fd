/* The defaults of the optimizers. They are not beside the kernels because workers, which describe
 * tables, need them too. Every field is valid for every kind, so that changing `kind` alone gives a
 * valid specification. */
#include <starling.h>

struct sl_optimizer_spec sl_optimizer_defaults(enum sl_optimizer_kind kind)
{
    struct sl_optimizer_spec spec = {
        .kind = kind,
        .lr = 0.01F,
        .momentum = 0.9F,
        .rho = 0.9F,
        .beta1 = 0.9F,
        .beta2 = 0.999F,
        .epsilon = 1e-8F,
        .weight_decay = 0.01F,
        .initial_accumulator = 0.1F,
        .lr_power = -0.5F,
        .decay_steps = 100000,
        .decay_baseline = 0.1F,
    };
    switch (kind) {
    case SL_OPTIMIZER_RMSPROP:
        spec.lr = 0.001F;
        spec.momentum = 0.0F;
        spec.epsilon = 1e-7F;
        break;
    case SL_OPTIMIZER_ADAM:
    case SL_OPTIMIZER_ADAMW:
    case SL_OPTIMIZER_ADAM_ASYNC:
    case SL_OPTIMIZER_ROWWISE_ADAM:
        spec.lr = 0.001F;
        break;
    case SL_OPTIMIZER_LAMB:
        spec.lr = 0.001F;
        spec.epsilon = 1e-6F;
        break;
    case SL_OPTIMIZER_ADADELTA:
        spec.lr = 1.0F;
        spec.epsilon = 1e-6F;
        break;
    case SL_OPTIMIZER_LION:
        spec.lr = 0.0001F;
        spec.beta2 = 0.99F;
        break;
    case SL_OPTIMIZER_FTRL:
    case SL_OPTIMIZER_FTRL_GROUP:
        spec.lr = 0.05F;
        break;
    case SL_OPTIMIZER_SUM:
    case SL_OPTIMIZER_SGD:
    case SL_OPTIMIZER_MOMENTUM:
    case SL_OPTIMIZER_ADAGRAD:
    case SL_OPTIMIZER_ADAGRAD_DECAY:
    case SL_OPTIMIZER_ROWWISE_ADAGRAD:
        break;
    }
    return spec;
}
