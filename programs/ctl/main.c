/* starling-ctl looks at a running job, changes its tables and moves its shards. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/cli_option.h"
#include "config/settings_cli.h"
#include "core/clock.h"
#include "core/log.h"
#include "programs/ctl/ctl.h"

#define PROGRAM    "starling-ctl"
#define REFUSED_MS 3000 /* no process listens on a port that refuses for so long */
#define LENGTH(of) (uint32_t)(sizeof(of) / sizeof((of)[0]))

static struct sl_ctl ctl;

/* `kind` is a kind of option; no variable: STARLING_YES would be a surprise. */
#define OPTION(kind_, to, name_, ...)                                                              \
    SL_CLI_OPTION(kind_, to, .name = (name_), .variable = "", __VA_ARGS__)

static const struct sl_cli_option options[] = {
    OPTION(DURATION, &ctl.flags.timeout_ns, "timeout", .preset = "30s", .least = 0.1, .most = 86400,
           .metavar = "TIME",
           .help = "Deadline of everything that the verb does. Without it, a port that refuses "
                   "connections ends it after 3 s."),
    OPTION(BOOL, &ctl.flags.json, "json", .help = "Print JSON: of scan, an object a line."),
    OPTION(BOOL, &ctl.flags.yes, "yes", .no_key = true,
           .help = "Of verbs that change tables or move shards: do not ask. Needed without a "
                   "terminal."),
    OPTION(BOOL, &ctl.flags.dry_run, "dry-run", .no_key = true,
           .help = "Of move, drain, balance: print the moves of shards, and change nothing."),
    OPTION(
        STRING, &ctl.flags.http, "http", .metavar = "URL",
        .help =
            "Of status, members, shards, top, slow, events: the HTTP address of a server. Default: "
            "the coordinator's, as it says."),
    OPTION(U64, &ctl.flags.since, "since", .metavar = "STEP",
           .help = "Of scan: only rows pushed or assigned after this step of their shard."),
    OPTION(U64, &ctl.flags.limit, "limit", .metavar = "N", .help = "Of scan: at most N rows."),
    OPTION(STRING, &ctl.flags.out, "out", .metavar = "FILE",
           .help = "Of scan: write keys, rows, last_step and count into this file, .safetensors or "
                   ".npz, instead of printing them. They are in memory until then."),
    OPTION(BOOL, &ctl.flags.replace, "replace", .help = "Of scan: replace an existing --out file."),
};

static int make_checkpoint(struct sl_ctl *run, json_t **out)
{
    uint64_t number;
    const int err = sl_client_checkpoint(run->client, sl_ctl_time_left_ms(run), &number);
    *out = err == 0 ? json_pack("{s:I}", "checkpoint", (json_int_t)number) : NULL;
    return err != 0 ? sl_ctl_failed(run, err) : 0;
}

static const struct verb {
    const char *name, *usage, *summary;
    uint32_t words_least, words_most;
    bool needs_client;
    int (*run)(struct sl_ctl *ctl, json_t **out);
} verbs[] = {
    {"status", "", "State of the job, its rates and sizes.", 0, 0, false, sl_ctl_status},
    {"members", "", "Servers with their shards, and workers.", 0, 0, false, sl_ctl_members},
    {"tables", "", "All tables with their specifications.", 0, 0, true, sl_ctl_tables},
    {"table", "TABLE", "Specification, counts, memory and rates of a table.", 1, 1, true,
     sl_ctl_table},
    {"get", "TABLE KEY...", "Rows of keys; elements of a dense table.", 2, UINT32_MAX, true,
     sl_ctl_get},
    {"set", "TABLE KEY VALUE...", "Assigns a row, or elements of a dense table from KEY on.", 3,
     UINT32_MAX, true, sl_ctl_set},
    {"erase", "TABLE KEY...", "Removes the rows of keys.", 2, UINT32_MAX, true, sl_ctl_erase},
    {"evict", "TABLE [ttl_steps=N] [count_below=N] [l2_below=X]",
     "Evicts rows now, by these thresholds or the table's policy.", 1, UINT32_MAX, true,
     sl_ctl_evict},
    {"drop", "TABLE", "Ends a table: its rows and its name are gone.", 1, 1, true, sl_ctl_drop},
    {"scan", "TABLE [--since STEP] [--limit N] [--out FILE]", "All rows of a table.", 1, 1, true,
     sl_ctl_scan},
    {"top", "TABLE", "The most used keys of a table.", 1, 1, false, sl_ctl_top},
    {"slow", "", "The last slow requests.", 0, 0, false, sl_ctl_slow},
    {"events", "", "The last events of the process with the coordinator.", 0, 0, false,
     sl_ctl_events},
    {"shards", "", "Where each shard is: its server, its backup, its move.", 0, 0, false,
     sl_ctl_shards},
    {"move", "SHARD ps/N", "Moves a shard to a server.", 2, 2, true, sl_ctl_move},
    {"drain", "ps/N", "Moves all shards away from a server, which then ends.", 1, 1, true,
     sl_ctl_drain},
    {"balance", "[--dry-run]", "Moves shards until all servers have as many.", 0, 0, true,
     sl_ctl_balance},
    {"checkpoint", "", "Makes a checkpoint, and waits until it is complete.", 0, 0, true,
     make_checkpoint},
};

