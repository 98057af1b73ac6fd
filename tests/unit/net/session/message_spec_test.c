#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "core/table_names.h"
#include "net/session/message_spec.h"
#include "random_message.h"
#include "tests/support/unit.h"

static struct sl_table_spec good_spec(void)
{
    return (struct sl_table_spec){.name = "emb",
                                  .kind = SL_TABLE_SPARSE,
                                  .dim = 8,
                                  .optimizer = {.kind = SL_OPTIMIZER_SGD, .lr = 0.1f}};
}

/* The specification is refused, and the reason names the field. */
static void assert_refused(const struct sl_table_spec *spec, const char *field)
{
    struct sl_reason reason = {0};
    assert_int_equal(sl_message_check_spec(spec, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, field));
}

static void assert_accepted(const struct sl_table_spec *spec)
{
    assert_int_equal(sl_message_check_spec(spec, NULL), SL_OK);
}

SL_CASE(message_check_spec__accepts_random_good_ones)
{
    uint64_t seed = 5;
    for (int i = 0; i < 2000; i++) {
        struct sl_table_spec spec = random_message_spec(&seed);
        assert_accepted(&spec);
    }
    /* What an optimizer does not read may be left 0. */
    struct sl_table_spec bare = {.name = "n", .kind = SL_TABLE_DENSE, .length = 1};
    assert_accepted(&bare);
}

SL_CASE(message_check_spec__refuses_odd_names)
{
    struct sl_table_spec spec = good_spec();
    spec.name[0] = '\0';
    assert_refused(&spec, "name");
    snprintf(spec.name, sizeof spec.name, "%s", "a b");
    assert_refused(&spec, "name");
    snprintf(spec.name, sizeof spec.name, "%s", "a\x80");
    assert_refused(&spec, "name");
    memset(spec.name, 'x', sizeof spec.name);
    assert_refused(&spec, "name");
    spec.name[sizeof spec.name - 1] = '\0';
    assert_accepted(&spec);
}

SL_CASE(message_check_spec__refuses_shapes_outside_the_limits)
{
    struct sl_table_spec spec = good_spec();
    spec.dim = 0;
    assert_refused(&spec, "dim");
    spec.dim = SL_LIMIT_DIM + 1;
    assert_refused(&spec, "dim");
    spec.dim = SL_LIMIT_DIM;
    assert_accepted(&spec);
    spec.length = 1;
    assert_refused(&spec, "length");
    spec.kind = SL_TABLE_DENSE;
    assert_refused(&spec, "dim");
    spec.dim = 0;
    assert_accepted(&spec);
    spec.length = 0;
    assert_refused(&spec, "length");
    spec.length = SL_LIMIT_DENSE_ELEMENTS + 1;
    assert_refused(&spec, "length");
    spec.kind = (enum sl_table_kind)SL_TABLE_KIND_COUNT;
    assert_refused(&spec, "kind");
}

SL_CASE(message_check_spec__wants_a_kv_table_plain)
{
    const struct sl_table_spec good = {.name = "kv", .kind = SL_TABLE_KV, .dim = 4};
    assert_accepted(&good);
    for (uint32_t dim = 0; dim < 10; dim++) {
        struct sl_table_spec spec = good;
        spec.dim = dim;
        if (dim == 1 || dim == 4) {
            assert_accepted(&spec);
        } else {
            assert_refused(&spec, "dim");
        }
    }
    struct sl_table_spec spec = good;
    spec.length = 1;
    assert_refused(&spec, "length");
    spec = good;
    spec.optimizer = (struct sl_optimizer_spec){.kind = SL_OPTIMIZER_SGD, .lr = 1};
    assert_refused(&spec, "optimizer.kind");
    spec = good;
    spec.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_CONSTANT, .value = 1};
    assert_refused(&spec, "initializer.kind");
    spec = good;
    spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP, .worker_count = 1};
    assert_refused(&spec, "consistency.mode");
    spec = good;
    spec.reject_nonfinite = true;
    assert_refused(&spec, "reject_nonfinite is 1; accepted in a KV table is 0");
    const struct sl_update_spec updates[] = {
        {.decay = SL_DECAY_L2}, {.clip_norm = 1}, {.value_bound = 1}};
    for (size_t i = 0; i < sizeof updates / sizeof updates[0]; i++) {
        spec = good;
        spec.update = updates[i];
        assert_refused(&spec, i == 0 ? "update.decay is 1" : "accepted in a KV table are zeros");
    }
    /* Tables of floats and of bytes are not the same. */
    struct sl_reason reason;
    struct sl_table_spec bytes = good;
    bytes.dim = 1;
    assert_int_equal(sl_message_compare_specs(&good, &bytes, &reason), SL_ERR_EXISTS);
    assert_non_null(strstr(reason.text, "dim"));
}

