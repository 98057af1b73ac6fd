#include "net/session/message_spec.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/format.h"
#include "core/table_names.h"
#include "net/session/message_table.h"

/* Largest deviation from the mean, in standard deviations, of a normal initializer
 * (ps/optimizer/initializer.h). */
#define DEVIATIONS_MAX      9.0F

#define SLOT_BITS_MAX       8U         /* SL_POLICY_SLOTS_MAX */
#define STEPS_MAX           (1U << 31) /* steps are counted modulo 2^32 */

/* Admission BLOOM (ps/table/key_filter.h). */
#define BLOOM_COUNT_MAX     15U
#define KEYS_EXPECTED_MAX   (1ULL << 33)
#define FALSE_POSITIVES_MIN 1e-6F
#define FALSE_POSITIVES_MAX 0.5F

#define refuse(reason, ...) sl_reason_fail(reason, SL_ERR_INVALID, __VA_ARGS__)

static int check_name(const char *name, struct sl_reason *reason)
{
    size_t length = strnlen(name, SL_TABLE_NAME_BYTES);
    if (length == 0 || length == SL_TABLE_NAME_BYTES) {
        return refuse(reason, "the table's name has %zu bytes%s; accepted are 1 to %d", length,
                      length == 0 ? "" : " or more", SL_TABLE_NAME_BYTES - 1);
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c <= ' ' || c > '~') {
            return refuse(reason,
                          "byte %zu of the table's name is 0x%02x; accepted is printable ASCII "
                          "without spaces",
                          i, c);
        }
    }
    return SL_OK;
}

static int check_shape(const struct sl_table_spec *spec, struct sl_reason *reason)
{
    switch (spec->kind) {
    case SL_TABLE_SPARSE:
        if (spec->dim < 1 || spec->dim > SL_LIMIT_DIM) {
            return refuse(reason, "dim is %" PRIu32 "; accepted is 1 to %d", spec->dim,
                          SL_LIMIT_DIM);
        }
        if (spec->length != 0) {
            return refuse(reason, "length is %" PRIu64 "; accepted in a sparse table is 0",
                          spec->length);
        }
        return SL_OK;
    case SL_TABLE_DENSE:
        if (spec->dim != 0) {
            return refuse(reason, "dim is %" PRIu32 "; accepted in a dense table is 0", spec->dim);
        }
        if (spec->length < 1 || spec->length > SL_LIMIT_DENSE_ELEMENTS) {
            return refuse(reason, "length is %" PRIu64 "; accepted is 1 to %llu", spec->length,
                          SL_LIMIT_DENSE_ELEMENTS);
        }
        return SL_OK;
    case SL_TABLE_KV:
        if (spec->dim != 1 && spec->dim != 2 && spec->dim != sizeof(float)) {
            return refuse(reason,
                          "dim is %" PRIu32
                          "; accepted in a KV table is 1, 2 or 4, the bytes of a value",
                          spec->dim);
        }
        if (spec->length != 0) {
            return refuse(reason, "length is %" PRIu64 "; accepted in a KV table is 0",
                          spec->length);
        }
        return SL_OK;
    default:
        return refuse(reason, "kind is %d; accepted is 0 (sparse), 1 (dense) or 2 (KV)",
                      (int)spec->kind);
    }
}

static bool has_update(const struct sl_update_spec *update)
{
    return update->decay != SL_DECAY_NONE || update->clip_norm != 0 || update->value_bound != 0;
}

/* A KV table only adds or replaces, starts empty, and never waits for workers. */
static int check_kv(const struct sl_table_spec *spec, struct sl_reason *reason)
{
    if (spec->optimizer.kind != SL_OPTIMIZER_SUM) {
        return refuse(reason, "optimizer.kind is %d; accepted in a KV table is 0 (sum)",
                      (int)spec->optimizer.kind);
    }
    if (spec->initializer.kind != SL_INITIALIZER_ZEROS) {
        return refuse(reason, "initializer.kind is %d; accepted in a KV table is 0 (zeros)",
                      (int)spec->initializer.kind);
    }
    if (spec->consistency.mode != SL_CONSISTENCY_ASP) {
        return refuse(reason, "consistency.mode is %d; accepted in a KV table is %d (ASP)",
                      (int)spec->consistency.mode, (int)SL_CONSISTENCY_ASP);
    }
    if (spec->reject_nonfinite) {
        return refuse(reason, "reject_nonfinite is 1; accepted in a KV table is 0");
    }
    return has_update(&spec->update)
               ? refuse(reason, "update has decay, clip_norm or value_bound; accepted in a KV "
                                "table are zeros")
               : SL_OK;
}

