#include "config/settings.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

static struct parsed parsed;

static void clear(void)
{
    clear_variables();
}

static const struct sl_settings *expect(enum sl_program program, const char *const *arguments)
{
    if (parse_settings(program, arguments, &parsed) != SL_CLI_RUN) {
        fail_msg("refused: %s", parsed.reason.text);
    }
    return &parsed.settings;
}

static void refuse(enum sl_program program, const char *const *arguments, const char *const *words)
{
    assert_int_equal(parse_settings(program, arguments, &parsed), SL_ERR_INVALID);
    expect_words(parsed.reason.text, words);
}

#define CASE(name) SL_CASE_WITH(name, clear(), clear())

CASE(settings__defaults)
{
    const struct sl_settings *settings = expect(SL_PROGRAM_PS, NO_ARGUMENTS);
    assert_int_equal(settings->reactors.count, 4);
    assert_false(settings->reactors.polling || settings->reactors.pin_cores || settings->insecure);
    assert_int_equal(settings->log_level, SL_LOG_INFO);
    assert_string_equal(settings->congestion_control, "");
    assert_true(settings->transports.uses_shm && settings->transports.uses_rdma);
    assert_int_equal(settings->times.lease_ns, 10 * SL_CLOCK_NS_PER_S);
    assert_int_equal(settings->memory_bytes_max, 0);
    assert_null(settings->checkpoint.dir);
    assert_int_equal(settings->checkpoint.every_ns, 600 * SL_CLOCK_NS_PER_S);
    assert_int_equal(settings->checkpoint.incrementals_max, 7);
    assert_int_equal(settings->checkpoint.keep, 2);
    assert_int_equal(settings->checkpoint.compression_level, 1);
    assert_int_equal(settings->checkpoint.restore, SL_CHECKPOINT_RESTORE_NONE);
    (void)sl_settings_options(SL_PROGRAM_PS, 96, &parsed.settings, parsed.options);
    assert_int_equal(parsed.settings.reactors.count, 16);
}

CASE(settings__objects)
{
    const struct sl_objects_settings *objects = &expect(SL_PROGRAM_PS, NO_ARGUMENTS)->objects;
    assert_null(objects->name);
    assert_null(objects->catalogue);
    assert_int_equal(objects->memory_bytes, 1 << 30);
    assert_int_equal(objects->keep_versions, 3);
    setenv("STARLING_OBJECTS_CATALOGUE", "h:2", 1);
    static const char *const arguments[] = {"--objects",
                                            "h:1",
                                            "--objects-dir",
                                            "/d",
                                            "--objects-memory",
                                            "2M",
                                            "--objects-rate",
                                            "3K",
                                            "--keep-versions",
                                            "9",
                                            NULL};
    objects = &expect(SL_PROGRAM_PS, arguments)->objects;
    assert_string_equal(objects->name, "h:1");
    assert_string_equal(objects->catalogue, "h:2");
    assert_string_equal(objects->directory, "/d");
    assert_int_equal(objects->memory_bytes, 2 << 20);
    assert_int_equal(objects->rate_bytes, 3 << 10);
    assert_int_equal(objects->keep_versions, 9);
    assert_string_equal(expect(SL_PROGRAM_WORKER, NO_ARGUMENTS)->objects.catalogue, "h:2");
}

CASE(settings__flags_and_variables_of_servers)
{
    static const char *const variables[][2] = {
        {"STARLING_PS_REACTORS", "3"},        {"STARLING_PS_POLLING", "TRUE"},
        {"STARLING_PS_PIN_CORES", "1"},       {"STARLING_LOG", "Warn"},
        {"STARLING_TCP_CONGESTION", "bbr"},   {"STARLING_SHM", "0"},
        {"STARLING_RDMA", "false"},           {"STARLING_CHECKPOINT_DIR", "/v"},
        {"STARLING_CHECKPOINT_EVERY", "0"},   {"STARLING_CHECKPOINT_INCREMENTALS", "63"},
        {"STARLING_CHECKPOINT_KEEP", "1000"}, {"STARLING_CHECKPOINT_COMPRESSION", "19"},
        {"STARLING_RESTORE", "12"},
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        setenv(variables[i][0], variables[i][1], 1);
    }
    const struct sl_settings *settings = expect(SL_PROGRAM_PS, NO_ARGUMENTS);
    assert_int_equal(settings->reactors.count, 3);
    assert_true(settings->reactors.polling && settings->reactors.pin_cores);
    assert_int_equal(settings->log_level, SL_LOG_WARN);
    assert_string_equal(settings->congestion_control, "bbr");
    assert_false(settings->transports.uses_shm || settings->transports.uses_rdma);
    assert_string_equal(settings->checkpoint.dir, "/v");
    assert_int_equal(settings->checkpoint.every_ns, 0);
    assert_int_equal(settings->checkpoint.incrementals_max, 63);
    assert_int_equal(settings->checkpoint.keep, 1000);
    assert_int_equal(settings->checkpoint.compression_level, 19);
    assert_int_equal(settings->checkpoint.restore, SL_CHECKPOINT_RESTORE_NUMBER);
    assert_int_equal(settings->checkpoint.number, 12);
    settings = expect(SL_PROGRAM_PS,
                      ARGUMENTS("--reactors", "2", "--polling=false", "--checkpoint-dir", "/f",
                                "--checkpoint-every", "1500ms", "--checkpoint-incrementals", "0",
                                "--checkpoint-keep", "1", "--checkpoint-compression", "0",
                                "--restore", "newest", "--lease", "300ms", "--memory-limit", "2K"));
    assert_int_equal(settings->reactors.count, 2);
    assert_false(settings->reactors.polling);
    assert_string_equal(settings->checkpoint.dir, "/f");
    assert_int_equal(settings->checkpoint.every_ns, 1500 * SL_CLOCK_NS_PER_MS);
    assert_int_equal(settings->checkpoint.restore, SL_CHECKPOINT_RESTORE_NEWEST);
    assert_int_equal(settings->times.lease_ns, 300 * SL_CLOCK_NS_PER_MS);
    assert_int_equal(settings->memory_bytes_max, 2048);
}