SL_CASE(message_check_spec__refuses_each_bad_hyper_parameter)
{
    static const struct {
        size_t offset;
        const char *field;
        float bad;
    } cases[] = {
        {offsetof(struct sl_optimizer_spec, lr), "optimizer.lr", 0},
        {offsetof(struct sl_optimizer_spec, lr), "optimizer.lr", -1},
        {offsetof(struct sl_optimizer_spec, momentum), "optimizer.momentum", 1},
        {offsetof(struct sl_optimizer_spec, rho), "optimizer.rho", 1.01f},
        {offsetof(struct sl_optimizer_spec, beta1), "optimizer.beta1", 1},
        {offsetof(struct sl_optimizer_spec, beta2), "optimizer.beta2", -0.1f},
        {offsetof(struct sl_optimizer_spec, epsilon), "optimizer.epsilon", -1e-9f},
        {offsetof(struct sl_optimizer_spec, weight_decay), "optimizer.weight_decay", -1},
        {offsetof(struct sl_optimizer_spec, initial_accumulator), "initial_accumulator", -1},
        {offsetof(struct sl_optimizer_spec, l1), "optimizer.l1", -1},
        {offsetof(struct sl_optimizer_spec, l2), "optimizer.l2", -1},
        {offsetof(struct sl_optimizer_spec, lr_power), "optimizer.lr_power", 0.5f},
        {offsetof(struct sl_optimizer_spec, decay_baseline), "optimizer.decay_baseline", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float bad[] = {cases[i].bad, NAN, INFINITY, -INFINITY};
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
            struct sl_table_spec spec = good_spec();
            memcpy((char *)&spec.optimizer + cases[i].offset, &bad[b], sizeof bad[b]);
            assert_refused(&spec, cases[i].field);
        }
    }
    struct sl_table_spec spec = good_spec();
    spec.optimizer.kind = (enum sl_optimizer_kind)SL_OPTIMIZER_KIND_COUNT;
    assert_refused(&spec, "optimizer.kind");
    spec.optimizer.kind = SL_OPTIMIZER_ADAGRAD_DECAY;
    assert_refused(&spec, "optimizer.decay_baseline");
    spec.optimizer.decay_baseline = 0.1f;
    assert_refused(&spec, "optimizer.decay_steps");
    spec.optimizer.decay_steps = 1;
    spec.optimizer.initial_accumulator = 0.1f;
    assert_accepted(&spec);
}

SL_CASE(message_check_spec__accepts_the_defaults)
{
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        struct sl_table_spec spec = good_spec();
        spec.optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)kind);
        assert_int_equal(spec.optimizer.kind, kind);
        assert_accepted(&spec);
    }
}

/* A coordinate whose first gradient is 0 would be 0 / 0 from then on. */
SL_CASE(message_check_spec__refuses_what_divides_by_zero)
{
    static const enum sl_optimizer_kind by_epsilon[] = {
        SL_OPTIMIZER_ADAM, SL_OPTIMIZER_ADAMW,   SL_OPTIMIZER_ADAM_ASYNC, SL_OPTIMIZER_ROWWISE_ADAM,
        SL_OPTIMIZER_LAMB, SL_OPTIMIZER_RMSPROP, SL_OPTIMIZER_ADADELTA};
    struct sl_table_spec spec = good_spec();
    for (size_t i = 0; i < sizeof by_epsilon / sizeof by_epsilon[0]; i++) {
        spec.optimizer = sl_optimizer_defaults(by_epsilon[i]);
        spec.optimizer.epsilon = 0;
        assert_refused(&spec, "optimizer.epsilon is 0; accepted is > 0");
        spec.optimizer.epsilon = 1e-30F;
        assert_accepted(&spec);
    }
    static const enum sl_optimizer_kind by_either[] = {
        SL_OPTIMIZER_ADAGRAD, SL_OPTIMIZER_ADAGRAD_DECAY, SL_OPTIMIZER_ROWWISE_ADAGRAD};
    for (size_t i = 0; i < sizeof by_either / sizeof by_either[0]; i++) {
        spec.optimizer = sl_optimizer_defaults(by_either[i]);
        spec.optimizer.epsilon = 0;
        assert_accepted(&spec);
        spec.optimizer.initial_accumulator = 0;
        assert_refused(&spec, "one of them > 0");
        spec.optimizer.epsilon = 1e-8F;
        assert_accepted(&spec);
    }
    /* Where nothing is divided by it. */
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_FTRL);
    spec.optimizer.epsilon = 0;
    spec.optimizer.initial_accumulator = 0;
    assert_accepted(&spec);
}