/* A hyper-parameter and its accepted range. */
struct parameter {
    const char *name;
    float value;
    float least, most;
    bool most_excluded, least_excluded;
    const char *accepted;
};

static bool is_within(const struct parameter *parameter)
{
    float value = parameter->value;
    if (!isfinite(value)) {
        return false;
    }
    bool over_least =
        parameter->least_excluded ? value > parameter->least : value >= parameter->least;
    bool under_most = parameter->most_excluded ? value < parameter->most : value <= parameter->most;
    return over_least && under_most;
}

static int check_parameters(const char *part, const struct parameter *parameters, size_t count,
                            struct sl_reason *reason)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_within(&parameters[i])) {
            return refuse(reason, "%s.%s is %g; accepted is %s", part, parameters[i].name,
                          (double)parameters[i].value, parameters[i].accepted);
        }
    }
    return SL_OK;
}

/* Sets of optimizers */
#define BIT(kind) (1U << SL_OPTIMIZER_##kind)
#define ADAGRADS  (BIT(ADAGRAD) | BIT(ADAGRAD_DECAY) | BIT(ROWWISE_ADAGRAD))

/* They start with an average of 0: without epsilon, a coordinate whose gradients are all 0 would
 * become 0 / 0. */
#define BY_EPSILON                                                                                 \
    (BIT(ADAM) | BIT(ADAMW) | BIT(ADAM_ASYNC) | BIT(ROWWISE_ADAM) | BIT(LAMB) | BIT(RMSPROP) |     \
     BIT(ADADELTA))

/* SUM has no learning rate, and its gradients may be of either sign; the others have their own
 * decay: l2 or weight_decay. */
#define WITHOUT_DECAY (BIT(SUM) | BIT(ADAMW) | BIT(LAMB) | BIT(FTRL) | BIT(FTRL_GROUP))

static bool is_one_of(enum sl_optimizer_kind kind, uint32_t kinds)
{
    return (kinds >> kind & 1) != 0;
}

/* Adagrad starts with initial_accumulator: this or epsilon may be 0, but both would give 0 / 0. */
static int check_division(const struct sl_optimizer_spec *spec, struct sl_reason *reason)
{
    return is_one_of(spec->kind, ADAGRADS) && spec->epsilon == 0 && spec->initial_accumulator == 0
               ? refuse(reason, "optimizer.epsilon and optimizer.initial_accumulator are 0; "
                                "accepted with Adagrad is one of them > 0")
               : SL_OK;
}

/* Fields that the optimizer ignores may be 0, but must still be in range: an invalid value shows
 * that the caller meant another optimizer. */
static int check_optimizer(const struct sl_optimizer_spec *spec, struct sl_reason *reason)
{
    if ((uint32_t)spec->kind >= SL_OPTIMIZER_KIND_COUNT) {
        return refuse(reason, "optimizer.kind is %d; accepted is 0 to %d", (int)spec->kind,
                      SL_OPTIMIZER_KIND_COUNT - 1);
    }
    const bool uses_lr = spec->kind != SL_OPTIMIZER_SUM;
    const bool decays = spec->kind == SL_OPTIMIZER_ADAGRAD_DECAY;
    const bool divides = is_one_of(spec->kind, BY_EPSILON);
    const struct parameter parameters[] = {
        {"lr", spec->lr, 0, FLT_MAX, false, uses_lr, uses_lr ? "> 0" : ">= 0"},
        {"momentum", spec->momentum, 0, 1, true, false, "0 to below 1"},
        {"rho", spec->rho, 0, 1, false, false, "0 to 1"},
        {"beta1", spec->beta1, 0, 1, true, false, "0 to below 1"},
        {"beta2", spec->beta2, 0, 1, true, false, "0 to below 1"},
        {"epsilon", spec->epsilon, 0, FLT_MAX, false, divides, divides ? "> 0" : ">= 0"},
        {"weight_decay", spec->weight_decay, 0, FLT_MAX, false, false, ">= 0"},
        {"initial_accumulator", spec->initial_accumulator, 0, FLT_MAX, false, false, ">= 0"},
        {"l1", spec->l1, 0, FLT_MAX, false, false, ">= 0"},
        {"l2", spec->l2, 0, FLT_MAX, false, false, ">= 0"},
        {"lr_power", spec->lr_power, -FLT_MAX, 0, false, false, "<= 0"},
        {"decay_baseline", spec->decay_baseline, 0, FLT_MAX, false, decays,
         decays ? "> 0" : ">= 0"},
    };
    const int err =
        check_parameters("optimizer", parameters, sizeof parameters / sizeof parameters[0], reason);
    if (err == SL_OK && decays && spec->decay_steps == 0) {
        return refuse(reason, "optimizer.decay_steps is 0; accepted is > 0");
    }
    return err == SL_OK ? check_division(spec, reason) : err;
}

