#include "programs/ckpt/spec_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format.h"
#include "core/table_names.h"

enum word_kind {
    WORD_F32,
    WORD_POWER,
    WORD_U32,
    WORD_U64,
    WORD_BOOL,
    WORD_OPTIMIZER,
    WORD_CHOICE,
    WORD_SLOTS,
};

/* The names of the values of an enum, from 0 on. */
struct choice {
    const char *const *names;
    uint32_t count;
    const char *accepted;
};

static const struct choice decays = {sl_table_names_decay, SL_DECAY_KIND_COUNT,
                                     "none, l2 or decoupled"};
static const struct choice initializers = {sl_table_names_initializer, SL_INITIALIZER_KIND_COUNT,
                                           "zeros, constant, uniform, normal or truncated_normal"};
static const struct choice modes = {sl_table_names_consistency, SL_CONSISTENCY_MODE_COUNT,
                                    "asp, bsp or ssp"};
static const struct choice orders = {sl_table_names_order, SL_POLICY_ORDER_COUNT,
                                     "none, lru, lfu or l2"};
static const struct choice admissions = {sl_table_names_admission, SL_ADMISSION_KIND_COUNT,
                                         "count, probability or bloom"};
static const struct choice precisions = {sl_table_names_precision, SL_PRECISION_COUNT,
                                         "f32, f16, bf16 or int8"};

struct word {
    const char *name;
    enum word_kind kind;
    size_t offset; /* in struct sl_snapshot_table */
    const struct choice *choice;
};

#define AT(field) offsetof(struct sl_snapshot_table, field)
#define OPT(field)                                                                                 \
    {                                                                                              \
#field, WORD_F32, AT(spec.optimizer.field), NULL                                           \
    }

static const struct word words[] = {
    {"optimizer", WORD_OPTIMIZER, AT(spec.optimizer.kind), NULL},
    OPT(lr),
    OPT(momentum),
    OPT(rho),
    OPT(beta1),
    OPT(beta2),
    OPT(epsilon),
    OPT(weight_decay),
    OPT(initial_accumulator),
    OPT(l1),
    OPT(l2),
    OPT(lr_power),
    {"decay_steps", WORD_U32, AT(spec.optimizer.decay_steps), NULL},
    OPT(decay_baseline),
    {"decay", WORD_CHOICE, AT(spec.update.decay), &decays},
    {"clip_norm", WORD_F32, AT(spec.update.clip_norm), NULL},
    {"value_bound", WORD_F32, AT(spec.update.value_bound), NULL},
    {"initializer", WORD_CHOICE, AT(spec.initializer.kind), &initializers},
    {"a", WORD_F32, AT(spec.initializer.low), NULL},
    {"b", WORD_F32, AT(spec.initializer.high), NULL},
    {"seed", WORD_U64, AT(spec.initializer.seed), NULL},
    {"consistency", WORD_CHOICE, AT(spec.consistency.mode), &modes},
    {"staleness", WORD_U32, AT(spec.consistency.staleness), NULL},
    {"workers", WORD_U32, AT(spec.consistency.worker_count), NULL},
    {"reject_nonfinite", WORD_BOOL, AT(spec.reject_nonfinite), NULL},
    {"values", WORD_CHOICE, AT(spec.values), &precisions},
    {"optimizer_slots", WORD_CHOICE, AT(spec.slots), &precisions},
    {"ttl_steps", WORD_U32, AT(spec.policy.ttl_steps), NULL},
    {"protect_steps", WORD_U32, AT(spec.policy.protect_steps), NULL},
    {"count_below", WORD_U32, AT(spec.policy.count_below), NULL},
    {"l2_below", WORD_F32, AT(spec.policy.l2_below), NULL},
    {"rows_max", WORD_U64, AT(spec.policy.rows_max), NULL},
    {"order", WORD_CHOICE, AT(spec.policy.order), &orders},
    {"half_life_steps", WORD_U32, AT(spec.policy.half_life_steps), NULL},
    {"admission", WORD_CHOICE, AT(spec.policy.admission), &admissions},
    {"admit_count", WORD_U32, AT(spec.policy.admit_count), NULL},
    {"admit_age_steps", WORD_U32, AT(spec.policy.admit_age_steps), NULL},
    {"admit_probability", WORD_F32, AT(spec.policy.admit_probability), NULL},
    {"ttl_seconds", WORD_U32, AT(spec.policy.ttl_seconds), NULL},
    {"slot_shift", WORD_U32, AT(spec.policy.slot_shift), NULL},
    {"slot_bits", WORD_U32, AT(spec.policy.slot_bits), NULL},
    {"slots", WORD_SLOTS, AT(spec.policy.slots), NULL},
    {"keys_expected", WORD_U64, AT(spec.policy.keys_expected), NULL},
    {"false_positives", WORD_F32, AT(spec.policy.false_positives), NULL},
    {"step", WORD_U64, AT(step), NULL},
    {"beta1_power", WORD_POWER, AT(state.beta1_power), NULL},
    {"beta2_power", WORD_POWER, AT(state.beta2_power), NULL},
};
#define WORD_COUNT (sizeof words / sizeof words[0])