SL_CASE(message_check_spec__refuses_bad_updates)
{
    static const float bad[] = {-1, NAN, INFINITY};
    struct sl_table_spec spec = good_spec();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spec.update = (struct sl_update_spec){.clip_norm = bad[i]};
        assert_refused(&spec, "update.clip_norm");
        spec.update = (struct sl_update_spec){.value_bound = bad[i]};
        assert_refused(&spec, "update.value_bound");
    }
    spec.update = (struct sl_update_spec){.decay = (enum sl_decay_kind)SL_DECAY_KIND_COUNT};
    assert_refused(&spec, "update.decay is 3; accepted is 0 to 2");
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        spec = good_spec();
        spec.optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)kind);
        spec.update = (struct sl_update_spec){.clip_norm = 1, .value_bound = 1};
        assert_accepted(&spec);
        spec.update.decay = SL_DECAY_DECOUPLED;
        switch (spec.optimizer.kind) {
        case SL_OPTIMIZER_SUM:
            assert_refused(&spec, "since it has no learning rate");
            break;
        case SL_OPTIMIZER_ADAMW:
        case SL_OPTIMIZER_LAMB:
        case SL_OPTIMIZER_FTRL:
        case SL_OPTIMIZER_FTRL_GROUP:
            assert_refused(&spec, "since it has its own decay");
            break;
        default:
            assert_accepted(&spec);
        }
    }
}

SL_CASE(message_check_spec__refuses_bad_initializers)
{
    struct sl_table_spec spec = good_spec();
    spec.initializer.kind = (enum sl_initializer_kind)SL_INITIALIZER_KIND_COUNT;
    assert_refused(&spec, "initializer.kind");
    spec.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_CONSTANT, .value = NAN};
    assert_refused(&spec, "initializer.low");
    spec.initializer =
        (struct sl_initializer_spec){.kind = SL_INITIALIZER_UNIFORM, .low = 1, .high = 1};
    assert_refused(&spec, "low < high");
    spec.initializer.low = -3e38f;
    spec.initializer.high = 3e38f;
    assert_refused(&spec, "low < high");
    spec.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_NORMAL, .stddev = -1};
    assert_refused(&spec, "initializer.stddev");
    for (int kind = SL_INITIALIZER_NORMAL; kind <= SL_INITIALIZER_TRUNCATED_NORMAL; kind++) {
        spec.initializer = (struct sl_initializer_spec){
            .kind = (enum sl_initializer_kind)kind, .mean = -1e38F, .stddev = 3e37F};
        assert_refused(&spec, "|mean| + 9 stddev");
        spec.initializer.stddev = 2e37F;
        assert_accepted(&spec);
    }
}

SL_CASE(message_check_spec__wants_workers_where_clocks_count)
{
    struct sl_table_spec spec = good_spec();
    spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_ASP, .worker_count = 1};
    assert_refused(&spec, "worker_count");
    spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_ASP, .staleness = 1};
    assert_refused(&spec, "staleness");
    spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP};
    assert_refused(&spec, "worker_count");
    spec.consistency.worker_count = SL_LIMIT_WORKERS + 1;
    assert_refused(&spec, "worker_count");
    spec.consistency.worker_count = SL_LIMIT_WORKERS;
    assert_accepted(&spec);
    spec.consistency.staleness = 1;
    assert_refused(&spec, "staleness");
    spec.consistency.mode = SL_CONSISTENCY_SSP;
    assert_accepted(&spec);
    spec.consistency.mode = (enum sl_consistency_mode)SL_CONSISTENCY_MODE_COUNT;
    assert_refused(&spec, "consistency.mode");
}

