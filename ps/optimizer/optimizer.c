#include "ps/optimizer/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ps/optimizer/select.h"

static const struct sl_select_kernels *find_form(enum sl_optimizer_form form)
{
    return sl_select_form(form == SL_OPTIMIZER_FORM_BEST ? sl_select_best() : form);
}

const struct sl_optimizer *sl_optimizer_find(enum sl_optimizer_kind kind,
                                             enum sl_optimizer_form form)
{
    const struct sl_select_kernels *kernels = find_form(form);
    if (kernels == NULL || (uint32_t)kind >= SL_OPTIMIZER_KIND_COUNT) {
        return NULL;
    }
    return kernels->optimizers[kind];
}

sl_optimizer_gather_fn sl_optimizer_find_gather(enum sl_optimizer_form form)
{
    const struct sl_select_kernels *kernels = find_form(form);
    return kernels == NULL ? NULL : *kernels->gather;
}

const char *sl_optimizer_best_form_name(void)
{
    static const char *const names[SL_OPTIMIZER_FORM_COUNT] = {
        [SL_OPTIMIZER_FORM_BEST] = "best",     [SL_OPTIMIZER_FORM_SCALAR] = "scalar",
        [SL_OPTIMIZER_FORM_AVX2] = "avx2",     [SL_OPTIMIZER_FORM_AVX512] = "avx512",
        [SL_OPTIMIZER_FORM_NATIVE] = "native",
    };
    return names[sl_select_best()];
}

int sl_optimizer_kind_from_name(const char *name, enum sl_optimizer_kind *out)
{
    const struct sl_select_kernels *kernels = sl_select_form(SL_OPTIMIZER_FORM_SCALAR);
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

/* A hyper-parameter: which kinds read it, and what it may be there. */
struct range {
    uint32_t kinds; /* bit per sl_optimizer_kind */
    float least, most;
    bool above; /* least itself is outside */
    bool below; /* most itself is outside */
    const char *reason;
};

#define KIND(name)  (1U << SL_OPTIMIZER_##name)
#define FTRLS       (KIND(FTRL) | KIND(FTRL_GROUP))
#define ADAMS       (KIND(ADAM) | KIND(ADAMW) | KIND(ADAM_ASYNC))
#define ADAGRADS    (KIND(ADAGRAD) | KIND(ADAGRAD_DECAY))
#define EVERY       ((1U << SL_OPTIMIZER_KIND_COUNT) - 1)
#define FLOAT_COUNT 12

/* In the order of struct sl_optimizer_spec. */
static const struct range ranges[FLOAT_COUNT] = {
    {EVERY & ~KIND(SUM), 0, FLT_MAX, true, false, "lr must be greater than 0"},
    {KIND(MOMENTUM) | KIND(RMSPROP), 0, 1, false, true,
     "momentum must be at least 0 and less than 1"},
    {KIND(RMSPROP) | KIND(ADAGRAD_DECAY), 0, 1, false, false, "rho must be between 0 and 1"},
    {ADAMS, 0, 1, false, true, "beta1 must be at least 0 and less than 1"},
    {ADAMS, 0, 1, false, true, "beta2 must be at least 0 and less than 1"},
    /* Adagrad's may be 0 beside a first accumulator that is not: see division_fault. */
    {ADAMS | KIND(RMSPROP), 0, FLT_MAX, true, false, "epsilon must be greater than 0"},
    {KIND(ADAMW), 0, FLT_MAX, false, false, "weight_decay must be at least 0"},
    {ADAGRADS | FTRLS, 0, FLT_MAX, false, false, "initial_accumulator must be at least 0"},
    {FTRLS, 0, FLT_MAX, false, false, "l1 must be at least 0"},
    {FTRLS, 0, FLT_MAX, false, false, "l2 must be at least 0"},
    {FTRLS, -FLT_MAX, 0, false, false, "lr_power must be at most 0"},
    {KIND(ADAGRAD_DECAY), 0, FLT_MAX, true, false, "decay_baseline must be greater than 0"},
};

static bool in_range(const struct range *range, float value)
{
    return value >= range->least && value <= range->most &&
           !(range->above && value == range->least) && !(range->below && value == range->most);
}

static const char *range_fault(const struct sl_optimizer_spec *spec)
{
    const float values[FLOAT_COUNT] = {
        spec->lr,    spec->momentum, spec->rho,          spec->beta1,
        spec->beta2, spec->epsilon,  spec->weight_decay, spec->initial_accumulator,
        spec->l1,    spec->l2,       spec->lr_power,     spec->decay_baseline,
    };
    for (uint32_t i = 0; i < FLOAT_COUNT; i++) {
        if (!isfinite(values[i])) {
            return "every hyper-parameter must be finite";
        }
        if ((ranges[i].kinds >> spec->kind & 1) != 0 && !in_range(&ranges[i], values[i])) {
            return ranges[i].reason;
        }
    }
    return NULL;
}

/* A coordinate whose gradients have all been 0 must not become 0 / 0. */
static const char *division_fault(const struct sl_optimizer_spec *spec)
{
    if ((ADAGRADS >> spec->kind & 1) == 0) {
        return NULL;
    }
    if (spec->epsilon < 0.0F) {
        return "epsilon must be at least 0";
    }
    if (spec->epsilon == 0.0F && spec->initial_accumulator == 0.0F) {
        return "epsilon and initial_accumulator must not both be 0";
    }
    return NULL;
}

bool sl_optimizer_spec_valid(const struct sl_optimizer_spec *spec, const char **reason)
{
    const char *fault = NULL;
    if ((uint32_t)spec->kind >= SL_OPTIMIZER_KIND_COUNT) {
        fault = "there is no such optimizer";
    } else if (spec->kind == SL_OPTIMIZER_ADAGRAD_DECAY && spec->decay_steps == 0) {
        fault = "decay_steps must be greater than 0";
    } else {
        fault = range_fault(spec);
    }
    if (fault == NULL) {
        fault = division_fault(spec);
    }
    if (fault != NULL) {
        *reason = fault;
        return false;
    }
    return true;
}