uint32_t sl_ctl_time_left_ms(const struct sl_ctl *run)
{
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    const uint64_t left_ns = run->deadline_ns > now_ns ? run->deadline_ns - now_ns : 0;
    return left_ns < SL_CLOCK_NS_PER_MS ? 1 : (uint32_t)(left_ns / SL_CLOCK_NS_PER_MS);
}

int sl_ctl_failed(struct sl_ctl *run, int err)
{
    return sl_reason_fail(&run->reason, err, "%s", sl_last_error());
}

int sl_ctl_open_table(struct sl_ctl *run, struct sl_table **table, struct sl_table_spec *spec)
{
    *spec = (struct sl_table_spec)SL_TABLE_SPEC_INIT;
    int err =
        sl_client_table_open_by_name(run->client, run->words[0], sl_ctl_time_left_ms(run), table);
    err = err != 0 ? err : sl_table_spec_get(*table, spec);
    return err != 0 ? sl_ctl_failed(run, err) : 0;
}

int sl_ctl_confirm(struct sl_ctl *run, const char *what)
{
    if (!run->flags.yes && !(isatty(STDIN_FILENO) && isatty(STDERR_FILENO))) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "would %s; without a terminal to ask, this needs --yes", what);
    }
    if (!run->flags.yes) {
        (void)fprintf(stderr, PROGRAM ": %s? [y/N] ", what);
        const int answer = getchar();
        if (answer != 'y' && answer != 'Y') {
            return sl_reason_fail(&run->reason, SL_ERR_CANCELLED, "nothing was changed");
        }
        run->deadline_ns = sl_clock_now_ns(sl_clock_system()) + run->flags.timeout_ns;
    }
    char host[64] = "", text[512];
    const struct passwd *user = getpwuid(getuid());
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(text, sizeof text, "%s, asked by %s at %s", what,
                   user != NULL ? user->pw_name : "?", host);
    sl_reason_make_printable(text, strlen(text));
    const int err = sl_client_operate(run->client, text, sl_ctl_time_left_ms(run));
    return err != 0 ? sl_ctl_failed(run, err) : 0;
}

static int connect_client(struct sl_ctl *run)
{
    const struct sl_security *security = &run->settings.security;
    const bool is_operator = security->operator_secret.byte_count > 0;
    const struct sl_secret *secret = is_operator ? &security->operator_secret : &security->secret;
    struct sl_client_options client = {
        .struct_size = sizeof client,
        .coordinator = run->settings.flags.cluster.coordinator,
        .task_index = is_operator ? SL_CLIENT_OPERATOR : -1,
        .start_timeout_ms = run->has_timeout ? sl_ctl_time_left_ms(run) : REFUSED_MS,
        .secret = secret->byte_count == 0 ? NULL : secret->bytes,
        .secret_bytes = secret->byte_count,
        .tls_certificate = security->certificate,
        .tls_key = security->key,
        .tls_authority = security->authority,
        .tls_peer_name = security->peer_name,
        .disable_rdma = true,
    };
    int err = sl_client_create(&client, &run->client);
    if (err == SL_ERR_DEADLINE && !run->has_timeout &&
        strstr(sl_last_error(), ": refused: ") == NULL) {
        client.start_timeout_ms = sl_ctl_time_left_ms(run);
        err = sl_client_create(&client, &run->client);
    }
    return err != 0 ? sl_ctl_failed(run, err) : 0;
}

