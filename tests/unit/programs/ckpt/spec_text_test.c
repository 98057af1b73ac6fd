#include <string.h>

#include "core/hash.h"
#include "programs/ckpt/spec_text.h"
#include "tests/support/unit.h"

/* A float of any bits that is finite. */
static float any_float(uint64_t *random)
{
    for (;;) {
        const uint32_t bits = (uint32_t)sl_hash_random(random);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (value - value == 0.0F) {
            return value;
        }
    }
}

/* From 0 to below 1. */
static float any_power(uint64_t *random)
{
    return (float)(sl_hash_random(random) >> 40) * 0x1p-24F;
}

/* By parts, since what lies between them may be anything. */
static void assert_same(const struct sl_snapshot_table *a, const struct sl_snapshot_table *b)
{
    assert_memory_equal(&a->spec.optimizer, &b->spec.optimizer, sizeof a->spec.optimizer);
    assert_int_equal(a->spec.initializer.kind, b->spec.initializer.kind);
    assert_memory_equal(&a->spec.initializer.low, &b->spec.initializer.low, 2 * sizeof(float));
    assert_true(a->spec.initializer.seed == b->spec.initializer.seed);
    assert_memory_equal(&a->spec.consistency, &b->spec.consistency, sizeof a->spec.consistency);
    assert_int_equal(a->spec.reject_nonfinite, b->spec.reject_nonfinite);
    assert_int_equal(a->spec.values, b->spec.values);
    assert_int_equal(a->spec.slots, b->spec.slots);
    assert_memory_equal(&a->spec.policy, &b->spec.policy, sizeof a->spec.policy);
    assert_memory_equal(&a->spec.update, &b->spec.update, sizeof a->spec.update);
    assert_true(a->step == b->step);
    assert_memory_equal(&a->state, &b->state, sizeof a->state);
}

/* What is read again has the same bits, whatever they are. */
SL_CASE(spec_text__round_trip)
{
    uint64_t random = 3;
    for (uint32_t i = 0; i < 2000; i++) {
        struct sl_snapshot_table table;
        struct sl_snapshot_table again;
        char text[SL_SPEC_TEXT_BYTES];
        memset(&table, 0, sizeof table);
        table.spec.optimizer.kind = (enum sl_optimizer_kind)(i % SL_OPTIMIZER_KIND_COUNT);
        float *floats = &table.spec.optimizer.lr;
        for (uint32_t k = 0; k < 11; k++) {
            floats[k] = any_float(&random); /* lr to lr_power, one behind the other */
        }
        table.spec.optimizer.decay_steps = (uint32_t)sl_hash_random(&random);
        table.spec.optimizer.decay_baseline = any_float(&random);
        table.spec.initializer.kind = (enum sl_initializer_kind)(i % SL_INITIALIZER_KIND_COUNT);
        table.spec.initializer.low = any_float(&random);
        table.spec.initializer.high = any_float(&random);
        table.spec.initializer.seed = sl_hash_random(&random);
        table.spec.consistency.mode = (enum sl_consistency_mode)(i % SL_CONSISTENCY_MODE_COUNT);
        table.spec.consistency.staleness = (uint32_t)sl_hash_random(&random);
        table.spec.consistency.worker_count = (uint32_t)sl_hash_random(&random);
        table.spec.reject_nonfinite = i % 2 == 0;
        table.spec.values = (enum sl_precision)(i % SL_PRECISION_COUNT);
        table.spec.slots = (enum sl_precision)(i / 2 % SL_PRECISION_COUNT);
        table.spec.policy = (struct sl_policy_spec){
            .ttl_steps = (uint32_t)sl_hash_random(&random),
            .protect_steps = (uint32_t)sl_hash_random(&random),
            .count_below = (uint32_t)sl_hash_random(&random),
            .l2_below = any_float(&random),
            .rows_max = sl_hash_random(&random),
            .order = (enum sl_policy_order)(i % SL_POLICY_ORDER_COUNT),
            .half_life_steps = (uint32_t)sl_hash_random(&random),
            .admission = (enum sl_admission_kind)(i % SL_ADMISSION_KIND_COUNT),
            .admit_count = (uint32_t)sl_hash_random(&random),
            .admit_age_steps = (uint32_t)sl_hash_random(&random),
            .admit_probability = any_float(&random),
            .ttl_seconds = (uint32_t)sl_hash_random(&random),
            .slot_shift = (uint32_t)sl_hash_random(&random),
            .slot_bits = (uint32_t)sl_hash_random(&random),
            .slot_count = (uint32_t)(sl_hash_random(&random) % (SL_POLICY_SLOTS_MAX + 1)),
            .keys_expected = sl_hash_random(&random),
            .false_positives = any_float(&random),
        };
        for (uint32_t slot = 0; slot < table.spec.policy.slot_count; slot += 1 + i % 3) {
            table.spec.policy.slots[slot] =
                (struct sl_policy_slot){.ttl_steps = (uint32_t)sl_hash_random(&random),
                                        .admit_count = (uint32_t)sl_hash_random(&random)};
        }
        table.spec.update.decay = (enum sl_decay_kind)(i % SL_DECAY_KIND_COUNT);
        table.spec.update.clip_norm = any_float(&random);
        table.spec.update.value_bound = any_float(&random);
        table.step = sl_hash_random(&random);
        table.state.beta1_power = any_power(&random);
        table.state.beta2_power = any_power(&random);
        sl_spec_text_write(&table, text);
        sl_spec_text_init(&again);
        assert_int_equal(sl_spec_text_read(text, &again, NULL), 0);
        assert_same(&again, &table);
    }
}

