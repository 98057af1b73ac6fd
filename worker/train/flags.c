#include "worker/train/flags.h"
#include "config/cluster_store_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/env.h"
#include "core/assert.h"
#include "core/limits.h"

#define TIMEOUT_SECONDS_MAX 4294 /* starling.h bounds a step's deadline */
#define STALENESS_MAX       1000000000
#define STALENESS_DEFAULT   1
#define SEED_MAX            9007199254740992.0 /* 2^53: exact as a double */

static const struct sl_model *const MODELS[] = {&sl_model_lr, &sl_model_fm, &sl_model_deepfm};
static const struct sl_reader_format *const FORMATS[] = {&sl_reader_libsvm, &sl_reader_libffm,
                                                         &sl_reader_criteo};
static const char *const OPTIMIZER_NAMES[SL_OPTIMIZER_KIND_COUNT] = {
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
};
static const char *const PROTOCOL_NAMES[] = {
    [SL_PROTOCOL_BATCHED] = "star_server_lite",
    [SL_PROTOCOL_PER_TABLE] = "star_server",
};

/* The variables that the option table writes. */
struct raw {
    struct sl_cluster_flags cluster;
    struct sl_security_flags security;
    const char *store;
    struct sl_rdma_settings_flags rdma;
    struct sl_cli_list dpdk;
    struct sl_cli_list data;
    const char *test, *hidden, *consistency, *report;
    int format, model, optimizer, protocol;
    uint64_t epochs, batch_rows, factors, fields, staleness, seed, decay_steps;
    uint64_t timeout_s, start_timeout_s, barrier_timeout_s;
    double lr, momentum, rho, beta1, beta2, epsilon, weight_decay, initial_accumulator;
    double l1, l2, lr_power, decay_baseline;
    bool checksum, quiet;
};

static struct raw raw;

