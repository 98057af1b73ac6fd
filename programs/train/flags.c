#include "programs/train/flags.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/number.h"
#include "config/settings_cli.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/table_names.h"
#include "reactor/topology.h"

#define TIMEOUT_SECONDS_MAX 4294 /* starling.h bounds a step's deadline */
#define TIMEOUT_LEAST       0.1
#define STALENESS_MAX       1000000000
#define SEED_MAX            9007199254740992.0 /* 2^53: exact as a double */

static const struct sl_model *const MODELS[] = {&sl_model_lr, &sl_model_fm, &sl_model_deepfm};

/* The values that are not in struct sl_flags as given. */
struct raw {
    int format, model, optimizer, order, decay, admission, values, slots, encoding;
    const char *consistency;
    uint32_t staleness;
    struct sl_optimizer_spec spec;
    uint64_t step_timeout_ns, start_timeout_ns, barrier_timeout_ns;
};

static struct raw raw;
static struct sl_flags values;

static bool parse_hidden(const char *text, void *target)
{
    uint32_t *hidden = target;
    const char *comma = strchr(text, ',');
    char first[16];
    if (comma == NULL || (size_t)(comma - text) >= sizeof first) {
        return false;
    }
    (void)snprintf(first, sizeof first, "%.*s", (int)(comma - text), text);
    return sl_number_parse_u32(first, 1, SL_MODEL_HIDDEN_MAX, &hidden[0]) &&
           sl_number_parse_u32(comma + 1, 1, SL_MODEL_HIDDEN_MAX, &hidden[1]);
}

/* StarServer's names stay for ever. */
static bool parse_protocol(const char *text, void *target)
{
    const bool is_per_table = strcmp(text, "per-table") == 0 || strcmp(text, "star_server") == 0;
    *(enum sl_protocol *)target = is_per_table ? SL_PROTOCOL_PER_TABLE : SL_PROTOCOL_BATCHED;
    return is_per_table || strcmp(text, "batched") == 0 || strcmp(text, "star_server_lite") == 0;
}

