#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "programs/launch/plan.h"
#include "tests/support/unit.h"

static char *some_arguments[] = {(char *)"--data", (char *)"d", NULL};
static char *one_worker[] = {(char *)"w"};

/* The command of the task as one string, behind the program's path. */
static char *command_of(enum sl_cluster_role role, const struct sl_launch_options *options)
{
    struct sl_plan plan;
    const struct sl_plan_hosts hosts = {
        .ps = (char *)"h:1", .ps_count = 1, .workers = {.items = one_worker, .count = 1}};
    assert_int_equal(sl_plan_init(&plan, 1, 1, 0), 0);
    struct sl_plan_task *task = &plan.tasks[role == SL_CLUSTER_PS ? 0 : 1];
    assert_int_equal(sl_plan_command(task, options, &hosts, NULL), 0);
    char *text = sl_words_quote(task->argv.items + 1, task->argv.count - 1);
    assert_non_null(text);
    sl_plan_fini(&plan);
    return text;
}

static void assert_ends(enum sl_cluster_role role, const struct sl_launch_options *options,
                        const char *expected)
{
    static const char *const begins[] = {
        [SL_CLUSTER_PS] = "'--ps-hosts' 'h:1' '--num-workers' '1' '--job-name' 'ps' "
                          "'--task-index' '0'",
        [SL_CLUSTER_WORKER] = "'--ps-hosts' 'h:1' '--num-workers' '1' '--job-name' 'worker' "
                              "'--task-index' '0'",
    };
    char *text = command_of(role, options);
    assert_memory_equal(text, begins[role], strlen(begins[role]));
    assert_string_equal(text + strlen(begins[role]), expected);
    free(text);
}

/* Parses flags of the launcher; those of all processes go to *options. */
static int collect(const char *const *arguments, struct sl_launch_options *options,
                   struct sl_reason *reason)
{
    static struct sl_cli_option table[SL_SETTINGS_OPTIONS_MAX];
    static struct sl_cli_given given[SL_SETTINGS_OPTIONS_MAX];
    char *argv[32] = {(char *)"starling-launch"};
    int argc = 1;
    for (; *arguments != NULL; arguments++) {
        argv[argc++] = (char *)(uintptr_t)*arguments;
    }
    const struct sl_cli cli = {
        .options = table,
        .option_count = sl_settings_options(SL_PROGRAM_LAUNCH, 1, &options->settings, table),
        .given = given,
        .file = &options->settings.cli_file,
    };
    assert_int_equal(sl_cli_parse(&cli, argc, argv, reason), SL_CLI_RUN);
    return sl_plan_flags(&cli, options, reason);
}

/* The user's own words come last: of a flag given twice the last one counts. Variables are passed
 * on as variables. */
SL_CASE(plan_command__passes_on_flags_of_all_processes)
{
    static const char *const arguments[] = {"--secret-file",
                                            "s",
                                            "--tls-cert",
                                            "c",
                                            "--tls-key=k",
                                            "--tls-ca",
                                            "a",
                                            "--rdma",
                                            "--insecure",
                                            "--lease",
                                            "300ms",
                                            "--checkpoint-dir",
                                            "/c",
                                            "--checkpoint-every",
                                            "5",
                                            "--restore",
                                            "newest",
                                            "--restore-fallback",
                                            NULL};
    struct sl_launch_options options = {
        .bin_dir = "/bin", .ps_args = "--x", .worker_program.args = some_arguments};
    assert_int_equal(setenv("STARLING_CHECKPOINT_KEEP", "9", 1), 0);
    assert_int_equal(collect(arguments, &options, NULL), 0);
    assert_int_equal(unsetenv("STARLING_CHECKPOINT_KEEP"), 0);
    assert_ends(SL_CLUSTER_PS, &options,
                " '--lease' '300ms' '--serve-rdma' '--secret-file' 's' '--insecure' "
                "'--tls-cert' 'c' '--tls-key' 'k' '--tls-ca' 'a' '--checkpoint-dir' '/c' "
                "'--checkpoint-every' '5' '--restore' 'newest' '--restore-fallback' '--x'");
    assert_ends(SL_CLUSTER_WORKER, &options,
                " '--secret-file' 's' '--tls-cert' 'c' '--tls-key' 'k' '--tls-ca' 'a' '--data' "
                "'d'");
    sl_words_fini(&options.ps.flags);
    sl_words_fini(&options.worker.flags);
    sl_words_fini(&options.agent_flags);
}

/* It need not know the flags of starling-worker. */
SL_CASE(plan_command__a_command_gets_flags_as_variables)
{
    static const char *const arguments[] = {"--secret-file", "s",      "--tls-cert=c",
                                            "--restore",     "newest", NULL};
    static char *command[] = {(char *)"python3", (char *)"a b.py", (char *)"--lr=1", NULL};
    struct sl_launch_options options = {
        .bin_dir = "/bin", .worker_program.args = command, .worker_program.is_command = true};
    const struct sl_plan_hosts hosts = {
        .ps = (char *)"h:1", .ps_count = 1, .workers = {.items = one_worker, .count = 1}};
    struct sl_plan plan;
    assert_int_equal(collect(arguments, &options, NULL), 0);
    assert_int_equal(sl_plan_init(&plan, 1, 1, 0), 0);
    struct sl_plan_task *task = &plan.tasks[1];
    assert_int_equal(sl_plan_command(task, &options, &hosts, NULL), 0);
    char *text = sl_words_quote(task->argv.items, task->argv.count);
    assert_string_equal(text, "'python3' 'a b.py' '--lr=1'");
    free(text);
    const uint32_t count = task->variables.count;
    assert_string_equal(task->variables.items[0], "STARLING_COORDINATOR=h:1");
    assert_string_equal(task->variables.items[count - 2], "STARLING_SECRET_FILE=s");
    assert_string_equal(task->variables.items[count - 1], "STARLING_TLS_CERT=c");
    sl_plan_fini(&plan);
    sl_words_fini(&options.ps.flags);
    sl_words_fini(&options.worker.flags);
    sl_words_fini(&options.agent_flags);
}