static const struct sl_cli_option OPTIONS[] = {
    {.kind = SL_CLI_SECTION,
     .name = "Cluster (else DMLC_* variables, TF_CONFIG, or the endpoint map)"},
    {.kind = SL_CLI_STRING,
     .name = "ps-hosts",
     .target = &raw.cluster.ps_hosts,
     .metavar = "HOST:PORT,...",
     .help = "Control endpoints of all servers, by task index, comma-separated."},
    {.kind = SL_CLI_STRING,
     .name = "worker-hosts",
     .target = &raw.cluster.worker_hosts,
     .metavar = "HOST,...",
     .help = "Worker hosts, comma-separated. Only the count is used."},
    {.kind = SL_CLI_STRING,
     .name = "job-name",
     .target = &raw.cluster.job_name,
     .metavar = "worker|chief",
     .help = "This process's role; a chief is worker 0."},
    {.kind = SL_CLI_I64,
     .name = "task-index",
     .target = &raw.cluster.task_index,
     .help = "This worker's index, from 0. -1: from TF_CONFIG, or 0 where there is one worker.",
     .least = -1,
     .most = SL_LIMIT_WORKERS - 1},
    {.kind = SL_CLI_STRING,
     .name = "endpoint-map",
     .target = &raw.cluster.endpoint_map,
     .metavar = "FILE",
     .help = "Data endpoints of the ps; without it ./.endpoint_map where it exists."},
    {.kind = SL_CLI_FLAG,
     .name = "join",
     .target = &raw.cluster.joins,
     .help = "Joins a running job: the task index may be beyond the job's worker count. The worker "
             "continues at the job's iteration, on the part of the data of its index modulo the "
             "worker count."},
    SL_CLUSTER_STORE_SETTINGS_OPTION(raw.store),
    SL_SECURITY_OPTIONS(raw.security),
    SL_RDMA_SETTINGS_OPTIONS(raw.rdma),
    SL_DPDK_SETTINGS_OPTIONS(raw.dpdk),

    {.kind = SL_CLI_SECTION, .name = "Data"},
    {.kind = SL_CLI_STRINGS,
     .name = "data",
     .target = &raw.data,
     .metavar = "FILE...",
     .help = "Training data, the same list for every worker: each worker reads its share of the "
             "bytes."},
    {.kind = SL_CLI_STRING,
     .name = "test",
     .target = &raw.test,
     .metavar = "FILE",
     .help = "Data on which worker 0 evaluates the model after the last epoch."},
    {.kind = SL_CLI_CHOICE,
     .name = "format",
     .target = &raw.format,
     .choices = "libsvm|libffm|criteo",
     .help = "libsvm: LABEL INDEX:VALUE ...; libffm: LABEL FIELD:INDEX:VALUE ...; criteo: label,"
             " 13 integers, 26 hexadecimal words, separated by tabs."},
    {.kind = SL_CLI_U64,
     .name = "epochs",
     .target = &raw.epochs,
     .help = "Passes over the data.",
     .least = 1,
     .most = 1e9},
    {.kind = SL_CLI_U64,
     .name = "batch-size",
     .target = &raw.batch_rows,
     .help = "Rows of a step. Gradients are sums over them.",
     .least = 1,
     .most = 1 << 20},

    {.kind = SL_CLI_SECTION, .name = "Model"},
    {.kind = SL_CLI_CHOICE,
     .name = "model",
     .target = &raw.model,
     .choices = "lr|fm|deepfm",
     .help = "Logistic regression, factorization machine, or DeepFM."},
    {.kind = SL_CLI_U64,
     .name = "factors",
     .target = &raw.factors,
     .help = "Columns of an embedding (fm, deepfm).",
     .least = 1,
     .most = SL_MODEL_FACTORS_MAX},
    {.kind = SL_CLI_STRING,
     .name = "hidden",
     .target = &raw.hidden,
     .metavar = "N,N",
     .help = "Units of the two hidden layers (deepfm)."},
    {.kind = SL_CLI_U64,
     .name = "fields",
     .target = &raw.fields,
     .help =
         "Features of a row at most (deepfm). 0: what the format says, else as many as the first"
         " row has.",
     .least = 0,
     .most = SL_MODEL_FIELDS_MAX},
    {.kind = SL_CLI_U64,
     .name = "seed",
     .target = &raw.seed,
     .help = "Seed of the parameters' first values; the same for every worker.",
     .least = 0,
     .most = SEED_MAX},

    {.kind = SL_CLI_SECTION, .name = "Optimizer, on the ps (defaults: the chosen optimizer's)"},
    {.kind = SL_CLI_CHOICE,
     .name = "optimizer",
     .target = &raw.optimizer,
     .metavar = "NAME",
     .choices = "sum|sgd|momentum|adagrad|adagrad_decay|rmsprop|adam|adamw|adam_async|ftrl|"
                "ftrl_group",
     .help = "sum, sgd, momentum, adagrad, adagrad_decay, rmsprop, adam, adamw, adam_async, ftrl or"
             " ftrl_group. With sum the worker sends -lr times the gradient."},
    {.kind = SL_CLI_F64,
     .name = "lr",
     .target = &raw.lr,
     .help = "Learning rate. With adagrad and adagrad_decay by the model: lr 0.07, fm 0.04, deepfm"
             " 0.01.",
     .least = 1e-12,
     .most = 1e6},
    {.kind = SL_CLI_F64,
     .name = "momentum",
     .target = &raw.momentum,
     .help = "momentum, rmsprop.",
     .least = 0,
     .most = 0.999999},
    {.kind = SL_CLI_F64,
     .name = "rho",
     .target = &raw.rho,
     .help = "rmsprop, adagrad_decay.",
     .least = 0,
     .most = 1},
    {.kind = SL_CLI_F64,
     .name = "beta1",
     .target = &raw.beta1,
     .help = "adam, adamw, adam_async.",
     .least = 0,
     .most = 0.999999},
    {.kind = SL_CLI_F64,
     .name = "beta2",
     .target = &raw.beta2,
     .help = "adam, adamw, adam_async.",
     .least = 0,
     .most = 0.999999},
    {.kind = SL_CLI_F64,
     .name = "epsilon",
     .target = &raw.epsilon,
     .help = "adagrad, adagrad_decay, rmsprop and the adam family.",
     .least = 0,
     .most = 1},
    {.kind = SL_CLI_F64,
     .name = "weight-decay",
     .target = &raw.weight_decay,
     .help = "adamw.",
     .least = 0,
     .most = 1e6},
    {.kind = SL_CLI_F64,
     .name = "initial-accumulator",
     .target = &raw.initial_accumulator,
     .help = "adagrad, adagrad_decay, ftrl.",
     .least = 0,
     .most = 1e12},
    {.kind = SL_CLI_F64,
     .name = "l1",
     .target = &raw.l1,
     .help = "ftrl, ftrl_group.",
     .least = 0,
     .most = 1e12},
    {.kind = SL_CLI_F64,
     .name = "l2",
     .target = &raw.l2,
     .help = "ftrl, ftrl_group.",
     .least = 0,
     .most = 1e12},
    {.kind = SL_CLI_F64,
     .name = "lr-power",
     .target = &raw.lr_power,
     .help = "ftrl, ftrl_group.",
     .least = -10,
     .most = 0},
    {.kind = SL_CLI_U64,
     .name = "decay-steps",
     .target = &raw.decay_steps,
     .help = "adagrad_decay.",
     .least = 1,
     .most = UINT32_MAX},
    {.kind = SL_CLI_F64,
     .name = "decay-baseline",
     .target = &raw.decay_baseline,
     .help = "adagrad_decay.",
     .least = 1e-30,
     .most = 1e12},

    {.kind = SL_CLI_SECTION, .name = "Steps"},
    {.kind = SL_CLI_STRING,
     .name = "consistency",
     .target = &raw.consistency,
     .metavar = "asp|bsp|ssp[:N]",
     .help = "How long a pull waits for slower workers: asp: never; bsp: for all of the iteration "
             "before; ssp: for workers more than N iterations behind."},
    {.kind = SL_CLI_U64,
     .name = "staleness",
     .target = &raw.staleness,
     .help = "N of \"--consistency ssp\".",
     .least = 0,
     .most = STALENESS_MAX},
    {.kind = SL_CLI_CHOICE,
     .name = "protocol",
     .target = &raw.protocol,
     .choices = "star_server_lite|star_server", /* in the order of sl_protocol */
     .help = "All of a step to a shard in one message, or one for each table and shard."},
    {.kind = SL_CLI_FLAG,
     .name = "checksum",
     .target = &raw.checksum,
     .help = "Adds a CRC-32C to every frame."},
    {.kind = SL_CLI_U64,
     .name = "timeout",
     .target = &raw.timeout_s,
     .metavar = "SECONDS",
     .help = "Deadline of one step; a step that misses it ends the worker.",
     .least = 1,
     .most = TIMEOUT_SECONDS_MAX},
    {.kind = SL_CLI_U64,
     .name = "start-timeout",
     .target = &raw.start_timeout_s,
     .metavar = "SECONDS",
     .help = "How long to wait for the ps, and then for the other workers.",
     .least = 1,
     .most = TIMEOUT_SECONDS_MAX},
    {.kind = SL_CLI_U64,
     .name = "barrier-timeout",
     .target = &raw.barrier_timeout_s,
     .metavar = "SECONDS",
     .help = "How long to wait for slower workers at the end, and for the evaluation.",
     .least = 1,
     .most = TIMEOUT_SECONDS_MAX},

    {.kind = SL_CLI_SECTION, .name = "Output"},
    {.kind = SL_CLI_STRING,
     .name = "report",
     .target = &raw.report,
     .metavar = "FILE",
     .help = "Writes what was measured as JSON: worker 0 to FILE, worker N to FILE.N."},
    {.kind = SL_CLI_FLAG,
     .name = "quiet",
     .target = &raw.quiet,
     .help = "No progress while training."},
};