static const struct sl_cli_option OPTIONS[] = {
    {.kind = SL_CLI_SECTION, .name = "Data"},
    SL_CLI_OPTION(
        STRINGS, &values.data, .name = "data", .variable = "", .metavar = "FILE...",
        .help = "Training data, the same list for every worker. Each worker reads its share of the "
                "bytes. Of a folder, the files whose names begin neither with _ nor with ."),
    SL_CLI_OPTION(STRINGS, &values.test, .name = "test", .variable = "", .metavar = "FILE...",
                  .help = "Data on which worker 0 evaluates the model after the last epoch."),
    SL_CLI_OPTION(F64, &values.training.test_every, .name = "test-every", .metavar = "EPOCHS",
                  .preset = "0", .least = 0, .most = 1e9,
                  .help =
                      "Worker 0 also evaluates while it trains, each time after so many epochs; "
                      "0.25: four times an epoch. 0: only after the last one."),
    SL_CLI_OPTION(U32, &values.training.patience, .name = "patience", .metavar = "N", .preset = "0",
                  .least = 0, .most = UINT32_MAX,
                  .help = "End the training after N evaluations of --test-every without a better "
                          "AUC. 0: never."),
    SL_CLI_OPTION(
        CHOICE, &raw.format, .name = "format", .choices = "libsvm|libffm|criteo",
        .help = "libsvm: LABEL INDEX:VALUE ...; libffm: LABEL FIELD:INDEX:VALUE ...; criteo: label,"
                " 13 integers, 26 hexadecimal words, separated by tabs."),
    SL_CLI_OPTION(U32, &values.training.epochs, .name = "epochs", .preset = "1",
                  .help = "Passes over the data.", .least = 1, .most = 1e9),
    SL_CLI_OPTION(U32, &values.training.batch_rows, .name = "batch-size", .preset = "64",
                  .help = "Rows of a batch. Gradients are sums over them.", .least = 1,
                  .most = 1 << 20),

    {.kind = SL_CLI_SECTION, .name = "Model"},
    SL_CLI_OPTION(CHOICE, &raw.model, .name = "model", .choices = "lr|fm|deepfm",
                  .help = "Logistic regression, factorization machine, or DeepFM."),
    SL_CLI_OPTION(U32, &values.training.shape.factors, .name = "factors", .preset = "8",
                  .help = "Columns of an embedding (fm, deepfm).", .least = 1,
                  .most = SL_MODEL_FACTORS_MAX),
    SL_CLI_OPTION(PARSED, &values.training.shape.hidden, .name = "hidden", .preset = "64,32",
                  .parse = parse_hidden, .accepts = "N,N, each from 1 to 4096", .metavar = "N,N",
                  .help = "Units of the two hidden layers (deepfm)."),
    SL_CLI_OPTION(
        U32, &values.training.shape.fields, .name = "fields", .preset = "0",
        .help = "Most features of a row. 0: from the format, else of deepfm from the first row, of "
                "others no limit.",
        .least = 0, .most = SL_MODEL_FIELDS_MAX),
    SL_CLI_OPTION(U64, &values.training.shape.seed, .name = "seed", .preset = "1",
                  .help = "Seed of the initial parameters; the same for all workers.", .least = 0,
                  .most = SEED_MAX),

    {.kind = SL_CLI_SECTION, .name = "Optimizer, on the servers (the defaults depend on it)"},
    SL_CLI_OPTION(
        CHOICE, &raw.optimizer, .name = "optimizer", .metavar = "NAME",
        .choices = "sum|sgd|momentum|adagrad|adagrad_decay|rmsprop|adam|adamw|adam_async|ftrl|"
                   "ftrl_group|rowwise_adagrad|rowwise_adam|adadelta|lion|lamb",
        .help = "sum, sgd, momentum, adagrad, adagrad_decay, rmsprop, adam, adamw, adam_async, "
                "ftrl, ftrl_group, rowwise_adagrad, rowwise_adam, adadelta, lion or lamb. "
                "With sum the worker sends -lr times the gradient."),
    SL_CLI_OPTION(
        F32, &raw.spec.lr, .name = "lr",
        .help =
            "Learning rate. With the adagrad family by the model: lr 0.07, fm 0.04, deepfm 0.01. "
            "A restored job keeps the rate of its tables; a given one scales its pushes.",
        .least = 1e-12, .most = 1e6),
    SL_CLI_OPTION(F32, &raw.spec.momentum, .name = "momentum", .help = "momentum, rmsprop.",
                  .least = 0, .most = 0.999999),
    SL_CLI_OPTION(F32, &raw.spec.rho, .name = "rho", .help = "rmsprop, adadelta, adagrad_decay.",
                  .least = 0, .most = 1),
    SL_CLI_OPTION(F32, &raw.spec.beta1, .name = "beta1",
                  .help = "The adam family (adam, adamw, adam_async, rowwise_adam, lamb), lion.",
                  .least = 0, .most = 0.999999),
    SL_CLI_OPTION(F32, &raw.spec.beta2, .name = "beta2", .help = "The adam family, lion.",
                  .least = 0, .most = 0.999999),
    SL_CLI_OPTION(F32, &raw.spec.epsilon, .name = "epsilon",
                  .help = "The adagrad family (adagrad, adagrad_decay, rowwise_adagrad), the adam "
                          "family, rmsprop, adadelta.",
                  .least = 0, .most = 1),
    SL_CLI_OPTION(F32, &raw.spec.weight_decay, .name = "weight-decay",
                  .help = "adamw, lamb, and optimizers with --decay.", .least = 0, .most = 1e6),
    SL_CLI_OPTION(CHOICE, &raw.decay, .name = "decay", .choices = "none|l2|decoupled",
                  .help = "Of --weight-decay. l2: it times the value is added to the gradient; "
                          "decoupled: the value is multiplied by 1 - lr times it. Not with sum, "
                          "adamw, lamb, ftrl, ftrl_group."),
    SL_CLI_OPTION(F32, &values.training.tables.update.clip_norm, .name = "clip-norm", .preset = "0",
                  .help = "Longest gradient of a row; a longer one is scaled. 0: no limit.",
                  .least = 0, .most = 1e12),
    SL_CLI_OPTION(F32, &values.training.tables.update.value_bound, .name = "value-bound",
                  .preset = "0",
                  .help = "Largest absolute value of a parameter after an update. 0: no limit.",
                  .least = 0, .most = 1e12),
    SL_CLI_OPTION(F32, &raw.spec.initial_accumulator, .name = "initial-accumulator",
                  .help = "The adagrad family, ftrl, ftrl_group.", .least = 0, .most = 1e12),
    SL_CLI_OPTION(F32, &raw.spec.l1, .name = "l1", .help = "ftrl, ftrl_group.", .least = 0,
                  .most = 1e12),
    SL_CLI_OPTION(F32, &raw.spec.l2, .name = "l2", .help = "ftrl, ftrl_group.", .least = 0,
                  .most = 1e12),
    SL_CLI_OPTION(F32, &raw.spec.lr_power, .name = "lr-power", .help = "ftrl, ftrl_group.",
                  .least = -10, .most = 0),
    SL_CLI_OPTION(U32, &raw.spec.decay_steps, .name = "decay-steps", .preset = "100000",
                  .help = "adagrad_decay.", .least = 1, .most = UINT32_MAX),
    SL_CLI_OPTION(F32, &raw.spec.decay_baseline, .name = "decay-baseline", .help = "adagrad_decay.",
                  .least = 1e-30, .most = 1e12),

    {.kind = SL_CLI_SECTION, .name = "Rows that the servers forget (default: none; not with bsp)"},
    SL_CLI_OPTION(U32, &values.training.tables.policy.ttl_steps, .name = "ttl-steps", .preset = "0",
                  .help = "Rows go that no push has visited for so many steps; 0: never.",
                  .least = 0, .most = 2147483648),
    SL_CLI_OPTION(U32, &values.training.tables.policy.ttl_seconds, .name = "ttl-seconds",
                  .preset = "0",
                  .help = "Rows go that no push has visited for so many seconds; 0: never.",
                  .least = 0, .most = UINT32_MAX),
    SL_CLI_OPTION(U32, &values.training.tables.policy.protect_steps, .name = "protect-steps",
                  .preset = "0", .help = "Rows pushed within so many steps stay.", .least = 0,
                  .most = UINT32_MAX),
    SL_CLI_OPTION(U32, &values.training.tables.policy.count_below, .name = "count-below",
                  .preset = "0", .help = "Rows with fewer pushes go, once they are not protected.",
                  .least = 0, .most = UINT32_MAX),
    SL_CLI_OPTION(F32, &values.training.tables.policy.l2_below, .name = "l2-below", .preset = "0",
                  .help = "Rows with a lower Euclidean norm go, once they are not protected.",
                  .least = 0, .most = 1e12),
    SL_CLI_OPTION(U64, &values.training.tables.policy.rows_max, .name = "rows-max", .preset = "0",
                  .help = "Most rows of a table; 0: no limit. Needs --evict.", .least = 0,
                  .most = SEED_MAX),
    SL_CLI_OPTION(CHOICE, &raw.order, .name = "evict", .preset = "none",
                  .choices = "none|lru|lfu|l2", .metavar = "ORDER",
                  .help = "Which rows go first to make room, for --rows-max and near the servers' "
                          "--memory-limit: lru, longest not pushed; lfu, rarest; l2, least norm."),
    SL_CLI_OPTION(U32, &values.training.tables.policy.half_life_steps, .name = "half-life-steps",
                  .preset = "0",
                  .help = "lfu: pushes count half for each such age of the row; 0: always.",
                  .least = 0, .most = UINT32_MAX),
    SL_CLI_OPTION(CHOICE, &raw.admission, .name = "admission", .preset = "count",
                  .choices = "count|probability|bloom", .metavar = "KIND",
                  .help = "Which keys get a row. count: those pushed --admit-count times; "
                          "probability: each push has the chance --admit-probability; bloom: as "
                          "count, in less memory, by a Bloom filter for --keys-expected."),
    SL_CLI_OPTION(U32, &values.training.tables.policy.admit_count, .name = "admit-count",
                  .preset = "0",
                  .help = "Gradients of a key are dropped until so many were pushed.", .least = 0,
                  .most = 1U << 31),
    SL_CLI_OPTION(U32, &values.training.tables.policy.admit_age_steps, .name = "admit-age-steps",
                  .preset = "0",
                  .help = "Keys that wait count anew after so many steps without a push; bloom: "
                          "all counts are halved each time that so many steps are over; 0: never.",
                  .least = 0, .most = 1U << 31),
    SL_CLI_OPTION(F32, &values.training.tables.policy.admit_probability,
                  .name = "admit-probability", .preset = "0",
                  .help = "The chance of --admission probability.", .least = 0, .most = 1),
    SL_CLI_OPTION(U64, &values.training.tables.policy.keys_expected, .name = "keys-expected",
                  .preset = "0", .help = "bloom: how many keys of a table are counted.", .least = 0,
                  .most = 1ULL << 33),
    SL_CLI_OPTION(F32, &values.training.tables.policy.false_positives, .name = "false-positives",
                  .preset = "0",
                  .help = "bloom: the share of keys that may get a row early; 0: 0.01.", .least = 0,
                  .most = 0.5),

    {.kind = SL_CLI_SECTION, .name = "Precision"},
    SL_CLI_OPTION(CHOICE, &raw.values, .name = "values", .choices = "f32|f16|bf16|int8",
                  .help = "How the servers store the rows of the model."),
    SL_CLI_OPTION(CHOICE, &raw.slots, .name = "slots", .choices = "f32|f16|bf16",
                  .help = "How the servers store what the optimizer keeps of the rows."),
    SL_CLI_OPTION(
        CHOICE, &raw.encoding, .name = "encoding", .choices = "f32|f16|bf16|int8",
        .help = "How parameters and gradients travel. int8: the worker keeps what rounding takes "
                "from a gradient, in 64 MiB for the rows of each table, and adds it to the next "
                "one; dense tables are pulled as bf16. Evaluations pull f32."),

    {.kind = SL_CLI_SECTION, .name = "Steps"},
    SL_CLI_OPTION(
        STRING, &raw.consistency, .name = "consistency", .preset = "asp",
        .metavar = "asp|bsp|ssp[:N]",
        .help =
            "Whether a pull waits for slower workers. asp: never; bsp: for all workers to finish "
            "the iteration before; ssp: for workers more than N iterations behind."),
    SL_CLI_OPTION(U32, &raw.staleness, .name = "staleness", .preset = "1",
                  .help = "N of \"--consistency ssp\".", .least = 0, .most = STALENESS_MAX),
    SL_CLI_OPTION(
        PARSED, &values.protocol, .name = "protocol", .preset = "batched", .parse = parse_protocol,
        .accepts =
            "batched or per-table (or their aliases of StarServer star_server_lite, star_server)",
        .metavar = "batched|per-table",
        .help =
            "batched: requests of a step to one shard share messages; per-table: one message for "
            "each table and shard."),
    SL_CLI_OPTION(DURATION, &raw.step_timeout_ns, .name = "timeout", .preset = "60s",
                  .help = "Deadline of a step; a step that misses it ends the worker.",
                  .least = TIMEOUT_LEAST, .most = TIMEOUT_SECONDS_MAX),
    SL_CLI_OPTION(DURATION, &raw.start_timeout_ns, .name = "start-timeout", .preset = "60s",
                  .help = "Longest wait for the servers, then for the other workers.",
                  .least = TIMEOUT_LEAST, .most = TIMEOUT_SECONDS_MAX),
    SL_CLI_OPTION(DURATION, &raw.barrier_timeout_ns, .name = "barrier-timeout", .preset = "10m",
                  .help = "Longest wait at the end for slower workers and for the evaluation.",
                  .least = TIMEOUT_LEAST, .most = TIMEOUT_SECONDS_MAX),

    {.kind = SL_CLI_SECTION, .name = "Output"},
    SL_CLI_OPTION(STRING, &values.save, .name = "save", .metavar = "FILE",
                  .help = "Save the model after the training, or when worker 0 is stopped, to "
                          "FILE.safetensors, for \"starling-worker predict\" and other programs; "
                          "with --test-every that of the best test AUC. Worker 0 writes it, and "
                          "replaces an older file."),
    SL_CLI_OPTION(STRING, &values.report, .name = "report", .metavar = "FILE",
                  .help = "Write a JSON report: worker 0 writes FILE, worker N writes FILE.N."),
    SL_CLI_OPTION(STRING, &values.publish, .name = "publish", .metavar = "NAME",
                  .help = "Worker 0 publishes the tables as versions of this object, while it "
                          "trains and at the end. Needs servers with --objects, and --catalogue."),
    SL_CLI_OPTION(DURATION, &values.publish_every_ns, .name = "publish-every", .preset = "60s",
                  .help = "Time between two versions of --publish; --timeout limits each.",
                  .least = TIMEOUT_LEAST, .most = TIMEOUT_SECONDS_MAX),
    SL_CLI_OPTION(
        BOOL, &values.training.quiet, .name = "quiet",
        .help =
            "Print no progress. Else worker 0 does, and others on a terminal or with --log debug."),
};