/* text: the reason that names what differs. */
static void assert_differs(const struct sl_table_spec *existing, const struct sl_table_spec *asked,
                           const char *text)
{
    struct sl_reason reason = {0};
    assert_int_equal(sl_message_compare_specs(existing, asked, &reason), SL_ERR_EXISTS);
    assert_string_equal(reason.text, text);
}

SL_CASE(message_compare_specs__names_all_differences)
{
    struct sl_table_spec existing = good_spec();
    struct sl_table_spec asked = good_spec();
    assert_int_equal(sl_message_compare_specs(&existing, &asked, NULL), SL_OK);
    existing.optimizer.kind = SL_OPTIMIZER_ADAGRAD;
    asked.optimizer.kind = SL_OPTIMIZER_SGD;
    asked.optimizer.lr = 0.25F;
    asked.dim = existing.dim + 1;
    asked.consistency = (struct sl_consistency_spec){SL_CONSISTENCY_SSP, 2, 3};
    existing.consistency = (struct sl_consistency_spec){SL_CONSISTENCY_BSP, 0, 2};
    char text[256];
    snprintf(text, sizeof text,
             "table emb exists with dim %u, not %u; optimizer adagrad, not sgd; lr 0.1, not 0.25; "
             "consistency bsp, not ssp; consistency.staleness 0, not 2; "
             "consistency.worker_count 2, not 3",
             existing.dim, asked.dim);
    assert_differs(&existing, &asked, text);

    existing = asked = good_spec();
    asked.optimizer.lr = nextafterf(existing.optimizer.lr, 1);
    asked.initializer.seed = UINT64_MAX;
    asked.update.decay = SL_DECAY_DECOUPLED;
    assert_differs(&existing, &asked,
                   "table emb exists with lr 0.100000001, not 0.100000009; initializer.seed 0, "
                   "not 18446744073709551615; update.decay none, not decoupled");

    existing = asked = good_spec();
    existing.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_NORMAL, .stddev = 1};
    asked.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_NORMAL, .mean = 2};
    assert_differs(&existing, &asked,
                   "table emb exists with initializer.mean 0, not 2; initializer.stddev 1, not 0");
    snprintf(asked.name, sizeof asked.name, "%s", "other");
    assert_differs(&existing, &asked, "name: it is emb, asked for is other");
}

/* The text of a refusal has a limit (SL_MESSAGE_TEXT_BYTES). */
SL_CASE(message_compare_specs__counts_the_differences_without_room)
{
    struct sl_reason reason = {0};
    struct sl_table_spec existing = good_spec();
    memset(existing.name, 'n', sizeof existing.name - 1);
    struct sl_table_spec asked = existing;
    existing.policy.slot_count = asked.policy.slot_count = SL_POLICY_SLOTS_MAX;
    for (uint32_t i = 0; i < SL_POLICY_SLOTS_MAX; i++) {
        asked.policy.slots[i].ttl_steps = UINT32_MAX;
    }
    assert_int_equal(sl_message_compare_specs(&existing, &asked, &reason), SL_ERR_EXISTS);
    assert_true(strlen(reason.text) < SL_MESSAGE_TEXT_BYTES);
    uint32_t named = 0, unnamed = 0;
    for (const char *at = reason.text; (at = strstr(at, ".ttl_steps 0, not 4294967295")) != NULL;) {
        at++;
        named++;
    }
    const char *more = strstr(reason.text, "; and ");
    assert_non_null(more);
    assert_int_equal(sscanf(more, "; and %u more", &unnamed), 1);
    assert_int_equal(named + unnamed, SL_POLICY_SLOTS_MAX);
}