/* StarServer's names stay. */
CASE(settings__older_names_of_variables)
{
    setenv("NETWORK_PS_CORE_NUMBER", "256", 1);
    setenv("NETWORK_WORKER_CORE_NUMBER", "0", 1);
    setenv("PS_ENABLE_POLLING", "1", 1);
    setenv("PS_DISABLE_PIN_CORES", "0", 1);
    setenv("WORKER_DISABLE_PIN_CORES", "False", 1);
    const struct sl_settings *settings = expect(SL_PROGRAM_PS, NO_ARGUMENTS);
    assert_int_equal(settings->reactors.count, 256);
    assert_true(settings->reactors.polling && settings->reactors.pin_cores);
    settings = expect(SL_PROGRAM_WORKER, NO_ARGUMENTS);
    assert_int_equal(settings->reactors.count, 0);
    assert_true(settings->reactors.pin_cores && !settings->reactors.polling);
    setenv("PS_DISABLE_PIN_CORES", "1", 1);
    assert_false(expect(SL_PROGRAM_PS, NO_ARGUMENTS)->reactors.pin_cores);
}

CASE(settings__both_names_must_agree)
{
    setenv("NETWORK_PS_CORE_NUMBER", "2", 1);
    setenv("STARLING_PS_REACTORS", "2", 1);
    assert_int_equal(expect(SL_PROGRAM_PS, NO_ARGUMENTS)->reactors.count, 2);
    setenv("STARLING_PS_REACTORS", "3", 1);
    refuse(SL_PROGRAM_PS, NO_ARGUMENTS,
           WORDS("STARLING_PS_REACTORS is 3", "NETWORK_PS_CORE_NUMBER is 2", "must agree"));
    assert_int_equal(expect(SL_PROGRAM_PS, ARGUMENTS("--reactors=4"))->reactors.count, 4);
    setenv("WORKER_DISABLE_PIN_CORES", "0", 1);
    setenv("STARLING_WORKER_PIN_CORES", "1", 1);
    assert_true(expect(SL_PROGRAM_WORKER, NO_ARGUMENTS)->reactors.pin_cores);
    setenv("STARLING_WORKER_PIN_CORES", "0", 1);
    refuse(SL_PROGRAM_WORKER, NO_ARGUMENTS, WORDS("WORKER_DISABLE_PIN_CORES is 0"));
}