static const char *precision_name(enum sl_precision precision, char text[16])
{
    if ((uint32_t)precision < SL_PRECISION_COUNT) {
        return sl_table_names_precision[precision];
    }
    (void)snprintf(text, 16, "%d", (int)precision);
    return text;
}

static int check_precision(const struct sl_table_spec *spec, struct sl_reason *reason)
{
    const bool is_sparse = spec->kind == SL_TABLE_SPARSE;
    const bool is_half = spec->values == SL_PRECISION_F16 || spec->values == SL_PRECISION_BF16;
    const bool is_half_kv = spec->kind == SL_TABLE_KV && spec->dim == 2;
    if (is_half_kv ? !is_half
                   : spec->values != SL_PRECISION_F32 &&
                         (!is_sparse || (uint32_t)spec->values >= SL_PRECISION_COUNT)) {
        return refuse(reason, "values is %s; accepted in %s is %s",
                      precision_name(spec->values, (char[16]){0}),
                      is_sparse                      ? "a sparse table"
                      : is_half_kv                   ? "a KV table of dim 2"
                      : spec->kind == SL_TABLE_DENSE ? "a dense table"
                                                     : "a KV table of this dim",
                      is_sparse    ? "f32, f16, bf16 or int8"
                      : is_half_kv ? "f16 or bf16"
                                   : "f32");
    }
    if (spec->slots != SL_PRECISION_F32 &&
        (!is_sparse || (uint32_t)spec->slots >= SL_PRECISION_INT8)) {
        return refuse(reason, "slots is %s; accepted is f32%s",
                      precision_name(spec->slots, (char[16]){0}),
                      is_sparse ? ", f16 or bf16" : " except in a sparse table");
    }
    return SL_OK;
}

/* kind: checked before. */
static int check_update(const struct sl_update_spec *update, enum sl_optimizer_kind kind,
                        struct sl_reason *reason)
{
    if ((uint32_t)update->decay >= SL_DECAY_KIND_COUNT) {
        return refuse(reason, "update.decay is %d; accepted is 0 to %d", (int)update->decay,
                      SL_DECAY_KIND_COUNT - 1);
    }
    if (update->decay != SL_DECAY_NONE && is_one_of(kind, WITHOUT_DECAY)) {
        return refuse(
            reason,
            "update.decay is %d; accepted with optimizer.kind %d is 0 (none), since it has %s",
            (int)update->decay, (int)kind,
            kind == SL_OPTIMIZER_SUM ? "no learning rate" : "its own decay");
    }
    const struct parameter parameters[] = {
        {"clip_norm", update->clip_norm, 0, FLT_MAX, false, false, ">= 0"},
        {"value_bound", update->value_bound, 0, FLT_MAX, false, false, ">= 0"},
    };
    return check_parameters("update", parameters, sizeof parameters / sizeof parameters[0], reason);
}