/* Every byte of a specification counts, but for padding, and for what is behind the name's NUL. */
SL_CASE(message_compare_specs__sees_every_field)
{
    uint64_t seed = 6;
    const size_t fields_start = offsetof(struct sl_table_spec, kind);
    size_t differing = 0;
    struct sl_table_spec existing = good_spec();
    existing.policy.slot_count = SL_POLICY_SLOTS_MAX;
    for (size_t at = fields_start; at + 4 <= sizeof existing; at += 4) {
        struct sl_table_spec asked = existing;
        uint32_t other = 0x3f000000u | (uint32_t)(1 + sl_hash_random(&seed) % 1000);
        memcpy((char *)&asked + at, &other, sizeof other);
        differing += sl_message_compare_specs(&existing, &asked, NULL) != SL_OK;
    }
    const size_t words = (sizeof existing - fields_start) / 4;
    assert_true(words - differing <= 3); /* padding before seed, behind the policy, at the end */
}

/* A policy that is accepted otherwise. */
static void check_bsp(struct sl_table_spec spec)
{
    const struct sl_policy_spec *policy = &spec.policy;
    char refused[128];
    spec.consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP, .worker_count = 1};
    (void)snprintf(refused, sizeof refused,
                   "policy.order is %s; accepted with BSP is none: rows go for their age, "
                   "count or norm only",
                   sl_table_names_order[policy->order]);
    if (policy->order != SL_POLICY_NONE) {
        assert_refused(&spec, refused);
    } else if (policy->admit_count > 0 || policy->admission != SL_ADMISSION_COUNT) {
        assert_refused(&spec, "policy has an admission; accepted with BSP is none: it counts "
                              "pushes as they arrive");
    } else if (policy->ttl_seconds > 0) {
        assert_refused(&spec, "policy.ttl_seconds is 4294967295; accepted with BSP is 0");
    } else {
        assert_int_equal(sl_message_check_spec(&spec, NULL), 0);
    }
}

struct policy_case {
    struct sl_policy_spec policy;
    const char *refused; /* NULL: accepted */
};

static void check_policies(const struct policy_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct sl_table_spec spec = {
            .name = "t", .kind = SL_TABLE_SPARSE, .dim = 1, .policy = cases[i].policy};
        if (cases[i].refused != NULL) {
            assert_refused(&spec, cases[i].refused);
            continue;
        }
        assert_int_equal(sl_message_check_spec(&spec, NULL), 0);
        check_bsp(spec);
        spec = (struct sl_table_spec){
            .name = "t", .kind = SL_TABLE_DENSE, .length = 1, .policy = cases[i].policy};
        assert_refused(&spec, "policy is given; accepted except in a sparse table is none");
    }
}

SL_CASE(check_spec__of_policies)
{
    static const struct policy_case cases[] = {
        {{.ttl_steps = 1}, NULL},
        {{.ttl_steps = 5, .protect_steps = 5, .count_below = 2, .l2_below = 0.5F}, NULL},
        {{.order = SL_POLICY_L2}, NULL},
        {{.rows_max = UINT64_MAX, .order = SL_POLICY_LFU, .half_life_steps = 1}, NULL},
        {{.ttl_steps = 4, .protect_steps = 5},
         "policy.ttl_steps is 4, protect_steps is 5; accepted is a ttl_steps of at least "
         "protect_steps, or 0"},
        {{.count_below = 1}, "policy.protect_steps is 0; accepted with policy.count_below is > 0"},
        {{.l2_below = 1}, "policy.protect_steps is 0; accepted with policy.l2_below is > 0"},
        {{.l2_below = -1, .protect_steps = 1}, "policy.l2_below is -1; accepted is >= 0"},
        {{.l2_below = INFINITY, .protect_steps = 1}, "policy.l2_below is inf; accepted is >= 0"},
        {{.ttl_steps = (1U << 31) + 1},
         "policy.ttl_steps is 2147483649; accepted is 0 to 2147483648"},
        {{.rows_max = 1}, "policy.order is none; accepted with rows_max is lru, lfu or l2"},
        {{.order = (enum sl_policy_order)4},
         "policy.order is 4; accepted is 0 (none), 1 (lru), 2 (lfu), 3 (l2)"},
        {{.order = SL_POLICY_LRU, .half_life_steps = 7},
         "policy.half_life_steps is 7; accepted except with order lfu is 0"},
    };
    check_policies(cases, sizeof cases / sizeof cases[0]);
}