SL_CASE(plan_flags__ps_args_leave_the_launcher_its_flags)
{
    static const char *const none[] = {NULL};
    static const struct {
        const char *words;
        int err;
    } cases[] = {{"--memory-limit 1G --unknown", 0},
                 {"--replicas 1", SL_ERR_INVALID},
                 {"--x --cluster-store=etcd://h:1/p", SL_ERR_INVALID},
                 {"'open", SL_ERR_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_launch_options options = {.ps_args = cases[i].words};
        struct sl_reason reason = {0};
        assert_int_equal(collect(none, &options, &reason), cases[i].err);
        assert_true(cases[i].err == 0 || strstr(reason.text, "--ps-args") != NULL);
        sl_words_fini(&options.ps.flags);
        sl_words_fini(&options.worker.flags);
    }
}

SL_CASE(plan_command__devices_are_of_the_role)
{
    const struct sl_launch_options options = {.bin_dir = "/bin",
                                              .worker_program.args = some_arguments,
                                              .ps.devices = "m{worker}?addr=10.0.0.1",
                                              .worker.devices = "m?addr=10.0.0.{task+2}"};
    assert_ends(SL_CLUSTER_PS, &options, " '--dpdk-device' 'm0?addr=10.0.0.1'");
    assert_ends(SL_CLUSTER_WORKER, &options, " '--dpdk-device' 'm?addr=10.0.0.2' '--data' 'd'");
}

SL_CASE(plan_command__servers_with_objects_and_agents)
{
    static const char *const arguments[] = {"--secret-file", "s", "--keep-versions", "2", NULL};
    struct sl_launch_options options = {
        .bin_dir = "/bin", .worker_program.args = some_arguments, .objects = true, .agents = true};
    struct sl_plan_hosts hosts = {.agent_count = 1};
    struct sl_plan plan;
    struct sl_reason reason;
    assert_int_equal(collect(arguments, &options, &reason), 0);
    options.settings.insecure = true; /* the secret is not here */
    assert_int_equal(sl_words_append(&hosts.workers, "w"), 0);
    assert_int_equal(sl_plan_hosts_append(&hosts, &options, "h", 1, 11), 0);
    assert_int_equal(sl_plan_hosts_append(&hosts, &options, "h", 2, 12), 0);
    assert_int_equal(sl_plan_fill(&plan, &options, &hosts, &reason), 0);
    assert_int_equal(plan.task_count, 4);
    static const char *const expected[] = {
        "'--ps-hosts' 'h:1,h:2' '--num-workers' '1' '--job-name' 'ps' '--task-index' '1' "
        "'--objects' 'h:12' '--secret-file' 's' '--keep-versions' '2'",
        "'--ps-hosts' 'h:1,h:2' '--num-workers' '1' '--job-name' 'worker' '--task-index' '0' "
        "'--secret-file' 's' '--data' 'd'",
        "'agent' '--agent-name' 'h:11' '--secret-file' 's'"};
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_words *argv = &plan.tasks[i + 1].argv;
        char *text = sl_words_quote(argv->items + 1, argv->count - 1);
        assert_string_equal(text, expected[i]);
        free(text);
    }
    assert_string_equal(plan.tasks[3].name, "agent/0");
    assert_string_equal(plan.tasks[3].argv.items[0], "/bin/starling-ps");
    assert_string_equal(getenv("STARLING_OBJECTS_CATALOGUE"), "h:11");
    unsetenv("STARLING_OBJECTS_CATALOGUE");
    unsetenv("STARLING_OBJECTS_AGENT");
    sl_plan_fini(&plan);
    sl_plan_hosts_fini(&hosts);
    sl_words_fini(&options.ps.flags);
    sl_words_fini(&options.worker.flags);
    sl_words_fini(&options.agent_flags);
}

static int check(const char *ps, const struct sl_launch_options *options, struct sl_reason *reason)
{
    const struct sl_plan_hosts hosts = {.ps = (char *)(uintptr_t)ps,
                                        .ps_count = strchr(ps, ',') == NULL ? 1 : 2};
    reason->text[0] = '\0';
    return sl_plan_check(options, &hosts, reason);
}

SL_CASE(plan_check__replicas_need_two_ps)
{
    struct sl_reason reason;
    const struct sl_launch_options options = {.settings.replicas = 1};
    assert_int_equal(check("[::1]:1,[::1]:2", &options, &reason), 0);
    assert_int_equal(check("[::1]:1", &options, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--replicas 1 needs a second server"));
}

SL_CASE(plan_check__other_addresses_do)
{
    struct sl_reason reason;
    struct sl_launch_options options = {0};
    assert_int_equal(check("127.0.0.1:1,node7:2", &options, &reason), SL_ERR_INVALID);
    assert_non_null(
        strstr(reason.text, "ps/1: control endpoint tcp://node7:2 is open to the network"));
    assert_non_null(strstr(reason.text, "--secret-file"));
    assert_non_null(strstr(reason.text, "--insecure"));
    options.settings.insecure = true;
    assert_int_equal(check("node7:2", &options, &reason), 0);
    options.settings.insecure = false;
    options.settings.flags.security.secret_file = "s";
    assert_int_equal(check("node7:2", &options, &reason), 0);
}