static int check_initializer(const struct sl_initializer_spec *spec, struct sl_reason *reason)
{
    if ((uint32_t)spec->kind >= SL_INITIALIZER_KIND_COUNT) {
        return refuse(reason, "initializer.kind is %d; accepted is 0 to %d", (int)spec->kind,
                      SL_INITIALIZER_KIND_COUNT - 1);
    }
    if (!isfinite(spec->low) || !isfinite(spec->high)) {
        return refuse(
            reason, "initializer.low (value, mean) is %g, high (stddev) is %g; accepted is finite",
            (double)spec->low, (double)spec->high);
    }
    if (spec->kind == SL_INITIALIZER_UNIFORM &&
        !(spec->low < spec->high && isfinite(spec->high - spec->low))) {
        return refuse(
            reason,
            "initializer.low is %g, high is %g; accepted is low < high with a finite difference",
            (double)spec->low, (double)spec->high);
    }
    bool has_deviation =
        spec->kind == SL_INITIALIZER_NORMAL || spec->kind == SL_INITIALIZER_TRUNCATED_NORMAL;
    if (has_deviation && spec->stddev < 0) {
        return refuse(reason, "initializer.stddev is %g; accepted is >= 0", (double)spec->stddev);
    }
    if (has_deviation && !isfinite(fabsf(spec->mean) + DEVIATIONS_MAX * spec->stddev)) {
        return refuse(
            reason, "initializer.mean is %g, stddev is %g; accepted is |mean| + %g stddev up to %g",
            (double)spec->mean, (double)spec->stddev, (double)DEVIATIONS_MAX, (double)FLT_MAX);
    }
    return SL_OK;
}

static int check_consistency(const struct sl_consistency_spec *spec, struct sl_reason *reason)
{
    if ((uint32_t)spec->mode >= SL_CONSISTENCY_MODE_COUNT) {
        return refuse(reason, "consistency.mode is %d; accepted is 0 to %d", (int)spec->mode,
                      SL_CONSISTENCY_MODE_COUNT - 1);
    }
    if (spec->mode != SL_CONSISTENCY_SSP && spec->staleness != 0) {
        return refuse(reason, "consistency.staleness is %" PRIu32 "; accepted is 0 except with SSP",
                      spec->staleness);
    }
    if (spec->mode == SL_CONSISTENCY_ASP) {
        return spec->worker_count == 0
                   ? SL_OK
                   : refuse(reason,
                            "consistency.worker_count is %" PRIu32 "; accepted with ASP is 0",
                            spec->worker_count);
    }
    if (spec->worker_count < 1 || spec->worker_count > SL_LIMIT_WORKERS) {
        return refuse(
            reason, "consistency.worker_count is %" PRIu32 "; accepted with %s is 1 to %d",
            spec->worker_count, spec->mode == SL_CONSISTENCY_BSP ? "BSP" : "SSP", SL_LIMIT_WORKERS);
    }
    return SL_OK;
}

static bool has_policy(const struct sl_table_spec *spec)
{
    static const struct sl_policy_spec none;
    const size_t bytes = offsetof(struct sl_policy_spec, false_positives) +
                         sizeof none.false_positives; /* without the padding at the end */
    return memcmp(&spec->policy, &none, bytes) != 0;
}

/* What is new or rarely pushed would go at once, were it not protected. */
static int check_thresholds(const struct sl_policy_spec *policy, struct sl_reason *reason)
{
    if (!isfinite(policy->l2_below) || policy->l2_below < 0) {
        return refuse(reason, "policy.l2_below is %g; accepted is >= 0", (double)policy->l2_below);
    }
    if ((policy->count_below > 0 || policy->l2_below > 0) && policy->protect_steps == 0) {
        return refuse(reason, "policy.protect_steps is 0; accepted with policy.%s is > 0",
                      policy->count_below > 0 ? "count_below" : "l2_below");
    }
    if (policy->ttl_steps > STEPS_MAX) {
        return refuse(reason, "policy.ttl_steps is %" PRIu32 "; accepted is 0 to %u",
                      policy->ttl_steps, STEPS_MAX);
    }
    if (policy->ttl_steps > 0 && policy->ttl_steps < policy->protect_steps) {
        return refuse(reason,
                      "policy.ttl_steps is %" PRIu32 ", protect_steps is %" PRIu32
                      "; accepted is a ttl_steps of at least protect_steps, or 0",
                      policy->ttl_steps, policy->protect_steps);
    }
    return SL_OK;
}

static bool has_admission(const struct sl_policy_spec *policy)
{
    for (uint32_t i = 0; i < policy->slot_count && i < SL_POLICY_SLOTS_MAX; i++) {
        if (policy->slots[i].admit_count > 0) {
            return true;
        }
    }
    return policy->admission != SL_ADMISSION_COUNT || policy->admit_count > 0 ||
           policy->admit_age_steps > 0 || policy->admit_probability != 0 ||
           policy->keys_expected > 0 || policy->false_positives != 0;
}