SL_CASE(check_spec__of_admission_and_slots)
{
    static const struct policy_case cases[] = {
        {{.admit_count = 1U << 31, .admit_age_steps = 1U << 31}, NULL},
        {{.admission = SL_ADMISSION_PROBABILITY, .admit_probability = 1}, NULL},
        {{.admit_count = (1U << 31) + 1},
         "policy.admit_count is 2147483649; accepted with admission count is 0 to 2147483648"},
        {{.admission = SL_ADMISSION_PROBABILITY, .admit_probability = 0.5F, .admit_count = 2},
         "policy.admit_count is 2; accepted with admission probability is 0 to 0"},
        {{.admit_count = 1, .admit_age_steps = 5},
         "policy.admit_age_steps is 5; accepted with an admit_count above 1 or slots is 0 to "
         "2147483648, else 0"},
        {{.ttl_seconds = UINT32_MAX}, NULL},
        {{.slot_shift = 56, .slot_bits = 8, .slot_count = 256, .slots[255].ttl_steps = 1}, NULL},
        {{.slot_count = 1}, "policy.slot_bits is 0; accepted with slots is 1 to 8"},
        {{.slot_bits = 9, .slot_count = 1}, "policy.slot_bits is 9; accepted with slots is 1 to 8"},
        {{.slot_bits = 2},
         "policy.slot_count is 0; accepted with slot_bits 2 is 1 to 4, since a key has no other "
         "slot"},
        {{.slot_bits = 2, .slot_count = 5},
         "policy.slot_count is 5; accepted with slot_bits 2 is 1 to 4, since a key has no other "
         "slot"},
        {{.slot_shift = 57, .slot_bits = 8, .slot_count = 1},
         "policy.slot_shift is 57; accepted with slot_bits 8 is 0 to 56, since a key has 64 bits"},
        {{.slot_bits = 1, .slot_count = 2, .protect_steps = 5, .slots[1].ttl_steps = 4},
         "policy.slots[1].ttl_steps is 4; accepted is 0, or protect_steps to 2147483648"},
        {{.slot_bits = 1,
          .slot_count = 1,
          .slots[0].admit_count = 2,
          .admission = SL_ADMISSION_PROBABILITY,
          .admit_probability = 0.5F},
         "policy.slots[0].admit_count is 2; accepted with admission probability is 0 to 0"},
        {{.admit_probability = 0.5F},
         "policy.admit_probability is 0.5; accepted with admission probability is above 0, up to "
         "1, else 0"},
        {{.admission = SL_ADMISSION_PROBABILITY},
         "policy.admit_probability is 0; accepted with admission probability is above 0, up to 1, "
         "else 0"},
        {{.admission = SL_ADMISSION_PROBABILITY, .admit_probability = NAN},
         "policy.admit_probability is nan; accepted with admission probability is above 0, up to "
         "1, else 0"},
        {{.admission = (enum sl_admission_kind)3},
         "policy.admission is 3; accepted is 0 (count), 1 (probability), 2 (bloom)"},
    };
    check_policies(cases, sizeof cases / sizeof cases[0]);
}