/* ---- Output ---- */

/* Prints a scalar, the items of a list, or the members of an object: "optimizer=sgd,lr=0.1". */
static void print_value(json_t *value)
{
    size_t i;
    json_t *item;
    const char *name, *separator = "";
    json_array_foreach(value, i, item)
    {
        (void)fputs(i == 0 ? "" : " ", stdout);
        print_value(item);
    }
    json_object_foreach(value, name, item)
    {
        (void)printf("%s%s=", separator, name);
        print_value(item);
        separator = ",";
    }
    if (json_is_string(value)) {
        (void)fputs(json_string_value(value), stdout);
    } else if (json_is_real(value) && json_real_value(value) > 1e8) {
        (void)printf("%.3f", json_real_value(value)); /* a time */
    } else if (json_is_real(value)) {
        char text[32]; /* as short as an f32 needs */
        const float number = (float)json_real_value(value);
        (void)snprintf(text, sizeof text, "%.6g", (double)number);
        (void)printf(strtof(text, NULL) == number ? "%.6g" : "%.9g", (double)number);
    } else if (!json_is_array(value) && !json_is_object(value)) {
        (void)json_dumpf(value, stdout, JSON_ENCODE_ANY);
    }
}

/* An object is printed as a line for each member; those of its objects are indented. */
static void print_object(json_t *object, int indent)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        (void)printf("%*s%s:%s", indent, "", name, json_is_object(value) ? "\n" : " ");
        if (json_is_object(value)) {
            print_object(value, indent + 2);
        } else {
            print_value(value);
            (void)putchar('\n');
        }
    }
}

/* A list of objects is printed as a line for each, with the values of the first one's members. */
static void print_text(json_t *value)
{
    size_t i;
    const char *name;
    json_t *item, *member;
    if (!json_is_array(value)) {
        print_object(value, 0);
    }
    json_array_foreach(value, i, item)
    {
        const char *separator = "";
        json_object_foreach(item, name, member)
        {
            (void)fputs(separator, stdout);
            print_value(member);
            separator = "  ";
        }
        (void)putchar('\n');
    }
}

/* ---- Command line ---- */

static bool takes_value(const struct sl_cli *cli, const char *name)
{
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const struct sl_cli_option *option = &cli->options[i];
        if (sl_cli_option_has_flag(option) && sl_cli_option_is_named(option, name)) {
            return option->kind != SL_CLI_BOOL;
        }
    }
    return false;
}

/* Words and flags come in any order; a value may be negative. Moves the words to ctl.words. Returns
 * the number of the arguments that are left. */
static int take_words(const struct sl_cli *cli, int argc, char **argv)
{
    int kept = argc > 0 ? 1 : 0;
    ctl.words = calloc((size_t)argc + 1, sizeof *ctl.words);
    for (int i = kept; ctl.words != NULL && i < argc; i++) {
        const bool is_short = strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "-V") == 0;
        const bool is_long = strncmp(argv[i], "--", 2) == 0;
        if (!is_short && !is_long) {
            ctl.words[ctl.word_count++] = argv[i];
            continue;
        }
        argv[kept++] = argv[i];
        if (is_long && strchr(argv[i], '=') == NULL && i + 1 < argc &&
            takes_value(cli, argv[i] + 2)) {
            argv[kept++] = argv[++i];
        }
    }
    return kept;
}