static bool has_slots(const struct sl_policy_spec *policy)
{
    return policy->slot_bits > 0 || policy->slot_shift > 0 || policy->slot_count > 0;
}

static uint32_t admit_count_max(const struct sl_policy_spec *policy)
{
    return policy->admission == SL_ADMISSION_COUNT   ? STEPS_MAX
           : policy->admission == SL_ADMISSION_BLOOM ? BLOOM_COUNT_MAX
                                                     : 0;
}

static int check_slot(const struct sl_policy_spec *policy, uint32_t slot, struct sl_reason *reason)
{
    const uint32_t ttl_steps = policy->slots[slot].ttl_steps;
    const uint32_t admit_count = policy->slots[slot].admit_count;
    if (ttl_steps > STEPS_MAX || (ttl_steps > 0 && ttl_steps < policy->protect_steps)) {
        return refuse(reason,
                      "policy.slots[%" PRIu32 "].ttl_steps is %" PRIu32
                      "; accepted is 0, or protect_steps to %u",
                      slot, ttl_steps, STEPS_MAX);
    }
    return admit_count > admit_count_max(policy)
               ? refuse(reason,
                        "policy.slots[%" PRIu32 "].admit_count is %" PRIu32
                        "; accepted with admission %s is 0 to %u",
                        slot, admit_count, sl_table_names_admission[policy->admission],
                        admit_count_max(policy))
               : SL_OK;
}

static int check_slots(const struct sl_policy_spec *policy, struct sl_reason *reason)
{
    const uint32_t bits = policy->slot_bits;
    if (bits < 1 || bits > SLOT_BITS_MAX) {
        return refuse(reason, "policy.slot_bits is %" PRIu32 "; accepted with slots is 1 to %u",
                      bits, SLOT_BITS_MAX);
    }
    if (policy->slot_shift > 64 - bits) {
        return refuse(reason,
                      "policy.slot_shift is %" PRIu32 "; accepted with slot_bits %" PRIu32
                      " is 0 to %" PRIu32 ", since a key has 64 bits",
                      policy->slot_shift, bits, 64 - bits);
    }
    if (policy->slot_count < 1 || policy->slot_count > 1U << bits) {
        return refuse(reason,
                      "policy.slot_count is %" PRIu32 "; accepted with slot_bits %" PRIu32
                      " is 1 to %u, since a key has no other slot",
                      policy->slot_count, bits, 1U << bits);
    }
    int err = SL_OK;
    for (uint32_t i = 0; i < policy->slot_count && err == SL_OK; i++) {
        err = check_slot(policy, i, reason);
    }
    return err;
}

static int check_bloom(const struct sl_policy_spec *policy, struct sl_reason *reason)
{
    const bool is_bloom = policy->admission == SL_ADMISSION_BLOOM;
    const float share = policy->false_positives;
    if (is_bloom ? policy->keys_expected < 1 || policy->keys_expected > KEYS_EXPECTED_MAX
                 : policy->keys_expected > 0) {
        return refuse(
            reason,
            "policy.keys_expected is %" PRIu64 "; accepted with admission %s is 1 to %llu, else 0",
            policy->keys_expected, sl_table_names_admission[SL_ADMISSION_BLOOM], KEYS_EXPECTED_MAX);
    }
    return share == 0 || (is_bloom && share >= FALSE_POSITIVES_MIN && share <= FALSE_POSITIVES_MAX)
               ? SL_OK
               : refuse(reason,
                        "policy.false_positives is %g; accepted with admission %s is 0.000001 to "
                        "0.5, or 0 for 0.01, else 0",
                        (double)share, sl_table_names_admission[SL_ADMISSION_BLOOM]);
}