SL_CASE(check_spec__of_admission_by_a_bloom_filter)
{
#define BLOOM .admission = SL_ADMISSION_BLOOM
    static const struct policy_case cases[] = {
        {{BLOOM, .admit_count = 2, .keys_expected = 1}, NULL},
        {{BLOOM, .admit_count = 15, .admit_age_steps = 1U << 31, .keys_expected = 1ULL << 33,
          .false_positives = 1e-6F},
         NULL},
        {{BLOOM, .keys_expected = 1, .slot_bits = 1, .slot_count = 1, .slots[0].admit_count = 15},
         NULL},
        {{BLOOM, .admit_count = 16, .keys_expected = 1},
         "policy.admit_count is 16; accepted with admission bloom is 2 to 15"},
        {{BLOOM, .admit_count = 1, .keys_expected = 1},
         "policy.admit_count is 1; accepted with admission bloom is 2 to 15"},
        {{BLOOM, .keys_expected = 1, .slot_bits = 1, .slot_count = 1, .slots[0].admit_count = 16},
         "policy.slots[0].admit_count is 16; accepted with admission bloom is 0 to 15"},
        {{BLOOM, .admit_count = 2},
         "policy.keys_expected is 0; accepted with admission bloom is 1 to 8589934592, else 0"},
        {{BLOOM, .admit_count = 2, .keys_expected = (1ULL << 33) + 1},
         "policy.keys_expected is 8589934593; accepted with admission bloom is 1 to 8589934592, "
         "else "
         "0"},
        {{.admit_count = 2, .keys_expected = 5},
         "policy.keys_expected is 5; accepted with admission bloom is 1 to 8589934592, else 0"},
        {{BLOOM, .admit_count = 2, .keys_expected = 1, .false_positives = 0.51F},
         "policy.false_positives is 0.51; accepted with admission bloom is 0.000001 to 0.5, or 0 "
         "for "
         "0.01, else 0"},
        {{BLOOM, .admit_count = 2, .keys_expected = 1, .false_positives = 1e-7F},
         "policy.false_positives is 1e-07; accepted with admission bloom is 0.000001 to 0.5, or 0 "
         "for "
         "0.01, else 0"},
        {{BLOOM, .admit_count = 2, .keys_expected = 1, .false_positives = NAN},
         "policy.false_positives is nan; accepted with admission bloom is 0.000001 to 0.5, or 0 "
         "for "
         "0.01, else 0"},
        {{.false_positives = 0.5F},
         "policy.false_positives is 0.5; accepted with admission bloom is 0.000001 to 0.5, or 0 "
         "for "
         "0.01, else 0"},
        {{BLOOM, .admit_count = 2, .keys_expected = 1, .admit_probability = 0.5F},
         "policy.admit_probability is 0.5; accepted with admission probability is above 0, up to "
         "1, else 0"},
    };
#undef BLOOM
    check_policies(cases, sizeof cases / sizeof cases[0]);
}

SL_CASE(compare_specs__names_the_difference_of_policies)
{
    struct sl_table_spec a = {.name = "t", .dim = 1, .policy.ttl_steps = 10};
    struct sl_table_spec b = a;
    assert_int_equal(sl_message_compare_specs(&a, &b, NULL), 0);
    b.policy.ttl_steps = 20;
    b.policy.order = SL_POLICY_LFU;
    assert_differs(&a, &b,
                   "table t exists with policy.ttl_steps 10, not 20; policy.order none, not lfu");
    b = a;
    b.policy.slot_count = 7;
    assert_differs(&a, &b, "table t exists with policy.slots 0, not 7");
    a.policy.slot_count = 7;
    a.policy.slots[6].admit_count = 2;
    a.policy.slots[1].ttl_steps = 9;
    assert_differs(&a, &b,
                   "table t exists with policy.slots[1].ttl_steps 9, not 0; "
                   "policy.slots[6].admit_count 2, not 0");
}

SL_CASE(check_known__admission_of_keys_needs_a_peer_of_this_release)
{
    struct sl_reason reason;
    const struct sl_message peer = {.knows = 2};
    struct sl_table_spec spec = {.name = "t", .policy.ttl_steps = 10};
    assert_int_equal(sl_message_check_known(&spec, &peer, &reason), 0);
    spec.policy.admit_count = 3;
    assert_int_equal(sl_message_check_known(&spec, &peer, &reason), SL_ERR_VERSION);
    assert_non_null(strstr(reason.text, "admission of keys"));
    spec.policy = (struct sl_policy_spec){.ttl_seconds = 3};
    assert_int_equal(sl_message_check_known(&spec, &peer, &reason), SL_ERR_VERSION);
    assert_non_null(strstr(reason.text, "ttl_seconds"));
}

SL_CASE(check_known__a_bloom_filter_needs_a_peer_of_this_release)
{
    struct sl_reason reason;
    const struct sl_table_spec spec = {
        .name = "t",
        .policy = {.admission = SL_ADMISSION_BLOOM, .admit_count = 2, .keys_expected = 9}};
    const struct sl_message older = {.knows = 3}, present = {.knows = 4};
    assert_int_equal(sl_message_check_known(&spec, &older, &reason), SL_ERR_VERSION);
    assert_non_null(strstr(reason.text, "admission by a Bloom filter"));
    assert_int_equal(sl_message_check_known(&spec, &present, &reason), 0);
}