/* Writing */

/* The last slot is written in any case: it says how many there are. */
static void write_slots(const struct sl_policy_spec *policy, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < policy->slot_count; i++) {
        const struct sl_policy_slot *slot = &policy->slots[i];
        if (slot->ttl_steps > 0 || slot->admit_count > 0 || i + 1 == policy->slot_count) {
            (void)sl_format_add(text, text_bytes, "/", "%" PRIu32 ":%" PRIu32 ":%" PRIu32, i,
                                slot->ttl_steps, slot->admit_count);
        }
    }
}

static void write_value(const struct word *word, const struct sl_snapshot_table *table, char *text,
                        size_t text_bytes)
{
    const char *at = (const char *)table + word->offset;
    float real;
    uint32_t number;
    uint64_t large;
    memcpy(&real, at, sizeof real);
    memcpy(&number, at, sizeof number);
    switch (word->kind) {
    case WORD_F32:
    case WORD_POWER:
        for (int digits = 6; digits <= 9; digits++) { /* as few as give these bits */
            (void)snprintf(text, text_bytes, "%.*g", digits, (double)real);
            if (strtof(text, NULL) == real) {
                break;
            }
        }
        break;
    case WORD_U32:
        (void)snprintf(text, text_bytes, "%" PRIu32, number);
        break;
    case WORD_U64:
        memcpy(&large, at, sizeof large);
        (void)snprintf(text, text_bytes, "%" PRIu64, large);
        break;
    case WORD_BOOL:
        (void)snprintf(text, text_bytes, "%d", *(const bool *)at);
        break;
    case WORD_OPTIMIZER:
        (void)snprintf(text, text_bytes, "%s", sl_table_names_optimizer[number]);
        break;
    case WORD_CHOICE:
        (void)snprintf(text, text_bytes, "%s", word->choice->names[number]);
        break;
    case WORD_SLOTS:
        write_slots(&table->spec.policy, text, text_bytes);
        break;
    }
}

/* Whether the word says something about this table. */
static bool matters(const struct word *word, const struct sl_table_spec *spec, const char *value)
{
    const enum sl_initializer_kind initializer = spec->initializer.kind;
    const size_t at = word->offset;
    if (word->kind == WORD_OPTIMIZER || word->choice == &initializers || word->choice == &modes) {
        return true;
    }
    if (at > AT(spec.optimizer) && at < AT(spec.optimizer) + sizeof spec->optimizer) {
        return sl_table_names_is_read(spec, word->name);
    }
    if (word->kind == WORD_POWER) {
        return spec->optimizer.kind == SL_OPTIMIZER_ADAM_ASYNC && strcmp(value, "0") != 0;
    }
    if (at == AT(spec.initializer.low)) {
        return initializer != SL_INITIALIZER_ZEROS;
    }
    if (at == AT(spec.initializer.high) || at == AT(spec.initializer.seed)) {
        return initializer > SL_INITIALIZER_CONSTANT;
    }
    return value[0] != '\0' && strcmp(value, "0") != 0 &&
           (word->choice == NULL || strcmp(value, word->choice->names[0]) != 0);
}