static bool given[sizeof OPTIONS / sizeof OPTIONS[0]];

static const struct sl_cli CLI = {
    .program = "starling-worker",
    .summary = "Trains a click-through model on this worker's share of the data; the parameters are"
               " on the ps.",
    .usage = "--data FILE... [options]\n"
             "       starling-worker generate --out DIR [options]",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .given = given,
};

static bool is_given(const char *flag)
{
    uint32_t i = 0;
    while (strcmp(OPTIONS[i].name == NULL ? "" : OPTIONS[i].name, flag) != 0) {
        i++;
        sl_assert(i < CLI.option_count);
    }
    return given[i];
}

static double widen(float value)
{
    /* Six digits, so that 0.1F is printed, and parsed again, as 0.1. */
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", (double)value);
    return strtod(text, NULL);
}

/* Gradients are sums over a batch: an optimizer that does not normalize them needs a small rate. */
static float default_lr(enum sl_optimizer_kind kind, int model)
{
    switch (kind) {
    case SL_OPTIMIZER_ADAGRAD:
    case SL_OPTIMIZER_ADAGRAD_DECAY:
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

static void set_defaults(enum sl_optimizer_kind kind, int model)
{
    struct sl_optimizer_spec spec = sl_optimizer_defaults(kind);
    spec.lr = default_lr(kind, model);
    raw = (struct raw){
        .cluster = {.task_index = -1},
        .model = model,
        .optimizer = (int)kind,
        .protocol = SL_PROTOCOL_BATCHED,
        .hidden = "64,32",
        .consistency = "asp",
        .epochs = 1,
        .batch_rows = 64,
        .factors = 8,
        .staleness = STALENESS_DEFAULT,
        .seed = 1,
        .timeout_s = 60,
        .start_timeout_s = 60,
        .barrier_timeout_s = 600,
        .lr = widen(spec.lr),
        .momentum = widen(spec.momentum),
        .rho = widen(spec.rho),
        .beta1 = widen(spec.beta1),
        .beta2 = widen(spec.beta2),
        .epsilon = widen(spec.epsilon),
        .weight_decay = widen(spec.weight_decay),
        .initial_accumulator = widen(spec.initial_accumulator),
        .l1 = widen(spec.l1),
        .l2 = widen(spec.l2),
        .lr_power = widen(spec.lr_power),
        .decay_steps = spec.decay_steps,
        .decay_baseline = widen(spec.decay_baseline),
    };
}

/* Parses twice: optimizer and model determine the defaults of other flags. */
static int parse_twice(int argc, char **argv, char *reason, size_t reason_bytes)
{
    memset(given, 0, sizeof given);
    set_defaults(SL_OPTIMIZER_ADAGRAD, 0);
    int result = sl_cli_parse(&CLI, argc, argv, reason, reason_bytes);
    if (result != SL_CLI_RUN) {
        return result;
    }
    sl_cli_list_fini(&raw.data);
    sl_cli_list_fini(&raw.dpdk);
    set_defaults((enum sl_optimizer_kind)raw.optimizer, raw.model);
    return sl_cli_parse(&CLI, argc, argv, reason, reason_bytes);
}

/* Flags of some optimizers or models only */

#define OPTIMIZER(kind) (1U << SL_OPTIMIZER_##kind)
#define ADAM_FAMILY     (OPTIMIZER(ADAM) | OPTIMIZER(ADAMW) | OPTIMIZER(ADAM_ASYNC))
#define FTRL_FAMILY     (OPTIMIZER(FTRL) | OPTIMIZER(FTRL_GROUP))
#define FM              (1U << 1) /* index in MODELS */
#define DEEPFM          (1U << 2)

static const struct setting {
    const char *flag;
    uint32_t optimizers, models; /* bit i: the i-th has the setting; 0: all */
} SETTINGS[] = {
    {"momentum", OPTIMIZER(MOMENTUM) | OPTIMIZER(RMSPROP), 0},
    {"rho", OPTIMIZER(RMSPROP) | OPTIMIZER(ADAGRAD_DECAY), 0},
    {"beta1", ADAM_FAMILY, 0},
    {"beta2", ADAM_FAMILY, 0},
    {"epsilon", ADAM_FAMILY | OPTIMIZER(RMSPROP) | OPTIMIZER(ADAGRAD) | OPTIMIZER(ADAGRAD_DECAY),
     0},
    {"weight-decay", OPTIMIZER(ADAMW), 0},
    {"initial-accumulator", OPTIMIZER(ADAGRAD) | OPTIMIZER(ADAGRAD_DECAY) | FTRL_FAMILY, 0},
    {"l1", FTRL_FAMILY, 0},
    {"l2", FTRL_FAMILY, 0},
    {"lr-power", FTRL_FAMILY, 0},
    {"decay-steps", OPTIMIZER(ADAGRAD_DECAY), 0},
    {"decay-baseline", OPTIMIZER(ADAGRAD_DECAY), 0},
    {"factors", 0, FM | DEEPFM},
    {"hidden", 0, DEEPFM},
    {"fields", 0, DEEPFM},
};

static bool has_bit(uint32_t bits, int bit)
{
    return bits == 0 || (bits >> bit & 1) != 0;
}

static void refuse_setting(const struct setting *setting, char *reason, size_t reason_bytes)
{
    const bool by_optimizer = setting->optimizers != 0;
    const int count =
        by_optimizer ? SL_OPTIMIZER_KIND_COUNT : (int)(sizeof MODELS / sizeof *MODELS);
    char owners[160] = "";
    for (int i = 0; i < count; i++) {
        if (has_bit(by_optimizer ? setting->optimizers : setting->models, i)) {
            const size_t used = strlen(owners);
            (void)snprintf(owners + used, sizeof owners - used, "%s%s", used == 0 ? "" : ", ",
                           by_optimizer ? OPTIMIZER_NAMES[i] : MODELS[i]->name);
        }
    }
    (void)snprintf(reason, reason_bytes, "--%s has no effect with --%s %s: it is a setting of %s",
                   setting->flag, by_optimizer ? "optimizer" : "model",
                   by_optimizer ? OPTIMIZER_NAMES[raw.optimizer] : MODELS[raw.model]->name, owners);
}

static int check_settings(char *reason, size_t reason_bytes)
{
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        const struct setting *setting = &SETTINGS[i];
        if (is_given(setting->flag) && (!has_bit(setting->optimizers, raw.optimizer) ||
                                        !has_bit(setting->models, raw.model))) {
            refuse_setting(setting, reason, reason_bytes);
            return SL_ERR_INVALID;
        }
    }
    return 0;
}

static struct sl_optimizer_spec optimizer_spec(void)
{
    return (struct sl_optimizer_spec){
        .kind = (enum sl_optimizer_kind)raw.optimizer,
        .lr = (float)raw.lr,
        .momentum = (float)raw.momentum,
        .rho = (float)raw.rho,
        .beta1 = (float)raw.beta1,
        .beta2 = (float)raw.beta2,
        .epsilon = (float)raw.epsilon,
        .weight_decay = (float)raw.weight_decay,
        .initial_accumulator = (float)raw.initial_accumulator,
        .l1 = (float)raw.l1,
        .l2 = (float)raw.l2,
        .lr_power = (float)raw.lr_power,
        .decay_steps = (uint32_t)raw.decay_steps,
        .decay_baseline = (float)raw.decay_baseline,
    };
}

static int parse_consistency(const char *text, struct sl_consistency_spec *out, char *reason,
                             size_t reason_bytes)
{
    *out = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_SSP};
    const bool has_staleness = is_given("staleness");
    uint32_t staleness = (uint32_t)raw.staleness;
    if (strcmp(text, "ssp") == 0) {
        out->staleness = staleness;
        return 0;
    }
    const bool has_suffix =
        strncmp(text, "ssp:", 4) == 0 && sl_env_parse_u32(text + 4, 0, STALENESS_MAX, &staleness);
    const bool is_asp = strcmp(text, "asp") == 0;
    if (has_staleness && (has_suffix || is_asp || strcmp(text, "bsp") == 0)) {
        (void)snprintf(reason, reason_bytes,
                       "--staleness has no effect with --consistency %s: it is the N of "
                       "--consistency ssp",
                       text);
        return SL_ERR_INVALID;
    }
    if (has_suffix) {
        out->staleness = staleness;
        return 0;
    }
    if (is_asp || strcmp(text, "bsp") == 0) {
        out->mode = is_asp ? SL_CONSISTENCY_ASP : SL_CONSISTENCY_BSP;
        return 0;
    }
    (void)snprintf(reason, reason_bytes,
                   "--consistency %s: accepts asp, bsp, ssp or ssp:N with N from 0 to %d", text,
                   STALENESS_MAX);
    return SL_ERR_INVALID;
}