/* A field that the kind of admission does not read must be 0. */
static int check_admission(const struct sl_policy_spec *policy, struct sl_reason *reason)
{
    const bool draws = policy->admission == SL_ADMISSION_PROBABILITY;
    const float chance = policy->admit_probability;
    if ((uint32_t)policy->admission >= SL_ADMISSION_KIND_COUNT) {
        return refuse(reason,
                      "policy.admission is %d; accepted is 0 (count), 1 (probability), 2 (bloom)",
                      (int)policy->admission);
    }
    const bool is_needed = policy->admission == SL_ADMISSION_BLOOM && policy->slot_count == 0;
    const uint32_t least = is_needed ? 2 : 0;
    if (policy->admit_count < least || policy->admit_count > admit_count_max(policy)) {
        return refuse(reason,
                      "policy.admit_count is %" PRIu32 "; accepted with admission %s is %u to %u",
                      policy->admit_count, sl_table_names_admission[policy->admission], least,
                      admit_count_max(policy));
    }
    if (policy->admit_age_steps >
        (policy->admit_count > 1 || policy->slot_count > 0 ? STEPS_MAX : 0)) {
        return refuse(reason,
                      "policy.admit_age_steps is %" PRIu32
                      "; accepted with an admit_count above 1 or slots is 0 to %u, else 0",
                      policy->admit_age_steps, STEPS_MAX);
    }
    return (draws ? chance > 0 && chance <= 1 : chance == 0)
               ? check_bloom(policy, reason)
               : refuse(reason,
                        "policy.admit_probability is %g; accepted with admission %s is above 0, "
                        "up to 1, else 0",
                        (double)chance, sl_table_names_admission[SL_ADMISSION_PROBABILITY]);
}

static int check_policy(const struct sl_table_spec *spec, struct sl_reason *reason)
{
    const struct sl_policy_spec *policy = &spec->policy;
    if ((uint32_t)policy->order >= SL_POLICY_ORDER_COUNT) {
        return refuse(reason, "policy.order is %d; accepted is 0 (none), 1 (lru), 2 (lfu), 3 (l2)",
                      (int)policy->order);
    }
    if (spec->kind != SL_TABLE_SPARSE) {
        return refuse(reason, "policy is given; accepted except in a sparse table is none");
    }
    if (spec->consistency.mode == SL_CONSISTENCY_BSP && policy->order != SL_POLICY_NONE) {
        return refuse(reason,
                      "policy.order is %s; accepted with BSP is none: rows go for their age, "
                      "count or norm only",
                      sl_table_names_order[policy->order]);
    }
    if (spec->consistency.mode == SL_CONSISTENCY_BSP && policy->ttl_seconds > 0) {
        return refuse(reason, "policy.ttl_seconds is %" PRIu32 "; accepted with BSP is 0",
                      policy->ttl_seconds);
    }
    if (spec->consistency.mode == SL_CONSISTENCY_BSP && has_admission(policy)) {
        return refuse(reason, "policy has an admission; accepted with BSP is none: it counts "
                              "pushes as they arrive");
    }
    if (policy->rows_max > 0 && policy->order == SL_POLICY_NONE) {
        return refuse(reason, "policy.order is none; accepted with rows_max is lru, lfu or l2");
    }
    if (policy->half_life_steps > 0 && policy->order != SL_POLICY_LFU) {
        return refuse(reason,
                      "policy.half_life_steps is %" PRIu32 "; accepted except with order lfu is 0",
                      policy->half_life_steps);
    }
    int err = check_thresholds(policy, reason);
    if (err == SL_OK && has_admission(policy)) {
        err = check_admission(policy, reason);
    }
    return err == SL_OK && has_slots(policy) ? check_slots(policy, reason) : err;
}

int sl_message_check_spec(const struct sl_table_spec *spec, struct sl_reason *reason)
{
    sl_assert(spec != NULL);
    int err = check_name(spec->name, reason);
    if (err == SL_OK) {
        err = check_shape(spec, reason);
    }
    if (err == SL_OK) {
        err = check_precision(spec, reason);
    }
    if (err == SL_OK) {
        err = check_optimizer(&spec->optimizer, reason);
    }
    if (err == SL_OK) {
        err = check_update(&spec->update, spec->optimizer.kind, reason);
    }
    if (err == SL_OK) {
        err = check_initializer(&spec->initializer, reason);
    }
    if (err == SL_OK) {
        err = check_consistency(&spec->consistency, reason);
    }
    if (err == SL_OK && spec->kind == SL_TABLE_KV) {
        err = check_kv(spec, reason);
    }
    if (err == SL_OK && has_policy(spec)) {
        err = check_policy(spec, reason);
    }
    return err;
}