SL_CASE(spec_text__refuses)
{
    static const char *const texts[] = {
        "lr",
        "lr=",
        "lr=nan",
        "lr=inf",
        "lr=1x",
        "lr= ",
        "rate=1",
        "optimizer=adm",
        "initializer=0",
        "consistency=ASP",
        "seed=-1",
        "seed=1e3",
        "workers=4294967296",
        "step=18446744073709551616",
        "workers= 4",
        "reject_nonfinite=2",
        "reject_nonfinite=yes",
        "values=fp16",
        "optimizer_slots=1",
        "decay=L2",
        "decay=1",
        "clip_norm=nan",
        "=3",
    };
    struct sl_snapshot_table table;
    for (uint32_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sl_reason reason = {0};
        sl_spec_text_init(&table);
        if (sl_spec_text_read(texts[i], &table, &reason) != SL_ERR_INVALID ||
            reason.text[0] == '\0') {
            fail_msg("accepted: %s", texts[i]);
        }
    }
}

/* Powers follow the betas, unless they are said. */
SL_CASE(spec_text__words_stand_for_themselves)
{
    struct sl_snapshot_table table;
    sl_spec_text_init(&table);
    assert_int_equal(table.spec.optimizer.kind, SL_OPTIMIZER_SGD);
    assert_int_equal(
        sl_spec_text_read("optimizer=adam_async,,beta1=0.5,lr=2,workers=0", &table, NULL), 0);
    assert_true(table.spec.optimizer.beta1 == 0.5F);
    assert_true(table.state.beta1_power == 0.5F);
    assert_true(table.spec.optimizer.lr == 2.0F);
    assert_int_equal(sl_spec_text_read("beta1_power=0.25", &table, NULL), 0);
    assert_true(table.state.beta1_power == 0.25F);
    assert_true(table.spec.optimizer.lr == 2.0F);
    assert_int_equal(sl_spec_text_read("optimizer=adam", &table, NULL), 0);
    assert_true(table.spec.optimizer.lr == sl_optimizer_defaults(SL_OPTIMIZER_ADAM).lr);
    assert_int_equal(sl_spec_text_read("decay=decoupled,clip_norm=2,value_bound=3", &table, NULL),
                     0);
    assert_int_equal(table.spec.update.decay, SL_DECAY_DECOUPLED);
    assert_true(table.spec.update.clip_norm == 2 && table.spec.update.value_bound == 3);
    assert_int_equal(sl_spec_text_read("optimizer=lamb", &table, NULL), 0);
    assert_int_equal(table.spec.update.decay, SL_DECAY_NONE);
    assert_true(table.spec.update.clip_norm == 0 && table.spec.update.value_bound == 0);
}