#define OWN_OPTIONS (sizeof OPTIONS / sizeof OPTIONS[0])

static struct sl_settings_cli command_line; /* OPTIONS are its first ones */

static bool flags_is_given(const char *flag)
{
    size_t i = 0;
    while (OPTIONS[i].name == NULL || strcmp(OPTIONS[i].name, flag) != 0) {
        i++;
        sl_assert(i < OWN_OPTIONS);
    }
    return command_line.given[i].from != SL_CLI_FROM_DEFAULT;
}

/* Gradients are sums over a batch: an optimizer that does not normalize them needs a small rate. */
static float default_lr(enum sl_optimizer_kind kind, int model)
{
    switch (kind) {
    case SL_OPTIMIZER_ADAGRAD:
    case SL_OPTIMIZER_ADAGRAD_DECAY:
    case SL_OPTIMIZER_ROWWISE_ADAGRAD:
        return MODELS[model]->default_lr;
    case SL_OPTIMIZER_SUM:
    case SL_OPTIMIZER_SGD:
        return 0.001F;
    case SL_OPTIMIZER_MOMENTUM:
        return 0.0001F;
    default:
        return sl_optimizer_defaults(kind).lr;
    }
}

/* Flags of some optimizers or models only */

#define OPTIMIZER(kind) (1U << SL_OPTIMIZER_##kind)
#define ADAM_FAMILY                                                                                \
    (OPTIMIZER(ADAM) | OPTIMIZER(ADAMW) | OPTIMIZER(ADAM_ASYNC) | OPTIMIZER(ROWWISE_ADAM) |        \
     OPTIMIZER(LAMB))