int sl_message_check_known(const struct sl_table_spec *spec, const struct sl_message *opened,
                           struct sl_reason *reason)
{
    const char *unknown =
        spec->reject_nonfinite && !opened->reject_nonfinite ? "reject_nonfinite"
        : has_policy(spec) && opened->knows < 1             ? "policies"
        : has_update(&spec->update) && opened->knows < 2    ? "decay, clip_norm and value_bound"
        : opened->knows < 3 && has_admission(&spec->policy) ? "admission of keys"
        : opened->knows < 3 && spec->policy.ttl_seconds > 0 ? "ttl_seconds"
        : opened->knows < 3 && has_slots(&spec->policy)     ? "slots"
        : opened->knows < 4 && spec->policy.admission == SL_ADMISSION_BLOOM
            ? "admission by a Bloom filter"
        : opened->knows < SL_MESSAGE_SPEC_KNOWS_PRECISION &&
                (spec->values != SL_PRECISION_F32 || spec->slots != SL_PRECISION_F32)
            ? "values and slots other than f32"
            : NULL;
    return unknown == NULL
               ? SL_OK
               : sl_reason_fail(reason, SL_ERR_VERSION,
                                "it does not know %s, so it is older than this client: update its "
                                "software, or open the table without this option",
                                unknown);
}

/* Comparison of two specifications, field by field */

#define DIFFERENCES_BYTES                                                                          \
    (SL_MESSAGE_TEXT_BYTES - 128) /* with the names, they fit into a message */

/* Writes the name of a field's value; false: it is a number. */
static bool print_value_name(const char *part, const char *field, uint64_t value, char text[32])
{
    static const struct {
        const char *part, *field;
        const char *const *names;
        uint32_t count;
    } enums[] = {
        {"", "kind", sl_table_names_kind, SL_TABLE_KIND_COUNT},
        {"", "values", sl_table_names_precision, SL_PRECISION_COUNT},
        {"", "slots", sl_table_names_precision, SL_PRECISION_COUNT},
        {"optimizer", "kind", sl_table_names_optimizer, SL_OPTIMIZER_KIND_COUNT},
        {"update", "decay", sl_table_names_decay, SL_DECAY_KIND_COUNT},
        {"initializer", "kind", sl_table_names_initializer, SL_INITIALIZER_KIND_COUNT},
        {"consistency", "mode", sl_table_names_consistency, SL_CONSISTENCY_MODE_COUNT},
        {"policy", "order", sl_table_names_order, SL_POLICY_ORDER_COUNT},
        {"policy", "admission", sl_table_names_admission, SL_ADMISSION_KIND_COUNT},
    };
    for (size_t i = 0; i < sizeof enums / sizeof enums[0]; i++) {
        if (strcmp(enums[i].part, part) == 0 && strcmp(enums[i].field, field) == 0 &&
            value < enums[i].count) {
            (void)snprintf(text, 32, "%s", enums[i].names[value]);
            return true;
        }
    }
    return false;
}

/* Two specifications, and what is found. */
struct comparison {
    const struct sl_table_spec *existing, *asked;
    char text[DIFFERENCES_BYTES];
    uint32_t unnamed; /* differences without room in the text */
};

static void print_value(const char *part, const struct sl_protobuf_field *field, const void *at,
                        int digits, char text[32])
{
    float real;
    uint64_t value = 0;
    memcpy(&value, at, field->bytes);
    if (field->kind == SL_PROTOBUF_FLOAT) {
        memcpy(&real, at, sizeof real);
        (void)snprintf(text, 32, "%.*g", digits, real == 0 ? 0 : (double)real); /* -0 is 0 */
    } else if (!print_value_name(part, field->name, value, text)) {
        (void)snprintf(text, 32, "%" PRIu64, value);
    }
}