CASE(settings__bad_values_name_source_value_and_accepted)
{
    static const struct {
        enum sl_program program;
        const char *name, *value, *accepted;
    } cases[] = {
        {SL_PROGRAM_PS, "NETWORK_PS_CORE_NUMBER", "0", "1 to 256"},
        {SL_PROGRAM_PS, "NETWORK_PS_CORE_NUMBER", "257", "1 to 256"},
        {SL_PROGRAM_PS, "NETWORK_PS_CORE_NUMBER", "", "1 to 256"},
        {SL_PROGRAM_PS, "STARLING_PS_REACTORS", "-1", "1 to 256"},
        {SL_PROGRAM_PS, "NETWORK_PS_CORE_NUMBER", " 4", "1 to 256"},
        {SL_PROGRAM_PS, "NETWORK_PS_CORE_NUMBER", "4x", "1 to 256"},
        {SL_PROGRAM_WORKER, "NETWORK_WORKER_CORE_NUMBER", "18446744073709551617", "0 to 256"},
        {SL_PROGRAM_WORKER, "NETWORK_WORKER_CORE_NUMBER", "4294967297", "0 to 256"},
        {SL_PROGRAM_PS, "PS_ENABLE_POLLING", "yes", "0, 1, true or false"},
        {SL_PROGRAM_WORKER, "WORKER_ENABLE_POLLING", "", "0, 1, true or false"},
        {SL_PROGRAM_PS, "PS_DISABLE_PIN_CORES", "2", "0, 1, true or false"},
        {SL_PROGRAM_WORKER, "WORKER_DISABLE_PIN_CORES", "true ", "0, 1, true or false"},
        {SL_PROGRAM_PS, "STARLING_LOG", "loud", "debug, info, warn, error or off"},
        {SL_PROGRAM_PS, "STARLING_TCP_CONGESTION", "sixteen-letters-", "such as cubic"},
        {SL_PROGRAM_PS, "STARLING_TCP_CONGESTION", "cu bic", "such as cubic"},
        {SL_PROGRAM_PS, "STARLING_SHM", "off", "0, 1, true or false"},
        {SL_PROGRAM_WORKER, "STARLING_RDMA", "2", "0, 1, true or false"},
        {SL_PROGRAM_PS, "STARLING_CHECKPOINT_DIR", "", "path of a directory"},
        {SL_PROGRAM_PS, "STARLING_CHECKPOINT_EVERY", "often", "a duration from 0 to"},
        {SL_PROGRAM_PS, "STARLING_CHECKPOINT_KEEP", "0", "from 1 to 1000"},
        {SL_PROGRAM_PS, "STARLING_RESTORE", "", "newest"},
        {SL_PROGRAM_PS, "STARLING_SECRET_FILE", "", "path of a file"},
        {SL_PROGRAM_PS, "--checkpoint-dir", "", "path of a directory"},
        {SL_PROGRAM_PS, "--checkpoint-every", "-1", "such as 500ms, 2s or 10m"},
        {SL_PROGRAM_PS, "--checkpoint-incrementals", "64", "from 0 to 63"},
        {SL_PROGRAM_PS, "--checkpoint-compression", "20", "from 0 to 19"},
        {SL_PROGRAM_PS, "--restore", "oldest", "number of a checkpoint"},
        {SL_PROGRAM_PS, "--restore", "0", "number of a checkpoint"},
        {SL_PROGRAM_PS, "--lease", "99ms", "from 100ms to 1h"},
        {SL_PROGRAM_PS, "--lease", "2h", "without a unit: seconds"},
        {SL_PROGRAM_PS, "--memory-limit", "lots", "0, 500M or 64G"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char begins[128], flag[128];
        const bool is_flag = cases[i].name[0] == '-';
        clear();
        (void)snprintf(begins, sizeof begins, "%s=%s: accepts ", cases[i].name, cases[i].value);
        (void)snprintf(flag, sizeof flag, "%s=%s", cases[i].name, cases[i].value);
        if (!is_flag) {
            setenv(cases[i].name, cases[i].value, 1);
        }
        refuse(cases[i].program, is_flag ? ARGUMENTS(flag) : NO_ARGUMENTS,
               WORDS(begins, cases[i].accepted));
    }
}

static void refuse_checkpoint(const char *const *arguments, bool orders, const char *const *words)
{
    (void)expect(SL_PROGRAM_PS, arguments);
    assert_int_equal(
        sl_settings_check_checkpoint_flags(&parsed.cli, &parsed.settings, orders, &parsed.reason),
        SL_ERR_INVALID);
    expect_words(parsed.reason.text, words);
}

static void accept_checkpoint(const char *const *arguments, bool orders)
{
    (void)expect(SL_PROGRAM_PS, arguments);
    assert_int_equal(
        sl_settings_check_checkpoint_flags(&parsed.cli, &parsed.settings, orders, &parsed.reason),
        0);
}

CASE(settings_check_checkpoint__a_setting_needs_a_directory)
{
    static const char *const flags[] = {"--checkpoint-every=5", "--checkpoint-incrementals=5",
                                        "--checkpoint-keep=5",  "--checkpoint-compression=5",
                                        "--restore=newest",     "--restore-fallback",
                                        "--restore-policy=new"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        refuse_checkpoint(ARGUMENTS(flags[i]), false, WORDS(flags[i], "without --checkpoint-dir"));
    }
    refuse_checkpoint(ARGUMENTS("--checkpoint-dir=/c", "--restore-fallback"), false,
                      WORDS("--restore-fallback", "without --restore"));
    refuse_checkpoint(ARGUMENTS("--checkpoint-dir=/c", "--restore-policy=keep"), false,
                      WORDS("--restore-policy", "without --restore"));
    accept_checkpoint(ARGUMENTS("--checkpoint-dir=/c", "--restore-fallback", "--restore=1"), false);
    setenv("STARLING_RESTORE", "newest", 1);
    refuse_checkpoint(NO_ARGUMENTS, false, WORDS("STARLING_RESTORE", "without --checkpoint-dir"));
}

/* A scheduler starts checkpoints, and may share variables with the servers. */
CASE(settings_check_checkpoint__a_scheduler_needs_none)
{
    setenv("STARLING_CHECKPOINT_KEEP", "5", 1);
    accept_checkpoint(ARGUMENTS("--checkpoint-every=5", "--checkpoint-incrementals=2"), true);
    accept_checkpoint(ARGUMENTS("--restore-policy=new"), true);
    refuse_checkpoint(ARGUMENTS("--checkpoint-keep=5"), true, WORDS("--checkpoint-keep=5"));
}

static int resolve(enum sl_program program, const char *const *arguments)
{
    (void)expect(program, arguments);
    return sl_settings_resolve(program, &parsed.cli, &parsed.settings, &parsed.reason);
}

CASE(settings_resolve__lease_and_heartbeat_timeout_must_agree)
{
    const char *const some[] = {"--ps-hosts=a:1", "--lease=3", NULL};
    setenv("PS_HEARTBEAT_TIMEOUT", "5", 1);
    assert_int_equal(resolve(SL_PROGRAM_PS, ARGUMENTS("--ps-hosts=a:1")), 0);
    assert_int_equal(parsed.settings.times.lease_ns, 5 * SL_CLOCK_NS_PER_S);
    sl_settings_fini(&parsed.settings);
    assert_int_equal(resolve(SL_PROGRAM_PS, some), SL_ERR_INVALID);
    expect_words(parsed.reason.text, WORDS("--lease is 3", "PS_HEARTBEAT_TIMEOUT is 5"));
    sl_settings_fini(&parsed.settings);
    setenv("PS_HEARTBEAT_TIMEOUT", "3", 1);
    assert_int_equal(resolve(SL_PROGRAM_PS, some), 0);
    sl_settings_fini(&parsed.settings);
}

CASE(settings_resolve__reactors_and_group_size_must_agree)
{
    setenv("DMLC_ROLE", "server", 1);
    setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
    setenv("DMLC_PS_ROOT_PORT", "1", 1);
    setenv("DMLC_NUM_WORKER", "1", 1);
    setenv("DMLC_NUM_SERVER", "1", 1);
    setenv("DMLC_GROUP_SIZE", "8", 1);
    assert_int_equal(resolve(SL_PROGRAM_PS, NO_ARGUMENTS), 0);
    assert_int_equal(parsed.settings.reactors.count, 8);
    sl_settings_fini(&parsed.settings);
    setenv("NETWORK_PS_CORE_NUMBER", "2", 1);
    assert_int_equal(resolve(SL_PROGRAM_PS, NO_ARGUMENTS), SL_ERR_INVALID);
    expect_words(parsed.reason.text, WORDS("NETWORK_PS_CORE_NUMBER is 2", "DMLC_GROUP_SIZE is 8"));
    sl_settings_fini(&parsed.settings);
}

CASE(settings_resolve__num_workers_and_hosts_must_agree)
{
    assert_int_equal(resolve(SL_PROGRAM_PS, ARGUMENTS("--ps-hosts=a:1", "--num-workers=3")), 0);
    assert_int_equal(parsed.settings.cluster.worker_count, 3);
    assert_string_equal(parsed.settings.cluster.worker_count_source, "--num-workers");
    sl_settings_fini(&parsed.settings);
    assert_int_equal(resolve(SL_PROGRAM_PS,
                             ARGUMENTS("--ps-hosts=a:1", "--num-workers=3", "--worker-hosts=a,b")),
                     SL_ERR_INVALID);
    expect_words(parsed.reason.text, WORDS("--num-workers is 3", "--worker-hosts names 2"));
    sl_settings_fini(&parsed.settings);
}

/* Every flag that a launcher passes on exists in the program that gets it. */
SL_CASE(settings_programs__of_flags)
{
    assert_int_equal(sl_settings_programs("tls-name"),
                     SL_PROGRAM_PS | SL_PROGRAM_WORKER | SL_PROGRAM_LAUNCH | SL_PROGRAM_OBJECTS |
                         SL_PROGRAM_GATEWAY | SL_PROGRAM_SERVE_WORKER | SL_PROGRAM_DEPLOY |
                         SL_PROGRAM_CTL | SL_PROGRAM_ROLLBACK);
    assert_int_equal(sl_settings_programs("lease"), SL_PROGRAM_PS | SL_PROGRAM_LAUNCH);
    assert_int_equal(sl_settings_programs("data"), 0);
}