static void write_words(const struct sl_snapshot_table *table, bool all,
                        char text[SL_SPEC_TEXT_BYTES])
{
    text[0] = '\0';
    for (uint32_t i = 0; i < WORD_COUNT; i++) {
        char value[SL_SPEC_TEXT_BYTES - 1024];
        write_value(&words[i], table, value, sizeof value);
        if (all || matters(&words[i], &table->spec, value)) {
            (void)sl_format_add(text, SL_SPEC_TEXT_BYTES, ",", "%s=%s", words[i].name, value);
        }
    }
}

void sl_spec_text_write(const struct sl_snapshot_table *table, char text[SL_SPEC_TEXT_BYTES])
{
    write_words(table, true, text);
}

void sl_spec_text_show(const struct sl_snapshot_table *table, char text[SL_SPEC_TEXT_BYTES])
{
    write_words(table, false, text);
}

/* Reading */

void sl_spec_text_init(struct sl_snapshot_table *table)
{
    *table = (struct sl_snapshot_table){.spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SGD)};
    sl_optimizer_state_init(&table->spec.optimizer, &table->state);
}

static int spec_text_refuse(const struct word *word, const char *text, const char *accepted,
                            struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_INVALID, "%s=%.64s: expected %s", word->name, text,
                          accepted);
}

static int read_f32(const struct word *word, const char *text, void *at, struct sl_reason *reason)
{
    char *end;
    const float value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) {
        return spec_text_refuse(word, text, "a number", reason);
    }
    if (word->kind == WORD_POWER && !(value >= 0 && value < 1)) { /* as in sl_snapshot_take_table */
        return spec_text_refuse(word, text, "a number from 0 to below 1", reason);
    }
    memcpy(at, &value, sizeof value);
    return 0;
}

static int read_whole(const struct word *word, const char *text, uint64_t most, uint64_t *out,
                      struct sl_reason *reason)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || *out > most) {
        return spec_text_refuse(
            word, text, most == 1 ? "0 or 1" : "a whole number that is not negative", reason);
    }
    return 0;
}

static int read_optimizer(const struct word *word, const char *text,
                          struct sl_snapshot_table *table, struct sl_reason *reason)
{
    enum sl_optimizer_kind kind;
    if (sl_optimizer_kind_from_name(text, &kind) != 0) {
        return spec_text_refuse(word, text, "the name of an optimizer, such as adagrad", reason);
    }
    table->spec.optimizer = sl_optimizer_defaults(kind);
    table->spec.update = (struct sl_update_spec){.decay = SL_DECAY_NONE};
    sl_optimizer_state_init(&table->spec.optimizer, &table->state);
    return 0;
}

/* Enums have four bytes. */
static int read_choice(const struct word *word, const char *text, char *at,
                       struct sl_reason *reason)
{
    for (uint32_t i = 0; i < word->choice->count; i++) {
        if (strcmp(text, word->choice->names[i]) == 0) {
            memcpy(at, &i, sizeof i);
            return 0;
        }
    }
    return spec_text_refuse(word, text, word->choice->accepted, reason);
}