/* The name of a field, as users know it: "optimizer" of its kind, "lr", "policy.ttl_steps". */
static void print_name(const struct comparison *comparison, const char *part, const char *field,
                       char name[64])
{
    const enum sl_initializer_kind kind = comparison->existing->initializer.kind;
    const bool is_initializer = strcmp(part, "initializer") == 0;
    const bool is_kind = strcmp(field, "kind") == 0 || strcmp(field, "mode") == 0;
    if (part[0] != '\0' && is_kind) {
        (void)snprintf(name, 64, "%s", part);
        return;
    }
    if (is_initializer && strcmp(field, "low") == 0) {
        field = kind == SL_INITIALIZER_CONSTANT ? "value"
                : kind >= SL_INITIALIZER_NORMAL ? "mean"
                                                : field;
    } else if (is_initializer && strcmp(field, "high") == 0) {
        field = kind >= SL_INITIALIZER_NORMAL ? "stddev" : field;
    }
    const bool is_short = part[0] == '\0' || strcmp(part, "optimizer") == 0;
    (void)snprintf(name, 64, "%s%s%s", is_short ? "" : part, is_short ? "" : ".", field);
}

static void add_difference(struct comparison *comparison, const char *name, char values[2][32])
{
    const size_t used = strlen(comparison->text);
    const bool is_added = sl_format_add(comparison->text, sizeof comparison->text, "; ",
                                        "%s %s, not %s", name, values[0], values[1]);
    if (!is_added) {
        comparison->text[used] = '\0';
        comparison->unnamed++;
    }
}

/* `part` names the specification's part. */
static void compare(struct comparison *comparison, const struct sl_protobuf_type *type,
                    const char *part, const char *existing, const char *asked)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct sl_protobuf_field *field = &type->fields[i];
        char name[64], texts[2][32];
        if ((field->flags & SL_FIELD_REPEATED) != 0) {
            uint32_t counts[2];
            memcpy(&counts[0], existing + field->count_offset, sizeof counts[0]);
            memcpy(&counts[1], asked + field->count_offset, sizeof counts[1]);
            if (counts[0] != counts[1]) {
                (void)snprintf(name, sizeof name, "%s.%s", part, field->name);
                (void)snprintf(texts[0], sizeof texts[0], "%" PRIu32, counts[0]);
                (void)snprintf(texts[1], sizeof texts[1], "%" PRIu32, counts[1]);
                add_difference(comparison, name, texts);
            }
            for (uint32_t item = 0; item < counts[0] && item < counts[1]; item++) {
                const size_t at = field->offset + (size_t)item * field->bytes;
                (void)snprintf(name, sizeof name, "%s.%s[%" PRIu32 "]", part, field->name, item);
                compare(comparison, field->type, name, existing + at, asked + at);
            }
        } else if (field->kind == SL_PROTOBUF_MESSAGE) {
            compare(comparison, field->type, field->name, existing + field->offset,
                    asked + field->offset);
        } else if (field->kind != SL_PROTOBUF_NAME) {
            /* As few digits as tell them apart. */
            for (int digits = 6; digits <= 9; digits += 3) {
                print_value(part, field, existing + field->offset, digits, texts[0]);
                print_value(part, field, asked + field->offset, digits, texts[1]);
                if (strcmp(texts[0], texts[1]) != 0) {
                    break;
                }
            }
            if (strcmp(texts[0], texts[1]) != 0) {
                print_name(comparison, part, field->name, name);
                add_difference(comparison, name, texts);
            }
        }
    }
}

int sl_message_compare_specs(const struct sl_table_spec *existing,
                             const struct sl_table_spec *asked, struct sl_reason *reason)
{
    sl_assert(existing != NULL);
    sl_assert(asked != NULL);
    if (strncmp(existing->name, asked->name, SL_TABLE_NAME_BYTES) != 0) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "name: it is %.63s, asked for is %.63s",
                              existing->name, asked->name);
    }
    struct comparison comparison = {.existing = existing, .asked = asked};
    compare(&comparison, sl_message_table_spec, "", (const char *)existing, (const char *)asked);
    char more[32] = "";
    if (comparison.unnamed > 0) {
        (void)snprintf(more, sizeof more, "; and %" PRIu32 " more", comparison.unnamed);
    }
    return comparison.text[0] == '\0'
               ? SL_OK
               : sl_reason_fail(reason, SL_ERR_EXISTS, "table %.63s exists with %s%s",
                                existing->name, comparison.text, more);
}

bool sl_message_specs_differ_in_policy(const struct sl_table_spec *existing,
                                       const struct sl_table_spec *asked)
{
    struct sl_table_spec same = *asked;
    same.policy = existing->policy;
    return sl_message_compare_specs(existing, asked, NULL) != 0 &&
           sl_message_compare_specs(existing, &same, NULL) == 0;
}
