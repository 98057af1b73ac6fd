#include "core/table_names.h"

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
