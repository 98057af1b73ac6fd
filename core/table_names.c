#include "core/table_names.h"

#include <string.h>

const char *const sl_table_names_kind[SL_TABLE_KIND_COUNT] = {"sparse", "dense", "kv"};
const char *const sl_table_names_optimizer[SL_OPTIMIZER_KIND_COUNT] = {
    [SL_OPTIMIZER_SUM] = "sum",
    [SL_OPTIMIZER_SGD] = "sgd",
    [SL_OPTIMIZER_MOMENTUM] = "momentum",
    [SL_OPTIMIZER_ADAGRAD] = "adagrad",
    [SL_OPTIMIZER_ADAGRAD_DECAY] = "adagrad_decay",
    [SL_OPTIMIZER_RMSPROP] = "rmsprop",
    [SL_OPTIMIZER_ADAM] = "adam",
    [SL_OPTIMIZER_ADAMW] = "adamw",
    [SL_OPTIMIZER_ADAM_ASYNC] = "adam_async",
    [SL_OPTIMIZER_FTRL] = "ftrl",
    [SL_OPTIMIZER_FTRL_GROUP] = "ftrl_group",
    [SL_OPTIMIZER_ROWWISE_ADAGRAD] = "rowwise_adagrad",
    [SL_OPTIMIZER_ROWWISE_ADAM] = "rowwise_adam",
    [SL_OPTIMIZER_ADADELTA] = "adadelta",
    [SL_OPTIMIZER_LION] = "lion",
    [SL_OPTIMIZER_LAMB] = "lamb",
};
const char *const sl_table_names_decay[SL_DECAY_KIND_COUNT] = {"none", "l2", "decoupled"};
const char *const sl_table_names_initializer[SL_INITIALIZER_KIND_COUNT] = {
    "zeros", "constant", "uniform", "normal", "truncated_normal"};
const char *const sl_table_names_consistency[SL_CONSISTENCY_MODE_COUNT] = {"asp", "bsp", "ssp"};
const char *const sl_table_names_order[SL_POLICY_ORDER_COUNT] = {"none", "lru", "lfu", "l2"};
const char *const sl_table_names_admission[SL_ADMISSION_KIND_COUNT] = {"count", "probability",
                                                                       "bloom"};
const char *const sl_table_names_precision[SL_PRECISION_COUNT] = {"f32", "f16", "bf16", "int8"};

/* Each name has a blank before and behind it. */
#define ADAGRAD " lr epsilon initial_accumulator "
#define ADAM    " lr beta1 beta2 epsilon "
#define FTRL    " lr l1 l2 lr_power initial_accumulator "
static const char *const members[SL_OPTIMIZER_KIND_COUNT] = {
    [SL_OPTIMIZER_SUM] = "",
    [SL_OPTIMIZER_SGD] = " lr ",
    [SL_OPTIMIZER_MOMENTUM] = " lr momentum ",
    [SL_OPTIMIZER_ADAGRAD] = ADAGRAD,
    [SL_OPTIMIZER_ADAGRAD_DECAY] = ADAGRAD "rho decay_steps decay_baseline ",
    [SL_OPTIMIZER_RMSPROP] = " lr momentum rho epsilon ",
    [SL_OPTIMIZER_ADAM] = ADAM,
    [SL_OPTIMIZER_ADAMW] = ADAM "weight_decay ",
    [SL_OPTIMIZER_ADAM_ASYNC] = ADAM,
    [SL_OPTIMIZER_FTRL] = FTRL,
    [SL_OPTIMIZER_FTRL_GROUP] = FTRL,
    [SL_OPTIMIZER_ROWWISE_ADAGRAD] = ADAGRAD,
    [SL_OPTIMIZER_ROWWISE_ADAM] = ADAM,
    [SL_OPTIMIZER_ADADELTA] = " lr rho epsilon ",
    [SL_OPTIMIZER_LION] = " lr beta1 beta2 ",
    [SL_OPTIMIZER_LAMB] = ADAM "weight_decay ",
};

bool sl_table_names_is_read(const struct sl_table_spec *spec, const char *member)
{
    const char *found = strstr(members[spec->optimizer.kind], member);
    return (found != NULL && found[-1] == ' ' && found[strlen(member)] == ' ') ||
           (spec->update.decay != SL_DECAY_NONE && strcmp(member, "weight_decay") == 0);
}