#define ADAGRAD_FAMILY (OPTIMIZER(ADAGRAD) | OPTIMIZER(ADAGRAD_DECAY) | OPTIMIZER(ROWWISE_ADAGRAD))
#define FTRL_FAMILY    (OPTIMIZER(FTRL) | OPTIMIZER(FTRL_GROUP))
#define ALL_OPTIMIZERS ((1U << SL_OPTIMIZER_KIND_COUNT) - 1)
#define OWN_DECAY      (OPTIMIZER(ADAMW) | OPTIMIZER(LAMB))
#define TAKES_DECAY    (ALL_OPTIMIZERS & ~(OWN_DECAY | FTRL_FAMILY | OPTIMIZER(SUM)))
#define FM             (1U << 1) /* index in MODELS */
#define DEEPFM         (1U << 2)

/* Fields of the optimizer's specification have four bytes each. */
#define SPEC(field)    offsetof(struct sl_optimizer_spec, field)

static const struct setting {
    const char *flag;
    uint32_t optimizers, models; /* bit i: the i-th has the setting; 0: not one of these */
    size_t offset;               /* in the optimizer's specification; 0: not there */
} SETTINGS[] = {
    {"lr", ALL_OPTIMIZERS, 0, SPEC(lr)},
    {"momentum", OPTIMIZER(MOMENTUM) | OPTIMIZER(RMSPROP), 0, SPEC(momentum)},
    {"rho", OPTIMIZER(RMSPROP) | OPTIMIZER(ADADELTA) | OPTIMIZER(ADAGRAD_DECAY), 0, SPEC(rho)},
    {"beta1", ADAM_FAMILY | OPTIMIZER(LION), 0, SPEC(beta1)},
    {"beta2", ADAM_FAMILY | OPTIMIZER(LION), 0, SPEC(beta2)},
    {"epsilon", ADAM_FAMILY | ADAGRAD_FAMILY | OPTIMIZER(RMSPROP) | OPTIMIZER(ADADELTA), 0,
     SPEC(epsilon)},
    {"weight-decay", OWN_DECAY | TAKES_DECAY, 0, SPEC(weight_decay)},
    {"decay", TAKES_DECAY, 0, 0},
    {"initial-accumulator", ADAGRAD_FAMILY | FTRL_FAMILY, 0, SPEC(initial_accumulator)},
    {"l1", FTRL_FAMILY, 0, SPEC(l1)},
    {"l2", FTRL_FAMILY, 0, SPEC(l2)},
    {"lr-power", FTRL_FAMILY, 0, SPEC(lr_power)},
    {"decay-steps", OPTIMIZER(ADAGRAD_DECAY), 0, SPEC(decay_steps)},
    {"decay-baseline", OPTIMIZER(ADAGRAD_DECAY), 0, SPEC(decay_baseline)},
    {"factors", 0, FM | DEEPFM, 0},
    {"hidden", 0, DEEPFM, 0},
};