static const struct verb *find_verb(struct sl_reason *reason)
{
    const char *name = ctl.word_count > 0 ? ctl.words[0] : "";
    for (uint32_t i = 0; i < LENGTH(verbs); i++) {
        const uint32_t count = ctl.word_count - 1;
        if (strcmp(verbs[i].name, name) != 0) {
            continue;
        }
        if (count < verbs[i].words_least || count > verbs[i].words_most) {
            (void)sl_reason_fail(reason, SL_ERR_INVALID, "%s: accepted is " PROGRAM " %s %s", name,
                                 name, verbs[i].usage);
            return NULL;
        }
        ctl.words++;
        ctl.word_count = count;
        return &verbs[i];
    }
    (void)sl_reason_fail(reason, SL_ERR_INVALID, "%s%s%s; " PROGRAM " --help lists the verbs",
                         name[0] == '\0' ? "a verb is missing" : "unknown verb \"", name,
                         name[0] == '\0' ? "" : "\"");
    return NULL;
}

static void print_verbs(void)
{
    (void)puts("\nVerbs:");
    for (uint32_t i = 0; i < LENGTH(verbs); i++) {
        (void)printf("  " PROGRAM " %s %s\n      %s\n", verbs[i].name, verbs[i].usage,
                     verbs[i].summary);
    }
}

static int run_verb(const struct verb *verb)
{
    json_t *result = NULL;
    int err = 0;
    ctl.deadline_ns = sl_clock_now_ns(sl_clock_system()) + ctl.flags.timeout_ns;
    if (verb->needs_client || ctl.flags.http == NULL) {
        err = connect_client(&ctl);
    }
    err = err != 0 ? err : verb->run(&ctl, &result);
    if (err == 0 && result != NULL && ctl.flags.json) {
        (void)json_dumpf(result, stdout, JSON_COMPACT);
        (void)putchar('\n');
    } else if (err == 0 && result != NULL) {
        print_text(result);
    }
    json_decref(result);
    sl_client_leave(&ctl.client);
    return err;
}

int main(int argc, char **argv)
{
    const struct sl_cli own = {
        .program = PROGRAM,
        .summary = "Looks at a running job, changes its tables, and moves its shards.",
        .usage = "VERB [WORD...] [options]",
        .options = options,
        .option_count = LENGTH(options),
    };
    static struct sl_settings_cli all;
    struct sl_reason *reason = &ctl.reason;
    sl_settings_cli_init(SL_PROGRAM_CTL, 1, &own, &ctl.settings, &all);
    argc = take_words(&all.cli, argc, argv);
    char **const words = ctl.words;
    int result = words == NULL ? SL_ERR_NO_MEMORY : sl_cli_parse(&all.cli, argc, argv, reason);
    if (result == SL_CLI_EXIT_OK &&
        (strcmp(argv[argc - 1], "--help") == 0 || strcmp(argv[argc - 1], "-h") == 0)) {
        print_verbs();
    }
    const struct verb *verb = result == SL_CLI_RUN ? find_verb(reason) : NULL;
    result = result == SL_CLI_RUN && verb == NULL ? SL_ERR_INVALID : result;
    if (result == SL_CLI_RUN && ctl.settings.flags.cluster.coordinator == NULL &&
        (verb->needs_client || ctl.flags.http == NULL)) {
        result = sl_reason_fail(reason, SL_ERR_INVALID,
                                "--coordinator (or STARLING_COORDINATOR) is missing: HOST:PORT of "
                                "server 0 or of the scheduler");
    }
    result = result != SL_CLI_RUN ? result
                                  : sl_security_resolve(&ctl.settings.flags.security,
                                                        &ctl.settings.security, reason);
    if (result != SL_CLI_RUN) {
        free(words);
        return sl_cli_exit(&own, result, reason);
    }
    ctl.has_timeout =
        sl_settings_given(&all.cli, &ctl.flags.timeout_ns)->from != SL_CLI_FROM_DEFAULT;
    sl_settings_log_setup(&ctl.settings, PROGRAM);
    const int err = run_verb(verb);
    free(words);
    sl_settings_fini(&ctl.settings);
    /* A change that nobody has agreed to is wrong use. */
    const int status = sl_cli_end(&own, err, reason);
    return err == SL_ERR_INVALID ? SL_CLI_EXIT_USAGE : status;
}