static int parse_hidden(const char *text, uint32_t hidden[SL_MODEL_HIDDEN], char *reason,
                        size_t reason_bytes)
{
    const char *comma = strchr(text, ',');
    char first[16];
    if (comma != NULL && (size_t)(comma - text) < sizeof first) {
        (void)snprintf(first, sizeof first, "%.*s", (int)(comma - text), text);
        if (sl_env_parse_u32(first, 1, SL_MODEL_HIDDEN_MAX, &hidden[0]) &&
            sl_env_parse_u32(comma + 1, 1, SL_MODEL_HIDDEN_MAX, &hidden[1])) {
            return 0;
        }
    }
    (void)snprintf(reason, reason_bytes, "--hidden %s: accepts N,N, each from 1 to %d", text,
                   SL_MODEL_HIDDEN_MAX);
    return SL_ERR_INVALID;
}

int sl_flags_parse(int argc, char **argv, struct sl_flags *out, char *reason, size_t reason_bytes)
{
    int err = parse_twice(argc, argv, reason, reason_bytes);
    if (err != SL_CLI_RUN) {
        return err;
    }
    struct sl_flags flags = {
        .cluster = raw.cluster,
        .security = raw.security,
        .store = raw.store,
        .rdma = raw.rdma,
        .dpdk = raw.dpdk,
        .data = raw.data,
        .test = raw.test,
        .format = FORMATS[raw.format],
        .model = MODELS[raw.model],
        .shape = {.factors = (uint32_t)raw.factors,
                  .fields = (uint32_t)raw.fields,
                  .seed = raw.seed},
        .optimizer_name = OPTIMIZER_NAMES[raw.optimizer],
        .optimizer = optimizer_spec(),
        .protocol_name = PROTOCOL_NAMES[raw.protocol],
        .protocol = (enum sl_protocol)raw.protocol,
        .epochs = (uint32_t)raw.epochs,
        .batch_rows = (uint32_t)raw.batch_rows,
        .step_timeout_ms = (uint32_t)raw.timeout_s * 1000,
        .start_timeout_ms = (uint32_t)raw.start_timeout_s * 1000,
        .barrier_timeout_ms = (uint32_t)raw.barrier_timeout_s * 1000,
        .checksum = raw.checksum,
        .report = raw.report,
        .quiet = raw.quiet,
    };
    err = parse_consistency(raw.consistency, &flags.consistency, reason, reason_bytes);
    if (err == 0) {
        err = parse_hidden(raw.hidden, flags.shape.hidden, reason, reason_bytes);
    }
    if (err == 0) {
        err = check_settings(reason, reason_bytes);
    }
    if (err != 0) {
        sl_cli_list_fini(&raw.data);
        sl_cli_list_fini(&raw.dpdk);
        return err;
    }
    *out = flags;
    return SL_CLI_RUN;
}

void sl_flags_fini(struct sl_flags *flags)
{
    sl_cli_list_fini(&flags->data);
    sl_cli_list_fini(&flags->dpdk);
}