static bool has_bit(uint32_t bits, int bit)
{
    return (bits >> bit & 1) != 0;
}

static int refuse_setting(const struct setting *setting, struct sl_reason *reason)
{
    const bool by_optimizer = setting->optimizers != 0;
    const int count =
        by_optimizer ? SL_OPTIMIZER_KIND_COUNT : (int)(sizeof MODELS / sizeof *MODELS);
    char owners[256] = "";
    for (int i = 0; i < count; i++) {
        if (has_bit(by_optimizer ? setting->optimizers : setting->models, i)) {
            (void)sl_format_add(owners, sizeof owners, ", ", "%s",
                                by_optimizer ? sl_table_names_optimizer[i] : MODELS[i]->name);
        }
    }
    return sl_reason_fail(
        reason, SL_ERR_INVALID, "--%s has no effect with --%s %s: it is a setting of %s",
        setting->flag, by_optimizer ? "optimizer" : "model",
        by_optimizer ? sl_table_names_optimizer[raw.optimizer] : MODELS[raw.model]->name, owners);
}

/* Fills *spec with the optimizer's defaults and the given settings; refuses settings without
 * effect. */
static int take_settings(struct sl_optimizer_spec *spec, struct sl_reason *reason)
{
    const enum sl_optimizer_kind kind = (enum sl_optimizer_kind)raw.optimizer;
    *spec = sl_optimizer_defaults(kind);
    spec->lr = default_lr(kind, raw.model);
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        const struct setting *setting = &SETTINGS[i];
        if (!flags_is_given(setting->flag)) {
            continue;
        }
        if (!has_bit(setting->optimizers, raw.optimizer) && !has_bit(setting->models, raw.model)) {
            return refuse_setting(setting, reason);
        }
        if (setting->offset != 0) {
            memcpy((char *)spec + setting->offset, (char *)&raw.spec + setting->offset,
                   sizeof(float));
        }
    }
    values.training.tables.update.decay = (enum sl_decay_kind)raw.decay;
    return flags_is_given("weight-decay") && raw.decay == SL_DECAY_NONE &&
                   !has_bit(OWN_DECAY, raw.optimizer)
               ? sl_reason_fail(reason, SL_ERR_INVALID,
                                "--weight-decay has no effect with --optimizer %s without --decay "
                                "l2 or decoupled",
                                sl_table_names_optimizer[raw.optimizer])
               : 0;
}