static int read_slots(const struct word *word, const char *text, struct sl_policy_spec *policy,
                      struct sl_reason *reason)
{
    policy->slot_count = 0;
    memset(policy->slots, 0, sizeof policy->slots);
    for (const char *at = text; *at != '\0';) {
        uint32_t slot, ttl_steps, admit_count;
        int length = 0;
        if (sscanf(at, "%3" SCNu32 ":%10" SCNu32 ":%10" SCNu32 "%n", &slot, &ttl_steps,
                   &admit_count, &length) != 3 ||
            slot >= SL_POLICY_SLOTS_MAX || (at[length] != '\0' && at[length] != '/')) {
            return spec_text_refuse(word, at, "SLOT:TTL_STEPS:ADMIT_COUNT, separated by \"/\"",
                                    reason);
        }
        policy->slots[slot] =
            (struct sl_policy_slot){.ttl_steps = ttl_steps, .admit_count = admit_count};
        policy->slot_count = slot >= policy->slot_count ? slot + 1 : policy->slot_count;
        at += length + (at[length] == '/');
    }
    return 0;
}

static int read_value(const struct word *word, const char *text, struct sl_snapshot_table *table,
                      struct sl_reason *reason)
{
    char *at = (char *)table + word->offset;
    uint64_t large = 0;
    int err = 0;
    switch (word->kind) {
    case WORD_F32:
    case WORD_POWER:
        err = read_f32(word, text, at, reason);
        break;
    case WORD_U32:
        err = read_whole(word, text, UINT32_MAX, &large, reason);
        const uint32_t number = (uint32_t)large;
        memcpy(at, &number, sizeof number);
        break;
    case WORD_U64:
        err = read_whole(word, text, UINT64_MAX, &large, reason);
        memcpy(at, &large, sizeof large);
        break;
    case WORD_BOOL:
        err = read_whole(word, text, 1, &large, reason);
        *(bool *)at = large == 1;
        break;
    case WORD_OPTIMIZER:
        return read_optimizer(word, text, table, reason);
    case WORD_CHOICE:
        return read_choice(word, text, at, reason);
    case WORD_SLOTS:
        return read_slots(word, text, &table->spec.policy, reason);
    }
    return err;
}

/* The powers follow from the betas, unless given. */
static void follow(const struct word *word, struct sl_snapshot_table *table)
{
    if (strcmp(word->name, "beta1") == 0 || strcmp(word->name, "beta2") == 0) {
        sl_optimizer_state_init(&table->spec.optimizer, &table->state);
    }
}

static int read_word(char *item, struct sl_snapshot_table *table, struct sl_reason *reason)
{
    char *equals = strchr(item, '=');
    if (equals != NULL) {
        *equals = '\0';
        for (uint32_t i = 0; i < WORD_COUNT; i++) {
            if (strcmp(item, words[i].name) == 0) {
                int err = read_value(&words[i], equals + 1, table, reason);
                follow(&words[i], table);
                return err;
            }
        }
    }
    return sl_reason_fail(
        reason, SL_ERR_INVALID,
        "\"%.64s\" is none of optimizer=, lr=, momentum=, rho=, beta1=, beta2=, "
        "epsilon=, weight_decay=, initial_accumulator=, l1=, l2=, lr_power=, "
        "decay_steps=, decay_baseline=, decay=, clip_norm=, value_bound=, "
        "initializer=, a=, b=, seed=, "
        "consistency=, staleness=, workers=, reject_nonfinite=, values=, "
        "optimizer_slots=, ttl_steps=, protect_steps=, count_below=, l2_below=, rows_max=, order=, "
        "half_life_steps=, admission=, admit_count=, admit_age_steps=, "
        "admit_probability=, ttl_seconds=, slot_shift=, slot_bits=, slots=, "
        "keys_expected=, false_positives=, step=, beta1_power=, beta2_power=",
        item);
}

int sl_spec_text_read(const char *text, struct sl_snapshot_table *table, struct sl_reason *reason)
{
    char copy[SL_SPEC_TEXT_BYTES];
    if (strlen(text) >= sizeof copy) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the description of a table is longer than %d bytes",
                              SL_SPEC_TEXT_BYTES - 1);
    }
    (void)snprintf(copy, sizeof copy, "%s", text);
    char *rest = copy;
    char *item;
    while ((item = strsep(&rest, ",")) != NULL) {
        int err = item[0] == '\0' ? 0 : read_word(item, table, reason);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}