static int parse_consistency(const char *text, struct sl_consistency_spec *out,
                             struct sl_reason *reason)
{
    uint32_t staleness = raw.staleness;
    const bool is_ssp = strcmp(text, "ssp") == 0;
    const bool has_suffix = strncmp(text, "ssp:", 4) == 0 &&
                            sl_number_parse_u32(text + 4, 0, STALENESS_MAX, &staleness);
    const bool is_asp = strcmp(text, "asp") == 0;
    if (!is_ssp && !has_suffix && !is_asp && strcmp(text, "bsp") != 0) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "--consistency %s: accepts asp, bsp, ssp or ssp:N with N from 0 to %d", text,
            STALENESS_MAX);
    }
    if (!is_ssp && flags_is_given("staleness")) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "--staleness has no effect with --consistency %s: it is the N of --consistency ssp",
            text);
    }
    *out = (struct sl_consistency_spec){
        .mode = is_ssp || has_suffix ? SL_CONSISTENCY_SSP
                : is_asp             ? SL_CONSISTENCY_ASP
                                     : SL_CONSISTENCY_BSP,
        .staleness = is_ssp || has_suffix ? staleness : 0,
    };
    return 0;
}

/* Returns the flag that another needs, in words; NULL: none is missing. */
static const char *find_policy_flaw(const struct sl_policy_spec *policy)
{
    const bool is_bloom = policy->admission == SL_ADMISSION_BLOOM;
    const bool has_protection = policy->protect_steps > 0;
    return policy->rows_max > 0 && policy->order == SL_POLICY_NONE
               ? "--rows-max needs --evict lru, lfu or l2"
           : policy->count_below > 0 && !has_protection ? "--count-below needs --protect-steps"
           : policy->l2_below > 0 && !has_protection    ? "--l2-below needs --protect-steps"
           : is_bloom && policy->keys_expected == 0     ? "--admission bloom needs --keys-expected"
                                                        : NULL;
}

static int finish(const struct sl_cli *cli, struct sl_reason *reason)
{
    values.format = sl_reader_formats[raw.format];
    values.training.model = MODELS[raw.model];
    values.optimizer_name = sl_table_names_optimizer[raw.optimizer];
    values.protocol_name = values.protocol == SL_PROTOCOL_BATCHED ? "batched" : "per-table";
    values.training.step_timeout_ms = (uint32_t)(raw.step_timeout_ns / SL_CLOCK_NS_PER_MS);
    values.training.start_timeout_ms = (uint32_t)(raw.start_timeout_ns / SL_CLOCK_NS_PER_MS);
    values.training.barrier_timeout_ms = (uint32_t)(raw.barrier_timeout_ns / SL_CLOCK_NS_PER_MS);
    values.training.tables.policy.order = (enum sl_policy_order)raw.order;
    values.training.tables.policy.admission = (enum sl_admission_kind)raw.admission;
    values.training.tables.values = (enum sl_precision)raw.values;
    values.training.tables.slots = (enum sl_precision)raw.slots;
    values.training.tables.encoding = (enum sl_precision)raw.encoding;
    values.training.is_lr_given = flags_is_given("lr");
    int err = parse_consistency(raw.consistency, &values.training.consistency, reason);
    err = err != 0 ? err : take_settings(&values.training.optimizer, reason);
    const char *dot = values.save == NULL ? NULL : strrchr(values.save, '.');
    if (err == 0 && values.save != NULL && (dot == NULL || strcmp(dot, ".safetensors") != 0)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--save %s: accepts a name that ends in .safetensors", values.save);
    }
    const char *flaw = find_policy_flaw(&values.training.tables.policy);
    if (err == 0 && flaw != NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "%s", flaw);
    }
    const bool is_tested = values.training.test_every > 0;
    if (err == 0 && is_tested && values.test.count == 0) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "--test-every has no effect without --test");
    }
    if (err == 0 && values.training.patience > 0 && !is_tested) {
        err =
            sl_reason_fail(reason, SL_ERR_INVALID, "--patience has no effect without --test-every");
    }
    if (err == 0 && values.publish != NULL && values.settings.objects.catalogue == NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--publish=%s needs --catalogue, or STARLING_OBJECTS_CATALOGUE",
                             values.publish);
    }
    return err != 0 ? err : sl_settings_resolve(SL_PROGRAM_WORKER, cli, &values.settings, reason);
}

int sl_flags_parse(int argc, char **argv, struct sl_flags *out, struct sl_reason *reason)
{
    /* --help shows the settings of the default optimizer. */
    raw = (struct raw){.optimizer = SL_OPTIMIZER_ADAGRAD,
                       .spec = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD)};
    raw.spec.lr = default_lr(SL_OPTIMIZER_ADAGRAD, 0);
    values = (struct sl_flags){.data = {0}};
    const struct sl_cli own = {
        .program = "starling-worker",
        .summary = "Trains a click-through model on this worker's share of the data. The "
                   "parameters are on the servers.",
        .usage = "--data FILE... [options]\n"
                 "       starling-worker predict --model FILE --data FILE... [--out FILE]\n"
                 "       starling-worker generate --out DIR [options]",
        .options = OPTIONS,
        .option_count = (uint32_t)OWN_OPTIONS,
    };
    sl_settings_cli_init(SL_PROGRAM_WORKER, sl_topology_core_count(), &own, &values.settings,
                         &command_line);
    int result = sl_cli_parse(&command_line.cli, argc, argv, reason);
    if (result == SL_CLI_RUN) {
        result = finish(&command_line.cli, reason);
    }
    *out = values;
    explicit_bzero(&values, sizeof values); /* it has the secret */
    return result;
}

void sl_flags_fini(struct sl_flags *flags)
{
    sl_settings_fini(&flags->settings);
    sl_cli_list_fini(&flags->data);
    sl_cli_list_fini(&flags->test);
}
